from __future__ import annotations

import copy
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from seqprep.config import Config, load_config, parse_assignment, read_document
from seqprep.config.document import parse_document
from seqprep.config.units import format_bytes, format_seconds, parse_bytes, parse_seconds
from seqprep.config.validation import suggestion
from seqprep.errors import ConfigError
from tests.examples import examples

BASE: dict[str, Any] = {
    "source": {"type": "hdf5", "path": "corpus/*.hdf"},
    "batch": {"max_frames": 5000, "max_sequences": 40},
    "output": {"path": "shards/train"},
}
REST = "source: {type: hdf5}\nbatch: {max_sequences: 4}\noutput: {path: out}\n"
thorough = settings(max_examples=examples(200), deadline=None)


def config(**sections: Any) -> Config:
    return load_config({**copy.deepcopy(BASE), **sections})


def from_yaml(text: str) -> Config:
    """Settings as from a file; `text` begins on line 1, what it lacks comes behind."""
    sections = [line.partition(":")[0] for line in text.splitlines() if line[:1].strip()]
    rest = [line for line in REST.splitlines(keepends=True) if line.partition(":")[0] not in sections]
    return load_config(parse_document(text + "".join(rest), "config.yaml"))


class TestDocument:
    def test_every_setting_knows_its_line(self) -> None:
        document = parse_document("# first\na: 1\nb:\n  c: 2\n  d: [3,\n      {e: 4}]\n", "some.yaml")
        assert document.data == {"a": 1, "b": {"c": 2, "d": [3, {"e": 4}]}}
        assert document.origins == {
            ("a",): "some.yaml:2",
            ("b",): "some.yaml:3",
            ("b", "c"): "some.yaml:4",
            ("b", "d"): "some.yaml:5",
            ("b", "d", 0): "some.yaml:5",
            ("b", "d", 1): "some.yaml:6",
            ("b", "d", 1, "e"): "some.yaml:6",
        }

    def test_an_absent_setting_stands_where_its_section_does(self) -> None:
        document = parse_document("a:\n  b: 1\n", "some.yaml")
        assert document.where(("a", "b")) == "some.yaml:2"
        assert document.where(("a", "c", "d")) == "some.yaml:1"
        assert document.where(("z",)) == "some.yaml"
        assert document.where(()) == "some.yaml"

    def test_merged_settings_stand_where_they_are_merged(self) -> None:
        document = parse_document("base: &base {x: 1, y: 2}\nb:\n  <<: *base\n  y: 3\n", "some.yaml")
        assert document.data["b"] == {"x": 1, "y": 3}
        assert document.where(("b", "x")) == "some.yaml:2"
        assert document.where(("b", "y")) == "some.yaml:4"

    @pytest.mark.parametrize(
        "text",
        ["", "\n\n", "# only a comment\n", "\ufeff# with a byte order mark\n", "---\n", "---\n# none\n", "null\n"],
    )
    def test_an_empty_file_has_no_settings(self, text: str) -> None:
        assert parse_document(text).data == {}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a: 1\nb: 2\na: 3\n", "c.yaml:3: a is set twice, first on line 1; keep one of them"),
            ("a:\n  b: 1\n  c: 2\n  b: 1\n", "c.yaml:4: a.b is set twice, first on line 2; keep one of them"),
            ("a: [{b: 1, b: 2}]\n", "c.yaml:1: a.0.b is set twice, first on line 1; keep one of them"),
            ("# c\n- a\n- b\n", "c.yaml:2: settings have to be a mapping, such as 'chunk: {size: 50}'"),
            ("5\n", "c.yaml:1: settings have to be a mapping"),
            ("a: 1\nb: [\n", "not valid YAML: expected the node content"),
            ("a: 1\n b: 2\n", "c.yaml:2: not valid YAML: mapping values are not allowed here"),
            ("a: 1\n\tb: 2\n", "c.yaml:2: not valid YAML: found character '\\t'"),
            ("a: @b\n", "c.yaml:1: not valid YAML: found character '@'"),
            ("a: *b\n", "c.yaml:1: not valid YAML: found undefined alias 'b'"),
            ("a: 1\n---\nb: 2\n", "c.yaml:2: not valid YAML: but found another document"),
            ("a: !!python/object:os.system x\n", "c.yaml:1: not valid YAML: could not determine a constructor"),
            ("a: 'x\n", "not valid YAML: found unexpected end of stream"),
            # what the YAML library lets through as errors of its own making
            ("a: 1\n? [b]\n: 2\n", "c.yaml:2: the name of a setting is a list or mapping; use plain text"),
            ("a: {{b: 1}: 2}\n", "c.yaml:1: the name of a setting is a list or mapping; use plain text"),
            ("a: 2024-13-45\n", "c.yaml: not valid YAML: month must be in 1..12"),
            ("a: !!int x\n", "c.yaml: not valid YAML: invalid literal for int()"),
            ("a: &x [*x]\n", "c.yaml:1: settings are nested more than 50 deep, or refer to themselves"),
            ("a: \x01\n", "c.yaml: not valid YAML: unacceptable character #x0001"),
        ],
    )
    def test_what_is_no_settings_is_said_with_its_line(self, text: str, message: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(message)):
            parse_document(text, "c.yaml")

    def test_reading_files(self, tmp_path: Path) -> None:
        path = tmp_path / "c.yaml"
        path.write_text("chunk:\n  size: 50  # Größe\n", encoding="utf-8")
        document = read_document(path)
        assert document.data == {"chunk": {"size": 50}}
        assert document.where(("chunk", "size")) == f"{path}:2"

    def test_files_that_cant_be_read(self, tmp_path: Path) -> None:
        missing = tmp_path / "no.yaml"
        with pytest.raises(
            ConfigError, match=rf"^{re.escape(str(missing))}: no such configuration file; check the path"
        ):
            read_document(missing)
        with pytest.raises(ConfigError, match=r"can't be read as a configuration file: .*directory"):
            read_document(tmp_path)
        latin = tmp_path / "latin.yaml"
        latin.write_bytes("a: Größe\n".encode("latin-1"))
        with pytest.raises(ConfigError, match=r"latin\.yaml: can't be read as a configuration file: .*utf-8"):
            read_document(latin)


class TestOverrides:
    def test_a_setting_replaces_what_was_below_it(self) -> None:
        document = parse_document("a:\n  b: {c: 1}\n  d: 2\n", "c.yaml")
        document.set(("a", "b"), 5, "--flag")
        assert document.data == {"a": {"b": 5, "d": 2}}
        assert document.where(("a", "b")) == document.where(("a", "b", "c")) == "--flag"
        assert document.where(("a", "d")) == "c.yaml:3"

    @pytest.mark.parametrize("text", ["", "chunk:\n", "chunk: null\n", "chunk: {}\n"])
    def test_sections_on_the_way_are_made_null_ones_too(self, text: str) -> None:
        document = parse_document(text)
        document.set(("chunk", "size"), 50, "--chunk-size")
        document.set(("keys", "data", "dtype"), "float16", "--set")
        assert document.data == {"chunk": {"size": 50}, "keys": {"data": {"dtype": "float16"}}}
        assert document.where(("chunk", "size")) == "--chunk-size"

    def test_a_plain_value_is_no_section(self) -> None:
        document = parse_document("context: 5\nkeys: {data: {rate: 2}}\n")
        message = r"^--context-left: context is 5, not a section, so context\.left can't be set in it"
        with pytest.raises(ConfigError, match=message):
            document.set(("context", "left"), 1, "--context-left")
        with pytest.raises(ConfigError, match=r"keys\.data\.rate is 2, not a section, so keys\.data\.rate\.x can't"):
            document.set(("keys", "data", "rate", "x"), 1, "--set")

    def test_errors_name_the_flag(self) -> None:
        document = parse_document(REST, "c.yaml")
        document.set(("chunk", "size"), 0, "--chunk-size")
        document.set(("chnk", "size"), 0, "--set chnk.size=0")
        message = (
            r"^--chunk-size: chunk\.size is 0: it has to be at least 1\n"
            r"--set chnk\.size=0: chnk is not a setting; did you mean 'chunk'\?$"
        )
        with pytest.raises(ConfigError, match=message):
            load_config(document)

    @pytest.mark.parametrize(
        ("text", "path", "value"),
        [
            ("chunk.size=50", ("chunk", "size"), 50),
            ("chunk.size = 50", ("chunk", "size"), 50),
            ("chunk=null", ("chunk",), None),
            ("chunk=", ("chunk",), None),
            ("output.path=a=b", ("output", "path"), "a=b"),
            ("output.path='5'", ("output", "path"), "5"),
            ("batch.max_frames={data: 3, classes: 4}", ("batch", "max_frames"), {"data": 3, "classes": 4}),
            ("source.path=[a, b]", ("source", "path"), ["a", "b"]),
            ("keys.data.pad_value=-1.5", ("keys", "data", "pad_value"), -1.5),
            ("chunk.size=0.5s", ("chunk", "size"), "0.5s"),
        ],
    )
    def test_assignments(self, text: str, path: tuple[str, ...], value: Any) -> None:
        assert parse_assignment(text) == (path, value)

    @pytest.mark.parametrize("text", ["chunk.size", "", "=5", "chunk..size=5", ".size=5", "chunk.=5"])
    def test_what_is_no_assignment(self, text: str) -> None:
        with pytest.raises(
            ConfigError, match=rf"^--set {re.escape(text)}: expected key\.path=value, such as --set chunk"
        ):
            parse_assignment(text)

    @pytest.mark.parametrize("value", ["@x", "[1", "{a: b: c}", "'x", "2024-13-45", "!!int x", "\x01"])
    def test_assignments_of_no_value(self, value: str) -> None:
        with pytest.raises(ConfigError, match=r"^--set a=.*: the value isn't valid YAML; quote it if"):
            parse_assignment(f"a={value}")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("x={b: 1, b: 2}", "--set x={b: 1, b: 2}: x.b is set twice; keep one of them"),
            ("x.y={b: {c: 1, c: 2}}", "--set x.y={b: {c: 1, c: 2}}: x.y.b.c is set twice; keep one of them"),
            ("x={[a]: 1}", "--set x={[a]: 1}: the name of a setting is a list or mapping; use plain text"),
            ("x=&a [*a]", "--set x=&a [*a]: settings are nested more than 50 deep, or refer to themselves"),
        ],
    )
    def test_assignments_are_held_to_the_rules_of_files(self, text: str, message: str) -> None:
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
            parse_assignment(text)


class TestConfig:
    def test_defaults(self) -> None:
        found = config()
        assert found.chunk.size is None
        assert found.chunk.min_size == {"": 0}
        assert found.chunk.tail == "keep"
        assert found.keys == {}
        assert found.context == {}
        assert (found.order.by, found.order.seed) == ("source", 0)
        assert (found.output.format, found.output.compression) == ("hdf5", "none")
        assert found.output.shard_size == 256_000_000

    def test_the_forms_of_numbers_per_key(self) -> None:
        assert config(chunk={"size": 50}).chunk.size == {"": 50}
        assert config(chunk={"size": {"data": 50, "classes": 10}}).chunk.size == {"data": 50, "classes": 10}
        assert config(batch={"max_frames": 9}).batch.max_frames == {"": 9}
        assert config(batch={"max_frames": {"data": 9}}).batch.max_frames == {"data": 9}

    def test_the_forms_of_context(self) -> None:
        both = config(context={"left": 5, "right": 5})
        assert config(context=5).context == both.context
        assert (both.context[""].left, both.context[""].right, both.context[""].pad) == (5, 5, "zero")
        per_key = config(context={"data": {"left": 1}, "classes": {"right": 2, "pad": "edge"}}).context
        assert (per_key["data"].left, per_key["classes"].right, per_key["classes"].pad) == (1, 2, "edge")
        assert config(context={}).context == config(context=None).context == {}
        assert config(context={"left": 0, "pad": "edge"}).context[""].pad == "edge"
        assert (
            config(context={"left": 1, "pad": {"constant": 3}}).context == config(context={"left": 1, "pad": 3}).context
        )
        assert config(context={"pad": {"left": 3}}).context["pad"].left == 3  # a key of that name
        assert config(context="50ms").context == config(context={"left": "0.05s", "right": "50ms"}).context

    @pytest.mark.parametrize(
        "chunk", [None, {}, {"size": None}, {"size": None, "step": None}, {"size": None, "min_size": 0, "tail": "keep"}]
    )
    def test_whole_sequences(self, chunk: Any) -> None:
        assert config(chunk=chunk).chunk.size is None

    def test_paths_mappings_and_documents_are_taken(self, tmp_path: Path) -> None:
        path = tmp_path / "c.yaml"
        path.write_text(REST)
        found = load_config(path)
        assert found == load_config(str(path)) == load_config(read_document(path))
        assert found.document.name == str(path)
        assert found.output.path == "out"

    def test_the_given_mapping_is_not_changed(self) -> None:
        given_settings = {**copy.deepcopy(BASE), "context": 5, "chunk": {"size": 3}}
        before = copy.deepcopy(given_settings)
        load_config(given_settings)
        assert given_settings == before

    def test_it_is_frozen(self) -> None:
        with pytest.raises(ValidationError, match="frozen"):
            config().order.seed = 5

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            # unknown names, on every level
            ("chnk:\n  size: 5\n", "config.yaml:1: chnk is not a setting; did you mean 'chunk'?"),
            ("chunk:\n  size: 5\n  stp: 5\n", "config.yaml:3: chunk.stp is not a setting; did you mean 'step'?"),
            ("batch:\n  max_frame: 5\n", "config.yaml:2: batch.max_frame is not a setting; did you mean 'max_frames'?"),
            ("order:\n  sed: 5\n", "config.yaml:2: order.sed is not a setting; did you mean 'seed'?"),
            ("order:\n  zzz: 5\n", "config.yaml:2: order.zzz is not a setting; known are: by, scope, seed"),
            ("output:\n  paht: x\n", "config.yaml:2: output.paht is not a setting; did you mean 'path'?"),
            ("context:\n  lft: 5\n", "config.yaml:2: context.lft is not a setting; did you mean 'left'?"),
            (
                "context:\n  data:\n    lft: 5\n",
                "config.yaml:3: context.data.lft is not a setting; did you mean 'left'?",
            ),
            ("keys:\n  data:\n    dtyp: x\n", "config.yaml:3: keys.data.dtyp is not a setting; did you mean 'dtype'?"),
            # one type for another
            ("chunk:\n  size: true\n", "config.yaml:2: chunk.size is True: it has to be a whole number of frames"),
            ("chunk:\n  size: 5.0\n", "config.yaml:2: chunk.size is 5.0: it has to be a whole number of frames"),
            ("chunk:\n  size: '5'\n", "config.yaml:2: chunk.size is '5': it has to be a whole number of frames"),
            ("chunk:\n  size: [5]\n", "config.yaml:2: chunk.size is [5]: it has to be a whole number of frames"),
            (
                "chunk:\n  size:\n    data: 2.5\n",
                "config.yaml:3: chunk.size.data is 2.5: it has to be a whole number of frames",
            ),
            (
                "chunk: {size: 5, min_size: true}\n",
                "config.yaml:1: chunk.min_size is True: it has to be a whole number of frames",
            ),
            (
                "batch:\n  max_sequences: 2.0\n",
                "config.yaml:2: batch.max_sequences is 2.0: it has to be a valid integer",
            ),
            (
                "batch:\n  max_frames: yes\n",
                "config.yaml:2: batch.max_frames is True: it has to be a whole number of frames",
            ),
            ("order:\n  seed: 1.0\n", "config.yaml:2: order.seed is 1.0: it has to be a valid integer"),
            ("order:\n  seed: false\n", "config.yaml:2: order.seed is False: it has to be a valid integer"),
            ("context: true\n", "config.yaml:1: context is True: it has to be"),
            ("context: five\n", "config.yaml:1: context is 'five': it has to be"),
            ("context:\n  left: 1.5\n", "config.yaml:2: context.left is 1.5: it has to be a whole number of frames"),
            ("keys: {data: {input: 1}}\n", "config.yaml:1: keys.data.input is 1: it has to be a valid boolean"),
            ("keys: {data: {rate: 2.0}}\n", "config.yaml:1: keys.data.rate is 2.0: it has to be a valid integer"),
            ("keys: {data: {pad_value: true}}\n", "config.yaml:1: keys.data.pad_value is True: it has to be"),
            ("keys: {data: {dtype: 16}}\n", "config.yaml:1: keys.data.dtype is 16: it has to be a valid string"),
            ("keys: [data]\n", "config.yaml:1: keys is ['data']: it has to be"),
            ("output: {path: 3}\n", "config.yaml:1: output.path is 3: it has to be a valid string"),
            ("source: hdf5\n", "config.yaml:1: source is 'hdf5': it has to be"),
            ("chunk: 5\n", "config.yaml:1: chunk is 5: it has to be"),
            # impossible values
            ("chunk:\n  size: 0\n", "config.yaml:2: chunk.size is 0: it has to be at least 1"),
            ("chunk: {size: 5, step: 0}\n", "config.yaml:1: chunk.step is 0: it has to be at least 1"),
            ("chunk: {size: 5, min_size: -1}\n", "chunk.min_size is -1: it has to be at least 0"),
            ("context: -1\n", "config.yaml:1: context.left is -1: it has to be at least 0"),
            ("keys: {a: {rate: 0}}\n", "config.yaml:1: keys.a.rate is 0: it has to be greater than or equal to 1"),
            (
                "order: {by: rnd}\n",
                "config.yaml:1: order.by is 'rnd': it has to be source, reverse, random, sorted, sorted_reverse or laplace:BINS",
            ),
            ("output: {path: x, format: zip}\n", "output.format is 'zip': it has to be 'hdf5' or 'tfrecord'"),
            ("output: {path: x, shard_size: big}\n", "config.yaml:1: output.shard_size is 'big': give a size"),
            ("output: {path: x, shard_size: true}\n", "config.yaml:1: output.shard_size is True: give a size"),
            ("batch: {max_sequences: 0}\n", "batch.max_sequences is 0: it has to be greater than or equal to 1"),
            (
                "source: {type: 5}\n",
                "config.yaml:1: source.type is 5; set it to the kind of input, such as hdf5 or audio",
            ),
            ("keys: {data: 5}\n", "config.yaml:1: keys.data is 5: it has to be a section, with settings or names"),
            ("chunk: {'': 5}\n", "config.yaml:1: chunk holds a setting without a name; write one of jitter, min_size"),
            (
                "chunk: {size: 9999999999999999999999h}\n",
                "config.yaml:1: chunk.size is '9999999999999999999999h': it has to be a",
            ),
            (
                "context: {data: {left: 1, left_initial: 0, pad: clip}}\n",
                "config.yaml:1: context.data.left_initial is set but context.data.pad is 'clip', which has no frame",
            ),
            (
                "context: {data: {pad: 3}}\n",
                "config.yaml:1: context.data.pad is 3.0 but there is no context; set context.data.left or context.data.right",
            ),
            # what is missing
            ("output:\n  format: hdf5\n", "config.yaml:1: output.path is missing; set it in the file or with --set"),
            ("batch: {}\n", "config.yaml:1: batch has no budget; set batch.max_frames"),
            ("batch: {max_frames: {}}\n", "config.yaml:1: batch has no budget; set batch.max_frames"),
            ("source: {path: x}\n", "config.yaml:1: source.type is missing; set it to the kind of input"),
            ("chunk: {step: 5}\n", "config.yaml:1: chunk.step is set but chunk.size is null"),
            ("source:\n", "config.yaml:1: source.type is missing; set it to the kind of input"),
            ("batch:\n", "config.yaml:1: batch has no budget; set batch.max_frames"),
            ("output:\n", "config.yaml:1: output.path is missing; set it in the file or with --set"),
            # what would have no effect
            (
                "chunk: {min_size: 5}\n",
                "config.yaml:1: chunk.min_size is set but chunk.size is null: whole sequences have",
            ),
            (
                "chunk: {tail: drop}\n",
                "config.yaml:1: chunk.tail is set but chunk.size is null: whole sequences have no",
            ),
            ("chunk: {jitter: true}\n", "config.yaml:1: chunk.jitter is set but chunk.size is null"),
            (
                "chunk: {stop_when_covered: true}\n",
                "config.yaml:1: chunk.stop_when_covered is set but chunk.size is null",
            ),
            (
                "context: {pad: edge}\n",
                "config.yaml:1: context.pad is 'edge' but there is no context; set context.left or",
            ),
            (
                "context: {left: 1, left_initial: 0, pad: clip}\n",
                "config.yaml:1: context.left_initial is set but context.pad is 'clip', which has no frame outside the "
                "sequence; remove one of them",
            ),
            (
                "context: {right: 1, right_final: 3, pad: drop}\n",
                "config.yaml:1: context.right_final is set but context.pad is 'drop'",
            ),
            # one kind of thing for another
            ("chunk: {tail: cut}\n", "config.yaml:1: chunk.tail is 'cut': it has to be 'keep', 'drop' or 'shift'"),
            (
                "chunk: {size: 5 apples}\n",
                "config.yaml:1: chunk.size is '5 apples': it has to be a whole number of frames, "
                "such as 50, or a duration, such as 0.5s",
            ),
            (
                "context: {left: 1, pad: mirror}\n",
                "config.yaml:1: context.pad is 'mirror': it has to be zero, edge, reflect, "
                "clip, drop, a number, or {constant: a number}",
            ),
            (
                "context: {left: 1, pad: {constant: x}}\n",
                "config.yaml:1: context.pad is {'constant': 'x'}: it has to be zero",
            ),
            ("context: {left: 1, pad: true}\n", "config.yaml:1: context.pad is True: it has to be zero"),
            (
                "context:\n  left: 5\n  data: {right: 2}\n",
                "config.yaml:1: context is {'left': 5, 'data': {'right': 2}}: it mixes left with data: give left, right and "
                "pad alone, for the input key, or all of it per key, as data: {left: 5}",
            ),
            ("keys:\n  1: {}\n", "config.yaml:2: keys.1: a name has to be text; write it in quotes, as '1'"),
            (
                "chunk: {size: {1: 5}}\n",
                "config.yaml:1: chunk.size.1: a name has to be text; write it in quotes, as '1'",
            ),
            ("order: {1: 5}\n", "config.yaml:1: order.1: a name has to be text; write it in quotes, as '1'"),
            ("1: 5\n", "config.yaml:1: 1: a name has to be text; write it in quotes, as '1'"),
            (
                "keys: {a: {frame_rate: 0}}\n",
                "config.yaml:1: keys.a.frame_rate is 0: it has to be frames per second, such as",
            ),
            (
                "keys: {a: {frame_rate: fast}}\n",
                "config.yaml:1: keys.a.frame_rate is 'fast': it has to be frames per second",
            ),
            (
                "keys: {a: {frame_rate: 1/0}}\n",
                "config.yaml:1: keys.a.frame_rate is '1/0': it has to be frames per second",
            ),
            (
                "keys: {a: {frame_rate: true}}\n",
                "config.yaml:1: keys.a.frame_rate is True: it has to be frames per second",
            ),
            ("keys: {a: {pad_value: x}}\n", "config.yaml:1: keys.a.pad_value is 'x': it has to be a number"),
            # texts that no file or name can be
            (
                'output: {path: "a\\0b"}\n',
                "config.yaml:1: output.path is 'a\\x00b': no file or name can hold the character of code 0; remove it",
            ),
            (
                'source: {type: x, path: [a, "\\ud800"]}\n',
                "config.yaml:1: source.path.1 is '\\ud800': character 0 is half of one, which no file or name can hold",
            ),
            # numbers that no computer counts to
            (
                "chunk: {size: 9223372036854775808}\n",
                "config.yaml:1: chunk.size is 9223372036854775808: no setting has a number of more than 63 bits",
            ),
            (
                "order: {seed: -9223372036854775809}\n",
                "config.yaml:1: order.seed is -9223372036854775809: no setting has",
            ),
            (
                "source: {type: x, n: [1, 9223372036854775808]}\n",
                "config.yaml:1: source.n.1 is 9223372036854775808: no set",
            ),
            (
                "chunk: {size: 9007199254740993}\n",
                "config.yaml:1: chunk.size is 9007199254740993: it has to be at most 9007",
            ),
            ("context: 2147483648\n", "config.yaml:1: context.left is 2147483648: it has to be at most 2147483647"),
            (
                "keys: {a: {rate: 2147483648}}\n",
                "config.yaml:1: keys.a.rate is 2147483648: it has to be less than or equal",
            ),
            (
                "output: {path: x, shard_size: 9999999TB}\n",
                "config.yaml:1: output.shard_size is '9999999TB': it has to be",
            ),
        ],
    )
    def test_errors_name_place_setting_value_and_remedy(self, text: str, message: str) -> None:
        with pytest.raises(ConfigError, match=rf"(?m)^{re.escape(message)}|^config\.yaml:1: {re.escape(message)}"):
            from_yaml(text)

    @pytest.mark.parametrize("section", ["keys", "chunk", "context", "order"])
    def test_an_empty_section_has_its_defaults(self, section: str) -> None:
        assert from_yaml(f"{section}:\n").decisive() == from_yaml("").decisive()
        assert from_yaml("keys:\n  data:\n").keys == from_yaml("keys: {data: {}}\n").keys

    def test_durations_have_one_form(self) -> None:
        for text in ("0.5s", "500ms", "500000us", "0.50 s"):
            assert config(chunk={"size": text}).chunk.size == {"": "0.5s"}
        assert config(chunk={"size": "1.5min"}).chunk.size == config(chunk={"size": "90s"}).chunk.size == {"": "90s"}
        assert config(chunk={"size": "1h", "min_size": "1us"}).chunk.min_size == {"": "0.000001s"}
        assert config(keys={"a": {"frame_rate": 62.5}}).keys["a"].frame_rate == "125/2"

    def test_large_integers_stay_what_they_are(self) -> None:
        assert config(keys={"a": {"pad_value": 2**62 + 1}}).keys["a"].pad_value == 2**62 + 1
        assert repr(config(keys={"a": {"pad_value": 3}}).keys["a"].pad_value) == "3.0"

    def test_missing_sections(self) -> None:
        with pytest.raises(
            ConfigError, match=r"^settings: source is missing.*\nsettings: batch has no budget.*\nsettings: output is"
        ):
            load_config({})

    def test_every_fault_is_told_at_once(self) -> None:
        with pytest.raises(ConfigError, match=r"^config\.yaml:1: .*\nconfig\.yaml:2: .*\nconfig\.yaml:3: .*$"):
            from_yaml("chunk: {size: 0}\ncontext: {left: -1}\norder: {by: x}\n")

    def test_suggestions(self) -> None:
        assert suggestion("sise", ["size", "step"]) == "; did you mean 'size'?"
        assert suggestion("zzz", ["b", "a"]) == "; known are: a, b"
        assert suggestion("zzz", []) == ""
        assert suggestion("zzz", [f"key{i}" for i in range(30)]) == ""


class TestFingerprint:
    def test_forms_of_one_meaning_have_one_fingerprint(self) -> None:
        assert config(context=5).fingerprint() == config(context={"left": 5, "right": 5}).fingerprint()
        assert config(chunk=None).fingerprint() == config(chunk={"size": None}).fingerprint() == config().fingerprint()
        sizes = [config(output={"path": "x", "shard_size": size}).fingerprint() for size in ("256MB", 256_000_000)]
        assert sizes == [config().fingerprint()] * 2
        per_key = [{"data": 1, "classes": 2}, {"classes": 2, "data": 1}]
        assert len({config(chunk={"size": size}).fingerprint() for size in per_key}) == 1

    def test_the_outputs_path_and_nothing_else_is_left_out(self) -> None:
        assert config(output={"path": "elsewhere"}).fingerprint() == config().fingerprint()
        assert "path" not in config().decisive()["output"]
        changes: list[dict[str, Any]] = [
            {"source": {"type": "hdf5", "path": "other/*.hdf"}},
            {"source": {"type": "audio", "path": "corpus/*.hdf"}},
            {"source": {"type": "hdf5", "path": "corpus/*.hdf", "option": 1}},
            {"keys": {"data": {}}},
            {"keys": {"data": {}, "classes": {}}},
            {"keys": {"data": {}, "classes": {"input": True}}},
            {"keys": {"data": {"dtype": "float16"}}},
            {"keys": {"data": {}, "classes": {"rate": 3}}},
            {"keys": {"data": {}, "classes": {"rate": 3, "align": "floor"}}},
            {"keys": {"data": {}, "classes": {"rate": None}}},
            {"keys": {"data": {}, "classes": {"rate": 3, "tolerance": 1, "on_mismatch": "pad"}}},
            {"keys": {"data": {}, "classes": {"rate": 3, "tolerance": 1, "on_mismatch": "trim"}}},
            {"keys": {"data": {"frame_rate": 100}}},
            {"keys": {"data": {"pad_value": 1}}},
            {"keys": {"data": {"pad_value": float("nan")}}},
            {"keys": {"data": {"pad_value": float("inf")}}},
            {"chunk": {"size": 5}},
            {"chunk": {"size": 5, "step": 4}},
            {"chunk": {"size": 5, "step": 4, "min_size": 1}},
            {"chunk": {"size": {"data": 5}}},
            {"chunk": {"size": "0.5s"}},
            {"chunk": {"size": 5, "tail": "drop"}},
            {"chunk": {"size": 5, "tail": "shift"}},
            {"chunk": {"size": 5, "stop_when_covered": True}},
            {"chunk": {"size": 5, "jitter": True}},
            {"context": {"left": 1, "pad": 1}},
            {"context": {"left": 1, "pad": "reflect"}},
            {"context": {"left": 1, "left_initial": 0}},
            {"context": {"left": 1, "right_final": 0}},
            {"context": 1},
            {"context": {"left": 1}},
            {"context": {"left": 1, "pad": "edge"}},
            {"context": {"data": {"left": 1}}},
            {"batch": {"max_frames": 5000}},
            {"batch": {"max_frames": 5000, "max_sequences": 41}},
            {"batch": {"max_frames": {"data": 5000}, "max_sequences": 40}},
            {"order": {"by": "random"}},
            {"order": {"by": "random", "seed": 1}},
            {"output": {"path": "shards/train", "format": "tfrecord"}},
            {"output": {"path": "shards/train", "shard_size": "1MB"}},
        ]
        found = [config().fingerprint(), *(config(**change).fingerprint() for change in changes)]
        assert len(set(found)) == len(found)

    def test_which_key_comes_first_counts_for_it_is_the_input_key(self) -> None:
        either = [config(keys={"a": {}, "b": {}}), config(keys={"b": {}, "a": {}})]
        assert either[0].fingerprint() != either[1].fingerprint()

    def test_its_form(self) -> None:
        assert re.fullmatch("[0-9a-f]{16}", config().fingerprint())


class TestSizes:
    @pytest.mark.parametrize(
        ("text", "size"),
        [
            ("256MB", 256_000_000),
            ("256 mb", 256_000_000),
            (" 1GiB ", 1 << 30),
            ("1.5kB", 1500),
            ("1.5KiB", 1536),
            ("2TB", 2 * 10**12),
            ("1TiB", 1 << 40),
            ("17", 17),
            ("17B", 17),
            (17, 17),
            ("1.001kB", 1001),
            ("0.29GB", 290_000_000),
            (2**53 + 1, 2**53 + 1),
            (f"{2**53 + 1}B", 2**53 + 1),
        ],
    )
    def test_sizes(self, text: int | str, size: int) -> None:
        found = parse_bytes(text, "setting")
        assert found == size
        assert type(found) is int

    @pytest.mark.parametrize(
        "value",
        ["", "MB", "-5MB", "5 apples", "5MBit", "1e3", "5M B", "0", "0.5", 0, -1, True, None, "nan", [5], "1,5MB"],
    )
    def test_what_is_no_size(self, value: Any) -> None:
        message = rf"^output\.shard_size is {re.escape(repr(value))}: give a size of at least one byte, such as 256MB"
        with pytest.raises(ConfigError, match=message):
            parse_bytes(value, "output.shard_size")

    def test_a_size_of_many_digits(self) -> None:
        assert parse_bytes("9" * 400, "setting") == int("9" * 400)

    @given(
        st.integers(1, 10**6),
        st.integers(0, 999),
        st.sampled_from([("B", 1), ("kB", 10**3), ("MB", 10**6), ("GB", 10**9), ("KiB", 2**10), ("MiB", 2**20)]),
    )
    @thorough
    def test_sizes_are_exact(self, whole: int, thousandths: int, unit: tuple[str, int]) -> None:
        exact = (whole + Fraction(thousandths, 1000)) * unit[1]
        assert parse_bytes(f"{whole}.{thousandths:03d}{unit[0]}", "setting") == int(exact)

    @pytest.mark.parametrize(
        ("size", "text"),
        [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1 kB"),
            (1234, "1.23 kB"),
            (999_499, "999 kB"),
            (999_999, "1 MB"),
            (256_000_000, "256 MB"),
            (1.5e9, "1.5 GB"),
            (2e12, "2 TB"),
            (999.6e12, "1 PB"),
            (2.5e18, "2.5 EB"),
            (1.2e22, "12,000 EB"),
        ],
    )
    def test_sizes_are_written_with_three_digits(self, size: float, text: str) -> None:
        assert format_bytes(size) == text

    @given(st.integers(1, 10**20))
    @thorough
    def test_written_sizes_are_read_to_three_digits(self, size: int) -> None:
        assert parse_bytes(format_bytes(size), "setting") == pytest.approx(size, rel=0.006)


@given(st.integers(0, 10**15), st.integers(0, 18), st.sampled_from(["us", "ms", "s", "min", "h"]))
@thorough
def test_durations_that_are_read_can_be_written_and_read_again(digits: int, decimals: int, unit: str) -> None:
    seconds = parse_seconds(f"{digits}.{'7' * decimals}{unit}" if decimals else f"{digits}{unit}")
    if seconds is not None:
        assert parse_seconds(format_seconds(seconds)) == seconds
    elif unit in ("us", "ms", "s"):
        assert digits >= 10**15
