"""Every command and snippet of README.md and docs/, and every sample configuration, is run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import wave
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import yaml

import seqprep
from seqprep.cli.main import main
from seqprep.config import load_config
from seqprep.sources.registry import BUILT_IN

from .snippets import printed
from .sources.formats import example, record
from .sources.kaldi_files import binary, write_ark, write_table

ROOT = Path(__file__).resolve().parents[1]
SMALL = {"source": {"type": "synthetic", "sequences": 40}, "batch": {"max_frames": 3000, "max_sequences": 40},
         "chunk": {"size": 50, "step": 25}, "context": 5}  # fmt: skip


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.S)


def can_run(block: str) -> bool:
    """Whether the framework that a snippet is for is here: those of the extra `test` are."""
    used = re.findall(r"^import seqprep\.(torch|jax)$", block, re.M)
    return all(importlib.util.find_spec(name) for name in used)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the sample configurations, and where `seqprep` is on the PATH."""
    (tmp_path / "sample_configs").symlink_to(ROOT / "sample_configs")
    return tmp_path


def shell(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=os.environ | {"PATH": path},
                          capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_main_job(checkout: Path) -> None:
    command = next(block for block in blocks("README.md", "sh") if "bench shards/synthetic" in block)
    installed = command.partition("&&")[2].partition("&&")[2]  # the environment is the one that runs this test
    out = shell(installed.replace(".venv/bin/", ""), checkout)
    assert "2,000 sequences" in out
    assert "staged in TensorFlow" in out


def test_the_other_commands(checkout: Path) -> None:
    for block in blocks("README.md", "sh"):
        if "venv" not in block:
            shell(block, checkout)
    assert (checkout / "shards" / "records" / "index.json").exists()


def test_the_snippets_in_their_order(tmp_path: Path) -> None:
    code = "\n".join(block for block in blocks("README.md", "python") if can_run(block))
    assert "rows in" in printed(code, tmp_path)


@pytest.mark.parametrize("format", ["hdf5", "tfrecord"])
def test_stock_tools_read_shards_as_documented(tmp_path: Path, format: str) -> None:
    seqprep.chunk(SMALL | {"output": {"path": str(tmp_path / "out"), "format": format}})
    with seqprep.Loader(tmp_path / "out") as loader:
        np.savez(
            tmp_path / "expected.npz", *(array for batch in loader for array in (batch["data"], batch["data/size0"]))
        )
    snippet = blocks("docs/format.md", "python")[0 if format == "hdf5" else 2]
    assert len(snippet.strip().splitlines()) - snippet.count("import ") <= 5
    read = {
        "hdf5": "for i in range(h5py.File(path)['batches/rows'].shape[0]):\n"
        + "".join(f"    {line}\n" for line in snippet.splitlines())
        + "    got += [data, size0]\n",
        "tfrecord": snippet + "for batch in batches: got += [batch['data'].numpy(), batch['data/size0'].numpy()]\n",
    }[format]
    shard = next(path for path in sorted((tmp_path / "out").iterdir()) if path.suffix in (".h5", ".tfrecord"))
    read_without_us(read, shard, tmp_path / "expected.npz")


def read_without_us(code: str, shard: Path, expected: Path) -> None:
    """Runs code that appends arrays to `got`, with neither our package nor anything else than the given path."""
    code = (
        "import sys\nsys.modules['seqprep'] = None\nimport numpy, h5py\n"
        f"path, got = {str(shard)!r}, []\n{code}"
        f"expected = numpy.load({str(expected)!r})\n"
        "assert len(got) == len(expected.files) > 5\n"
        "for name, array in zip(expected.files, got): numpy.testing.assert_array_equal(expected[name], array, strict=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("format", ["hdf5", "tfrecord"])
def test_stock_tools_read_packed_rows_as_documented(tmp_path: Path, format: str) -> None:
    packed = {"batch": {"max_sequences": 2, "pack": True, "row_frames": 2000}, "chunk": None}
    seqprep.chunk(SMALL | packed | {"output": {"path": str(tmp_path / "out"), "format": format}})
    names = ["data", "data/segment_ids"] if format == "hdf5" else ["data", "segment_row", "segment_start", "data/size0"]
    with seqprep.Loader(tmp_path / "out") as loader:
        np.savez(tmp_path / "expected.npz", *(batch[name] for batch in loader for name in names))
    shard = next(path for path in sorted((tmp_path / "out").iterdir()) if path.suffix in (".h5", ".tfrecord"))
    if format == "hdf5":
        snippet = blocks("docs/format.md", "python")[3]
        assert len(snippet.strip().splitlines()) - snippet.count("import ") - 1 == 5
        lines = "".join(f"    {line}\n" for line in snippet.splitlines())
        code = f"for i in range(h5py.File(path)['batches/rows'].shape[0]):\n{lines}    got += [data, ids]\n"
    else:
        snippet = blocks("docs/format.md", "python")[2]
        types = ", ".join(f"{name!r}: tf.{'float32' if name == 'data' else 'int32'}" for name in names)
        code = snippet.replace('names = {"data": tf.float32, "data/size0": tf.int32}', f"names = {{{types}}}")
        assert code != snippet
        code += f"for batch in batches: got += [batch[name].numpy() for name in {names}]\n"
    read_without_us(code, shard, tmp_path / "expected.npz")


def test_settings_in_the_documents_are_right() -> None:
    for text in blocks("docs/planning.md", "yaml"):
        settings = {"source": {"type": "synthetic"}, "batch": {"max_sequences": 1}, "output": {"path": "out"}}
        found = yaml.safe_load(text)
        assert load_config(settings | found)


def test_what_the_documentation_shows_of_planning(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8").partition("## seqprep plan")[2]
    command, shown = re.search(r"```sh\n(.*?)```\n\n```text\n(.*?)```", text, re.S).groups()  # type: ignore[union-attr]
    printed = shell(command, tmp_path)

    def without_bytes(output: str) -> list[str]:  # shards hold the configuration, which grows with new settings
        return [re.sub(r"15\d,\d{3},\d{3}|302,\d{3},\d{3}", "bytes", line) for line in output.splitlines()]

    assert without_bytes(printed) == without_bytes(shown)
    assert list(tmp_path.iterdir()) == []


def write_inputs(checkout: Path) -> None:
    """What the sample configurations read."""
    (checkout / "corpus").mkdir()
    with h5py.File(checkout / "corpus" / "a.hdf", "w") as file:
        file["inputs"] = np.zeros((90, 3), np.float32)
        file["targets/data/classes"] = np.arange(90, dtype=np.int32)
        file["seqLengths"] = np.array([[40, 40], [50, 50]], np.int32)
        file["seqTags"] = np.array([b"a", b"b"])
    with wave.open(str(checkout / "a.wav"), "wb") as audio:
        audio.setnchannels(1)
        audio.setsampwidth(2)
        audio.setframerate(8000)
        audio.writeframes(np.random.default_rng(1).integers(-999, 999, 8000).astype("<i2").tobytes())
    (checkout / "recordings.csv").write_text("path,digit\na.wav,seven\n")
    documents = [list(range(700)), [], [5, 6]]
    lines = (json.dumps({"id": f"doc {place}", "tokens": ids}) for place, ids in enumerate(documents))
    (checkout / "tokens.jsonl").write_text("\n".join(lines))
    pyarrow.parquet.write_table(
        pyarrow.table({"id": ["a", "b", "c"], "input_ids": documents}), checkout / "corpus" / "a.parquet"
    )
    sales = (f"{store},{day},{day if day % 7 else ''},1.5" for day in range(1, 90) for store in ("north", "south"))
    (checkout / "sales.csv").write_text("\n".join(["store,day,amount,price", *sales]))
    write_kaldi(checkout)
    write_arrays(checkout)


def write_kaldi(checkout: Path) -> None:
    for name in ("data/train", "exp"):
        (checkout / name).mkdir(parents=True)
    features = {tag: binary(np.zeros((100, 3), np.float32)) for tag in "abc"}
    labels = {tag: binary(np.arange(34 + place)) for place, tag in enumerate("ab")}  # one is too long, one is missing
    write_table(checkout / "data/train/feats.scp", write_ark(checkout / "data/train/feats.ark", features))
    write_table(checkout / "data/train/utt2spk", dict.fromkeys("abc", "ann"))
    write_table(checkout / "exp/ali.scp", write_ark(checkout / "exp/ali.ark", labels))


def write_arrays(checkout: Path) -> None:
    for name in ("features", "records"):
        (checkout / name).mkdir()
    for place, tag in enumerate("abc"):
        frames = np.zeros((70 + place, 8), np.float32)
        np.savez(checkout / f"features/{tag}.npz", data=frames, embedding=np.ones(4))
        named = {"utterance": [tag.encode()], "audio/features": frames.reshape(-1), "labels": np.arange(70 + place)}
        (checkout / f"records/{tag}.tfrecord").write_bytes(record(example(named)))
    pyarrow.parquet.write_table(
        pyarrow.table({"id": ["b", "a"], "classes": [[1] * 71, [2] * 70]}), checkout / "labels.parquet"
    )


SAMPLES = sorted(path.stem for path in (ROOT / "sample_configs").glob("*.yaml"))


def test_a_sample_of_each_reader() -> None:
    texts = [(ROOT / "sample_configs" / f"{name}.yaml").read_text(encoding="utf-8") for name in SAMPLES]
    assert {kind for text in texts for kind in re.findall(r"^  type: (\w+)$", text, re.M)} == set(BUILT_IN)


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_configurations(checkout: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write_inputs(checkout)
    monkeypatch.chdir(checkout)
    for command in (["chunk", f"sample_configs/{name}.yaml", "--workers", "1"], ["verify", f"shards/{name}"]):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert not ended.value.code
    assert f"seqprep chunk sample_configs/{name}.yaml" in (ROOT / "sample_configs" / f"{name}.yaml").read_text(
        encoding="utf-8"
    )


def test_files_of_returnn_keep_values_tags_and_lengths(shared_data: Path, tmp_path: Path) -> None:
    for name, keys in (("simple_dense_classes", {"data": {}, "classes": {}}), ("simple_sparse", {"data": {}}),
                       ("simple_dense_subsampled", {"data": {}, "phon": {"rate": 3}})):  # fmt: skip
        path = shared_data / "returnn" / f"{name}.hdf"
        for format in ("hdf5", "tfrecord"):
            out = tmp_path / f"{name}-{format}"
            seqprep.chunk({"source": {"type": "hdf5", "path": str(path)}, "keys": keys, "batch": {"max_sequences": 5},
                           "chunk": {"size": 12, "step": 6}, "output": {"path": str(out), "format": format}})  # fmt: skip
            with h5py.File(path) as file, seqprep.Loader(out) as loader:
                lengths, tags = file["seqLengths"][...], [tag.decode() for tag in file["seqTags"]]
                data = {"data": file["inputs"][...]} | {
                    key: values[...] for key, values in file.get("targets/data", {}).items()
                }
                seen = set()
                for batch in loader:
                    for row, sequence in enumerate(batch["seq_idx"].tolist()):
                        assert batch["seq_tag"][row] == tags[sequence]
                        for column, key in enumerate(keys):
                            first = lengths[:sequence, column].sum() + batch[f"{key}/start"][row]
                            size = batch[f"{key}/size0"][row]
                            assert batch[f"{key}/length"][row] == lengths[sequence, column]
                            np.testing.assert_array_equal(batch[key][row, :size], data[key][first : first + size])
                            seen |= {(key, place) for place in range(first, first + size)}
                assert len(seen) == sum(len(data[key]) for key in keys)
