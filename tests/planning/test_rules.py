from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.config import Config, load_config
from seqprep.config.document import parse_document
from seqprep.errors import ConfigError
from seqprep.planning import ChunkRule, KeyRule, Rules, resolve
from seqprep.types import KeySpec
from tests.examples import examples

SPECS = {
    "data": KeySpec(dtype="float32", shape=(40,)),
    "classes": KeySpec(dtype="int32"),
    "speaker": KeySpec(dtype="float32", shape=(8,), has_time=False),
}
REST = "source: {type: hdf5}\nbatch: {max_sequences: 4}\noutput: {path: out}\n"


def config(text: str) -> Config:
    """Settings as from a file; `text` begins on line 1."""
    defaults = [line for line in REST.splitlines(keepends=True) if line.partition(":")[0] + ":" not in text]
    return load_config(parse_document(text + "".join(defaults), "config.yaml"))


def rules(text: str, specs: dict[str, KeySpec] = SPECS) -> Rules:
    return resolve(config(text), specs)[0]


def test_everything_at_its_default() -> None:
    found, stored = resolve(config(""), SPECS)
    assert found == Rules(
        keys=(KeyRule(name="data", frame_bytes=160), KeyRule(name="classes", frame_bytes=4)),
        row_bytes=32,
        max_sequences=4,
    )
    assert list(stored.items()) == list(SPECS.items())


def test_one_number_is_for_all_keys_by_their_rates() -> None:
    found = rules(
        "keys:\n  data:\n    dtype: float16\n  classes: {rate: 3, align: floor}\n"
        "chunk: {size: 12, step: 6, min_size: 3}\ncontext: {left: 5, right: 2, pad: edge}\n"
        "batch: {max_frames: 500}\norder: {by: random, seed: 9}\noutput: {path: o, shard_size: 2kB}\n"
    )
    data, classes = found.keys
    assert data.chunk == ChunkRule(size_frames=12, step_frames=6, min_size_frames=3)
    assert classes.chunk == ChunkRule(size_frames=4, step_frames=2, min_size_frames=1)
    assert (data.left_frames, data.right_frames, data.pad) == (5, 2, "edge")
    assert (classes.left_frames, classes.right_frames) == (0, 0)
    assert (data.max_frames, classes.max_frames) == (500, 500)
    assert (data.frame_bytes, classes.frame_bytes) == (80, 4)
    assert (classes.rate, classes.align) == (3, "floor")
    assert (found.order, found.seed, found.shard_bytes) == ("random", 9, 2000)
    assert found.row_bytes == 0  # `keys` names those that are stored


def test_numbers_per_key() -> None:
    data, classes = rules(
        "keys: {data: {}, classes: {rate: 2}}\n"
        "chunk: {size: {data: 14, classes: 8}, step: {data: 20, classes: 10}, min_size: {classes: 1}}\n"
        "context: {classes: {left: 1}, data: {right: 3}}\nbatch: {max_frames: {classes: 30}}\n"
    ).keys
    assert data.chunk == ChunkRule(size_frames=14, step_frames=20, min_size_frames=0)
    assert classes.chunk == ChunkRule(size_frames=8, step_frames=10, min_size_frames=1)
    assert (data.left_frames, data.right_frames, classes.left_frames, classes.right_frames) == (0, 3, 1, 0)
    assert (data.max_frames, classes.max_frames) == (None, 30)


def test_the_step_is_the_size_unless_told() -> None:
    assert rules("chunk: {size: 7}\n").input.chunk == ChunkRule(size_frames=7, step_frames=7)
    assert rules("chunk: {size: {data: 7, classes: 7}}\n").input.chunk == ChunkRule(size_frames=7, step_frames=7)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["data", "classes", "speaker"]),
        ("keys: {classes: {}, data: {}}\n", ["classes", "data"]),
        ("keys: {speaker: {}, classes: {}, data: {}}\n", ["classes", "data", "speaker"]),
        ("keys: {data: {}, speaker: {}, classes: {input: true}}\n", ["classes", "data", "speaker"]),
        ("keys: {data: {}}\n", ["data"]),
    ],
)
def test_the_input_key_and_the_stored_keys(text: str, expected: list[str]) -> None:
    found, stored = resolve(config(text), SPECS)
    assert list(stored) == expected
    assert found.input.name == expected[0]


@pytest.mark.parametrize("dtype", ["float16", "float64", ">f4", "single"])
def test_floats_become_other_floats(dtype: str) -> None:
    _, stored = resolve(config(f"keys: {{data: {{dtype: '{dtype}'}}}}\n"), SPECS)
    assert stored["data"].dtype in ("float16", "float32", "float64")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("keys:\n  dat: {}\n", "config.yaml:2: keys.dat: the source has no key 'dat'; did you mean 'data'?"),
        (
            "keys:\n  xyz: {}\n",
            "config.yaml:2: keys.xyz: the source has no key 'xyz'; known are: classes, data, speaker",
        ),
        (
            "keys:\n  data:\n    rate: 2\n",
            "config.yaml:3: keys.data.rate is 2: the input key's rate is 1 by definition; remove it",
        ),
        (
            "keys: {data: {}, classes: {rate: 3}}\nchunk:\n  size: 50\n",
            "config.yaml:3: chunk.size is 50, which the rate 3 of key 'classes' doesn't divide; "
            "use 48 or 51, or give it per key",
        ),
        (
            "keys: {data: {}, classes: {rate: 3}}\nchunk:\n  size: 51\n  step: 25\n",
            "config.yaml:4: chunk.step is 25, which the rate 3 of key 'classes' doesn't divide; "
            "use 24 or 27, or give it per key",
        ),
        (
            "keys: {data: {}, classes: {rate: 3}}\nchunk:\n  size: 51\n  min_size: 4\n",
            "config.yaml:4: chunk.min_size is 4, which the rate 3 of key 'classes' doesn't divide; "
            "use 3 or 6, or give it per key",
        ),
        (
            "chunk:\n  size: 8\n  step: {data: 4, classes: 2}\n",
            "config.yaml:3: chunk.step is 4 for 'data' and 2 for 'classes' at rate 1, so their chunks would drift "
            "apart; give both the same",
        ),
        (
            "keys: {data: {}, classes: {rate: 2}}\nchunk:\n  size: 8\n  step:\n    data: 4\n    classes: 3\n",
            "config.yaml:6: chunk.step is 4 for 'data' and 3 for 'classes' at rate 2, so their chunks would drift "
            "apart; give 'data' 6",
        ),
        (
            "chunk:\n  size: {data: 8}\n",
            "config.yaml:2: chunk.size is for data alone, so key 'classes' has none; add chunk.size.classes, or give one "
            "number for all",
        ),
        (
            "chunk:\n  size: 8\n  step: {data: 8}\n",
            "config.yaml:3: chunk.step is for data alone, so key 'classes' has none; add chunk.step.classes, or give one "
            "number for all",
        ),
        (
            "chunk:\n  size:\n    dta: 8\n    classes: 8\n",
            "config.yaml:3: chunk.size.dta: 'dta' is not a stored key; did you mean 'data'?",
        ),
        (
            "chunk:\n  size: 8\n  min_size: {classs: 8}\n",
            "config.yaml:3: chunk.min_size.classs: 'classs' is not a stored key; did you mean 'classes'?",
        ),
        (
            "batch:\n  max_frames:\n    dota: 8\n",
            "config.yaml:3: batch.max_frames.dota: 'dota' is not a stored key; did you mean 'data'?",
        ),
        (
            "keys: {data: {}}\ncontext:\n  classes: {left: 8}\n",
            "config.yaml:3: context.classes: 'classes' is not a stored key; known are: data",
        ),
        ("context:\n  speaker: {left: 8}\n", "config.yaml:2: context.speaker: 'speaker' has no time axis"),
        (
            "keys:\n  data:\n    dtype: int16\n",
            "config.yaml:3: keys.data.dtype is 'int16', but the source holds float32, which it can't stand for",
        ),
        ("keys:\n  data:\n    dtype: object\n", "config.yaml:3: keys.data.dtype is 'object', but the source holds"),
        ("keys:\n  data:\n    dtype: bool\n", "config.yaml:3: keys.data.dtype is 'bool', but the source holds"),
        (
            "keys:\n  data:\n    dtype: flaot16\n",
            "config.yaml:3: keys.data.dtype is 'flaot16', which numpy doesn't know; use one such as float16 or int32",
        ),
        ("keys:\n  data:\n    dtype: 'f4,,'\n", "config.yaml:3: keys.data.dtype is 'f4,,', which numpy doesn't know"),
        (
            "order: {by: source}\nkeys:\n  speaker: {}\n",
            "config.yaml:2: no key has a time axis, so there is nothing to cut; choose an input key with one",
        ),
        (
            "keys:\n  data: {}\n  speaker: {input: true}\n",
            "config.yaml:3: key 'speaker' has no time axis, so there is nothing to cut; choose an input key with one",
        ),
        (
            "keys:\n  data: {input: true}\n  classes:\n    input: true\n",
            "config.yaml:4: keys data and classes are both marked input; mark one",
        ),
        # labels in float16 would be other labels from 2049 on, without a word
        ("keys:\n  data: {}\n  classes: {dtype: float16}\n", "config.yaml:3: keys.classes.dtype is 'float16', but"),
        # no format can store it
        ("keys:\n  data: {dtype: longdouble}\n", "config.yaml:2: keys.data.dtype is 'longdouble', but"),
        ("keys:\n  data: {}\n  classes: {pad_value: 0.5}\n", "config.yaml:3: keys.classes.pad_value is 0.5"),
        ("keys:\n  data: {}\n  classes: {pad_value: .nan}\n", "config.yaml:3: keys.classes.pad_value is nan"),
        ("keys:\n  data: {}\n  classes: {dtype: int8, pad_value: 300}\n", "keys.classes.pad_value is 300.0"),
        (
            "keys:\n  data: {dtype: float16, pad_value: 1.0e+5}\n",
            "config.yaml:2: keys.data.pad_value is 100000.0, which float16 can't hold; use a number up to 65504",
        ),
        (
            "keys:\n  data: {pad_value: -1.0e+300}\n",
            "config.yaml:2: keys.data.pad_value is -1e+300, which float32 can't",
        ),
        (
            "keys: {data: {}, classes: {}}\ncontext:\n  classes: {left: 1, pad: 0.5}\n",
            "config.yaml:3: context.classes.pad is 0.5, which int32 can't hold; use a whole number from",
        ),
        (
            "keys: {data: {dtype: float16}}\ncontext: {left: 1, pad: {constant: 70000}}\n",
            "config.yaml:2: context.pad is 70000.0, which float16 can't hold; use a number up to 65504",
        ),
        # what would have no effect
        (
            "keys:\n  data: {}\n  speaker: {rate: 2}\n",
            "config.yaml:3: keys.speaker.rate is 2, but 'speaker' has no time axis, so that has no effect; remove it",
        ),
        (
            "keys: {data: {}, speaker: {rate: null}}\n",
            "config.yaml:1: keys.speaker.rate is null, but 'speaker' has no time",
        ),
        (
            "keys: {data: {}, speaker: {align: floor}}\n",
            "config.yaml:1: keys.speaker.align is floor, but 'speaker' has no",
        ),
        (
            "keys: {data: {}, speaker: {tolerance: 1}}\n",
            "config.yaml:1: keys.speaker.tolerance is 1, but 'speaker' has no",
        ),
        ("keys: {data: {}, speaker: {on_mismatch: pad}}\n", "config.yaml:1: keys.speaker.on_mismatch is pad, but"),
        ("keys: {data: {}, speaker: {frame_rate: 5}}\n", "config.yaml:1: keys.speaker.frame_rate is 5, but 'speaker'"),
        (
            "keys: {data: {}, speaker: {tolerance: 1}}\n",
            "config.yaml:1: keys.speaker.tolerance is 1, but 'speaker' has",
        ),
        (
            "keys: {data: {align: floor}}\n",
            "config.yaml:1: keys.data.align is floor: other keys are aligned to the input key, which is this; set it for them",
        ),
        (
            "keys: {data: {}, classes: {tolerance: 2}}\n",
            "config.yaml:1: keys.classes.tolerance is 2: on_mismatch is error, so nothing is tolerated; set "
            "keys.classes.on_mismatch to trim, pad or drop",
        ),
        (
            "keys: {data: {}, classes: {on_mismatch: trim}}\n",
            "config.yaml:1: keys.classes.on_mismatch is trim: the tolerance is 0, so nothing is within it; set "
            "keys.classes.tolerance",
        ),
        (
            "keys: {data: {}, classes: {rate: null, align: floor}}\n",
            "config.yaml:1: keys.classes.align is floor: rate is null, a time axis of its own, so the key isn't aligned",
        ),
        (
            "keys: {data: {}, classes: {rate: null}}\nchunk: {size: 5}\n",
            "config.yaml:1: keys.classes.rate is null: a key with a time axis of its own can't be cut with the others; "
            "set chunk.size to null",
        ),
        ("keys: {classes: {rate: null}}\n", "config.yaml:1: keys.classes.rate is null: the input key's rate is 1 by"),
        (
            "keys: {data: {}, classes: {rate: 3}}\nchunk:\n  size: 6\n  step: 3\n  jitter: true\n",
            "config.yaml:5: chunk.jitter is true, but offsets are multiples of 3 below the step, which is 3, so there is "
            "no other than 0; make chunk.step larger",
        ),
        (
            "context:\n  left: 5\n  pad: clip\n",
            "config.yaml:3: context.pad is 'clip', but chunk.size is null: whole sequences have no neighbours, and all "
            "their context lies outside; pad it otherwise",
        ),
        (
            "context:\n  data: {left: 5, left_initial: 0}\n",
            "config.yaml:2: context.data.left_initial is 0, but chunk.size is null: whole sequences have no neighbours, "
            "and all their context lies outside; set left",
        ),
    ],
)
def test_errors_name_place_setting_value_and_remedy(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}" if message.startswith("c") else re.escape(message)):
        rules(text)


def test_a_number_below_the_rate_is_not_sent_to_the_same_number_twice() -> None:
    with pytest.raises(ConfigError, match=r"chunk\.size is 2, .*; use 3, or give it per key"):
        rules("keys: {data: {}, classes: {rate: 3}}\nchunk: {size: 2}\n")
    with pytest.raises(ConfigError, match=r"chunk\.min_size is 2, .*; use 0 or 3, or give it per key"):
        rules("keys: {data: {}, classes: {rate: 3}}\nchunk: {size: 6, min_size: 2}\n")


def test_rates_that_are_whole_together_only_beyond_any_row() -> None:
    message = (
        r"^config\.yaml:1: keys\.\*\.rate: the rates of 'classes' \(65537\), 'more' \(65539\) are whole together only every "
        r"4295229443 frames, which is more than a row may have; correct them, or store fewer keys together$"
    )
    with pytest.raises(ConfigError, match=message):
        rules("keys: {data: {}, classes: {rate: 65537}, more: {rate: 65539}}\n", {**SPECS, "more": SPECS["classes"]})


def test_chunks_tails_and_context() -> None:
    found = rules(
        "chunk: {size: 12, step: 6, tail: shift, stop_when_covered: true, jitter: true}\n"
        "context: {data: {left: 5, left_initial: 0, right_final: 2, pad: {constant: 3}}, classes: {left: 1, pad: reflect}}\n"
    )
    data, classes = found.keys
    assert (found.tail, found.stop_when_covered, found.jitter) == ("shift", True, True)
    assert (data.left_frames, data.left_initial_frames, data.right_final_frames) == (5, 0, 2)
    assert (data.pad, data.pad_constant) == ("constant", 3.0)
    assert (classes.pad, classes.left_initial_frames, classes.right_final_frames) == ("reflect", None, None)


def test_alignment_of_keys() -> None:
    specs = {"text": KeySpec(dtype="uint8"), **SPECS}
    found = rules("keys: {text: {rate: null}, data: {}, classes: {rate: 2, tolerance: 4, on_mismatch: pad}}\n", specs)
    data, text, classes = found.keys
    assert (data.name, data.rate) == ("data", 1)  # a key with a time of its own isn't the input key unless it is marked
    assert (text.name, text.rate, text.chunk) == ("text", None, None)
    assert (classes.tolerance_frames, classes.on_mismatch) == (4, "pad")


@pytest.mark.parametrize(("rates", "grid"), [((), 1), ((3,), 3), ((4, 6), 12), ((2, 3, 4), 12)])
def test_the_grid_is_the_least_common_multiple(rates: tuple[int, ...], grid: int) -> None:
    keys = [
        KeyRule(name="data"),
        *(KeyRule(name=f"k{rate}", rate=rate) for rate in rates),
        KeyRule(name="x", rate=None),
    ]
    assert Rules(keys=tuple(keys)).grid_frames == grid


RATES = {"data": Fraction(100)}


def timed(text: str, rates: dict[str, Fraction] = RATES) -> Rules:
    return resolve(config(text), SPECS, rates)[0]


def test_seconds_become_frames() -> None:
    found = timed(
        "keys: {data: {}, classes: {rate: 4, tolerance: 80ms, on_mismatch: trim}}\n"
        "chunk: {size: 0.4s, step: {data: 200ms, classes: 5}, min_size: 40ms}\n"
        "context: {data: {left: 50ms, right: 20000us, left_initial: 0s}, classes: {right: 40ms}}\n"
        "batch: {max_frames: 1min}\n"
    )
    data, classes = found.keys
    assert data.chunk == ChunkRule(size_frames=40, step_frames=20, min_size_frames=4)
    assert classes.chunk == ChunkRule(size_frames=10, step_frames=5, min_size_frames=1)
    assert (data.left_frames, data.right_frames, data.left_initial_frames) == (5, 2, 0)
    assert (classes.right_frames, classes.tolerance_frames) == (1, 2)
    assert (data.max_frames, classes.max_frames) == (6000, 1500)


@pytest.mark.parametrize("rate", ["100", "100.0", "'2205/22.05'", "'200/2'"])
def test_the_frame_rate_may_be_set(rate: str) -> None:
    if "." in rate and "/" in rate:
        with pytest.raises(
            ConfigError, match=r"^config.yaml:1: keys.data.frame_rate is '2205/22.05': it has to be frames"
        ):
            timed(f"keys: {{data: {{frame_rate: {rate}}}}}\nchunk: {{size: 0.5s}}\n", {})
        return
    found = timed(f"keys: {{data: {{frame_rate: {rate}}}}}\nchunk: {{size: 0.5s}}\n", {})
    assert found.input.chunk == ChunkRule(size_frames=50, step_frames=50)


def test_a_set_frame_rate_beats_the_sources() -> None:
    found = timed("keys: {data: {frame_rate: 50}}\nchunk: {size: 0.5s}\n")
    assert found.input.chunk == ChunkRule(size_frames=25, step_frames=25)
    rates = {"classes": Fraction(8), **RATES}
    assert timed("batch: {max_frames: {classes: 2s}}\n", rates).keys[1].max_frames == 16


@given(st.integers(1, 10**6), st.fractions(Fraction(1, 1000), 1000, max_denominator=1000), st.sampled_from(["ms", "s"]))
@settings(max_examples=examples(100), deadline=None)
def test_seconds_are_whole_frames_or_an_error(number: int, rate: Fraction, unit: str) -> None:
    frames = number * rate / (1000 if unit == "ms" else 1)
    text = f"chunk: {{size: {number}{unit}}}\n"
    if frames.denominator == 1:
        assert timed(text, {"data": rate}).input.chunk.size_frames == frames
    else:
        nearest = {max(int(frames), 1), int(frames) + 1}
        with pytest.raises(
            ConfigError, match=r"chunk\.size is .*s: .* frames of 'data' at .* per second; use"
        ) as error:
            timed(text, {"data": rate})
        assert {int(found) for found in re.findall(r"(\d+) \(", str(error.value).partition("; use")[2])} == nearest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "chunk:\n  size: 255ms\n",
            "config.yaml:2: chunk.size is 0.255s: 25.5 frames of 'data' at 100 per second; use 25 (0.25s) or 26 (0.26s)",
        ),
        (
            "chunk: {size: 5, step: 0s}\n",
            "config.yaml:1: chunk.step is 0s: 0 frames of 'data' at 100 per second; use 1",
        ),
        (
            "context: {classes: {left: 15ms}}\n",
            "config.yaml:1: context.classes.left is 0.015s: 1.5 frames of 'classes' at 100 per second; use 1 (0.01s) or 2",
        ),
        (
            "chunk: {size: 999999999999999s}\n",
            "config.yaml:1: chunk.size is 999999999999999s: 99999999999999900 frames of 'data' at 100 per second; use "
            "9007199254740992 (9.0072e+13s)",
        ),
        (
            "context: {left: 1us, right: 99999999s}\n",
            "config.yaml:1: context.left is 0.000001s: 0.0001 frames of 'data' at 100 per second; use 0 (0s) or 1 (0.01s)",
        ),
        (
            "context: {right: 99999999s}\n",
            "config.yaml:1: context.right is 99999999s: 9999999900 frames of 'data' at 100 per second; use 2147483647 (2.14748e+07s)",
        ),
        (
            "keys: {data: {}, classes: {rate: 3}}\nchunk: {size: 0.5s}\n",
            "config.yaml:2: chunk.size is 50, which the rate 3 of key 'classes' doesn't divide; use 48 or 51",
        ),
        (
            "keys: {data: {}, classes: {rate: null}}\ncontext: {classes: {left: 1s}}\n",
            "config.yaml:2: context.classes.left is 1s, but the source doesn't say how many frames of 'classes' make a "
            "second; set keys.classes.frame_rate, or give frames",
        ),
        (
            "keys: {data: {}, classes: {rate: 2, frame_rate: 100}}\n",
            "config.yaml:1: keys.classes.frame_rate is 100, but 'data' has 100 frames per second and the rate of 'classes' "
            "is 2; correct one of them",
        ),
    ],
)
def test_durations_that_are_not_whole(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        timed(text)


def test_the_documentations_settings() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")
    found = re.findall(r"```yaml\n(.*?)```", text.partition("## Batches")[0], re.S)
    assert len(found) == 2
    assert timed(found[0]).input.chunk == ChunkRule(size_frames=50, step_frames=25)
    assert timed(found[1]).keys[1].on_mismatch == "trim"
    with pytest.raises(ConfigError) as error:
        timed("chunk: {size: 0.255s}\n")
    assert str(error.value).partition(": ")[2] in text


def test_ragged_keys() -> None:
    specs = {"data": SPECS["data"], "boxes": KeySpec(dtype="float32", shape=(2, None, 3)), "text": KeySpec(dtype="uint8", shape=(None,), has_time=False)}  # fmt: skip
    found, stored = resolve(config("keys: {data: {}, boxes: {dtype: float16}}\n"), specs)
    assert found.keys[1].frame_bytes == 2 * 3 * 2  # times the sequence's own size
    assert stored["boxes"] == KeySpec(dtype="float16", shape=(2, None, 3))
    with pytest.raises(
        ConfigError, match=r"^config.yaml: the source's key 'text' has an axis of varying size but no time"
    ):
        rules("", specs)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_integers_become_other_integers(dtype: str) -> None:
    """What doesn't fit is found when it is read."""
    _, stored = resolve(config(f"keys: {{data: {{}}, classes: {{dtype: {dtype}}}}}\n"), SPECS)
    assert stored["classes"].dtype == dtype


@pytest.mark.parametrize("value", [".nan", ".inf", "-1", "0.5"])
def test_floats_are_padded_with_any_value_that_they_hold(value: str) -> None:
    assert rules(f"keys: {{data: {{dtype: float16, pad_value: {value}}}}}\n").input.name == "data"


@pytest.mark.parametrize("name", ["seq_idx", "seq_tag", "batches", "rows", "data/size0", ".", "..", ""])
def test_reserved_names(name: str) -> None:
    specs: dict[str, Any] = {"data": SPECS["data"], name: SPECS["classes"]}
    with pytest.raises(ConfigError, match=rf"the source's key '{re.escape(name)}' has a name that batches can't use"):
        rules("", specs)


def test_a_reserved_name_that_isnt_stored_is_no_matter() -> None:
    specs = {"data": SPECS["data"], "rows": SPECS["classes"]}
    assert [key.name for key in rules("keys: {data: {}}\n", specs).keys] == ["data"]


def test_a_source_without_time() -> None:
    with pytest.raises(ConfigError, match=r"^config\.yaml: no key has a time axis"):
        rules("", {"speaker": SPECS["speaker"]})
    with pytest.raises(ConfigError, match=r"^config\.yaml: no key has a time axis"):
        rules("", {})
