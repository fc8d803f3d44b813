"""Settings of batches, order, epochs, selection, split and partition: their forms, and what is said of wrong ones."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from seqprep.config import Config, load_config
from seqprep.config.document import parse_document
from seqprep.errors import ConfigError
from seqprep.planning import BatchRule, OrderRule, Rules, resolve
from seqprep.types import KeySpec

SPECS = {"data": KeySpec(dtype="float32", shape=(40,)), "classes": KeySpec(dtype="int32")}
BASE: dict[str, Any] = {"source": {"type": "hdf5"}, "batch": {"max_sequences": 4}, "output": {"path": "out"}}
PARTS = {"path": "shards/{split}"}


def config(batch: dict[str, Any] | None = None, **sections: Any) -> Config:
    settings = copy.deepcopy(BASE) | sections
    settings["batch"] |= batch or {}
    return load_config(settings)


def rules(batch: dict[str, Any] | None = None, **sections: Any) -> Rules:
    return resolve(config(batch, **sections), SPECS)[0]


@pytest.mark.parametrize(
    ("bucket", "expected"),
    [
        ("none", BatchRule()),
        (None, BatchRule()),
        ("sorted", BatchRule(sort_rows=True)),
        ({"auto": 8}, BatchRule(auto_classes=8)),
        ("auto:8", BatchRule(auto_classes=8)),
        ("auto: 8", BatchRule(auto_classes=8)),
        ({"boundaries": [100, 200]}, BatchRule(boundaries=(100, 200))),
        ("boundaries:100,200", BatchRule(boundaries=(100, 200))),
        ("boundaries: [100, 200]", BatchRule(boundaries=(100, 200))),
    ],
)
def test_forms_of_bucket(bucket: Any, expected: BatchRule) -> None:
    assert rules({"bucket": bucket}).batch == expected


def test_batches_are_taken_over() -> None:
    found = rules({"drop_last": True, "bucket": {"auto": 3}, "pad_to": "bucket"}).batch
    assert found == BatchRule(drop_last=True, auto_classes=3, pad_to_class=True)
    assert rules({"pad_rows": True}).batch == BatchRule(pad_rows=True)
    assert rules({"pack": True, "row_frames": 99}).batch == BatchRule(row_frames=99)


@pytest.mark.parametrize(
    ("pad_to", "keys", "expected"),
    [
        ("longest", {}, [1, 1]),
        (8, {}, [8, 8]),
        ("8", {}, [8, 8]),
        (12, {"data": {}, "classes": {"rate": 3}}, [12, 4]),
        ({"data": 8, "classes": 2}, {"data": {}, "classes": {"rate": 3}}, [8, 2]),
        ({"classes": 2}, {}, [1, 2]),
    ],
)
def test_forms_of_pad_to(pad_to: Any, keys: dict[str, Any], expected: list[int]) -> None:
    assert [rule.pad_multiple for rule in rules({"pad_to": pad_to}, keys=keys).keys] == expected


@pytest.mark.parametrize(
    ("order", "name", "expected"),
    [
        ({}, "source", OrderRule()),
        ({"by": "reverse"}, "reverse", OrderRule()),
        ({"by": "sorted_reverse"}, "sorted_reverse", OrderRule()),
        ({"by": "laplace:10"}, "laplace", OrderRule(groups=10)),
        ({"by": "laplace:.1000"}, "laplace", OrderRule(group_size=1000)),
        ({"by": "random", "scope": "global"}, "random", OrderRule(all_rows=True)),
    ],
)
def test_forms_of_order(order: dict[str, Any], name: str, expected: OrderRule) -> None:
    found = rules(order=order)
    assert (found.order, found.order_rule) == (name, expected)


def test_epochs_partition_selection_and_split() -> None:
    assert rules(epochs=3).epochs == 3
    assert rules(partition="2/7").order_rule.partition == (2, 7)
    found = config(select={"include": "a", "exclude": ["b", "c"], "min_frames": 3, "tags_file": "list.txt"}).select
    assert (found.include, found.exclude, found.min_frames, found.max_frames) == (["a"], ["b", "c"], 3, None)
    found = config(split={"train": 0.7, "dev": 0.2, "test": 0.1, "by": "^(.*)-"}, output=PARTS).split
    assert (found.parts, found.by) == ({"train": 0.7, "dev": 0.2, "test": 0.1}, "^(.*)-")
    assert config(split={"train": 1}, output=PARTS).split.parts == {"train": 1.0}


def test_the_order_of_parts_is_part_of_what_a_dataset_is() -> None:
    one, other = ({"a": 0.5, "b": 0.5}, {"b": 0.5, "a": 0.5})
    assert config(split=one, output=PARTS).fingerprint() != config(split=other, output=PARTS).fingerprint()


WRONG: list[tuple[str, str]] = [
    ("batch: {bucket: sort}\n", "batch.bucket is 'sort': it has to be none, sorted, {auto: 8} or {boundaries: [100, 200]} "
     "(on the command line auto:8 or boundaries:100,200)"),
    ("batch: {bucket: auto:x}\n", "batch.bucket is 'auto:x': it has to be none, sorted,"),
    ("batch: {bucket: 8}\n", "batch.bucket is 8: it has to be none, sorted,"),
    ("batch: {bucket: {auto: 0}}\n", "batch.bucket.auto is 0: it has to be greater than or equal to 1"),
    ("batch: {bucket: auto:0}\n", "batch.bucket.auto is 0: it has to be greater than or equal to 1"),
    ("batch: {bucket: {auot: 8}}\n", "batch.bucket.auot is not a setting; did you mean 'auto'?"),
    ("batch: {bucket: {auto: 3, boundaries: [5]}}\n", "batch.bucket sets more than one of sorted, boundaries and auto; keep one"),
    ("batch: {bucket: {boundaries: [20, 10]}}\n", "batch.bucket.boundaries is [20, 10]: boundaries have to ascend; write [10, 20]"),
    ("batch: {bucket: {boundaries: [10, 10]}}\n", "batch.bucket.boundaries is [10, 10]: boundaries have to ascend; write [10]"),
    ("batch: {bucket: {boundaries: [0, 10]}}\n", "batch.bucket.boundaries holds 0: lengths are at least 1 frame; remove it"),
    ("batch: {bucket: {boundaries: []}}\n", "batch.bucket.boundaries is empty; name at least one length, or use bucket: none"),
    ("batch: {pad_to: 0}\n", "batch.pad_to is 0: it has to be longest, bucket, or a number of frames whose multiples rows fill up"),
    ("batch: {pad_to: {data: 1.5}}\n", "batch.pad_to.data is 1.5: it has to be longest, bucket, or a number of frames"),
    ("batch: {pad_to: shortest}\n", "batch.pad_to is 'shortest': it has to be longest, bucket, or a number of frames"),
    ("batch: {pad_to: bucket}\n", "batch.pad_to is bucket but there are no length classes; set batch.bucket to {auto: 8}"),
    ("batch: {pad_to: bucket, bucket: sorted}\n", "batch.pad_to is bucket but there are no length classes;"),
    ("batch: {drop_last: true, pad_rows: true}\n", "batch.drop_last and batch.pad_rows are both set: a batch is filled or left out; keep one"),
    ("batch: {pack: true}\n", "batch.pack is set without batch.row_frames; set it to the most frames of a packed row"),
    ("batch: {row_frames: 9}\n", "batch.row_frames is 9 but rows aren't packed; set batch.pack: true, or remove it"),
    ("batch: {pack: true, row_frames: 0}\n", "batch.row_frames is 0: it has to be greater than or equal to 1"),
    ("batch: {pack: true, row_frames: 9, bucket: sorted}\n", "batch.bucket and batch.pack are both set: packed rows are about equally long; keep one"),
    ("order: {by: sortd}\n", "order.by is 'sortd': it has to be source, reverse, random, sorted, sorted_reverse or laplace:BINS; did you mean 'sorted'?"),
    ("order: {by: laplace}\n", "order.by is 'laplace': laplace needs the number of its groups, at least 1, such as laplace:100"),
    ("order: {by: laplace:0}\n", "order.by is 'laplace:0': laplace needs the number of its groups, at least 1"),
    ("order: {by: laplace:.0}\n", "order.by is 'laplace:.0': laplace needs the number of its groups, at least 1"),
    ("order: {by: random:5}\n", "order.by is 'random:5': random takes no number; write random"),
    ("order: {by: 5}\n", "order.by is 5: it has to be source, reverse,"),
    ("order: {by: sorted, scope: global}\n", "order.scope is global but order.by is 'sorted': only a shuffle can be over all rows; set order.by: random"),
    ("order: {scope: world}\n", "order.scope is 'world': it has to be 'sequence' or 'global'"),
    ("epochs: 0\n", "epochs is 0: it has to be greater than or equal to 1"),
    ("partition: 3/2\n", "partition is '3/2': it has to be k/n with k from 1 to n, such as 1/4"),
    ("partition: 0/2\n", "partition is '0/2': it has to be k/n with k from 1 to n, such as 1/4"),
    ("partition: 0.5\n", "partition is 0.5: it has to be k/n with k from 1 to n, such as 1/4"),
    ("select: {include: '('}\n", "select.include holds '(', which is no regular expression: missing ), unterminated subpattern at position 0; correct it"),
    ("select: {exclude: [a, '*']}\n", "select.exclude holds '*', which is no regular expression: nothing to repeat at position 0; correct it"),
    ("select: {min_frames: 9, max_frames: 3}\n", "select.min_frames is 9 and select.max_frames is 3: no sequence is both; swap them"),
    ("select: {max_frames: -1}\n", "select.max_frames is -1: it has to be greater than or equal to 0"),
    ("select: {max_frame: 1}\n", "select.max_frame is not a setting; did you mean 'max_frames'?"),
    ("split: {train: 0.9, dev: 0.2}\n", "split: the shares of train, dev come to 1.1, more than 1; lower them"),
    ("split: {train: 0}\n", "split.train is 0: a share is above 0 and at most 1, such as 0.9"),
    ("split: {train: .nan}\n", "split.train is nan: a share is above 0 and at most 1, such as 0.9"),
    ("split: {train: a lot}\n", "split.train is 'a lot': a share is above 0 and at most 1, such as 0.9"),
    ("split: {../up: 0.5}\n", "split.../up: a part's name becomes a folder; use letters, digits, '_' and '-'"),
    ("split: {by: '(a)'}\n", "split names no part; name some with their shares, such as {train: 0.9, dev: 0.1}"),
    ("split: 0.9\n", "split is 0.9: it has to name parts and their shares, such as {train: 0.9, dev: 0.1}"),
    ("split: {train: 0.9, by: 'a'}\n", "split.by is 'a', which has 0 groups; put exactly one in parentheses, such as '^(spk[0-9]+)'"),
    ("split: {train: 0.9, by: '(a)(b)'}\n", "split.by is '(a)(b)', which has 2 groups; put exactly one in parentheses"),
    ("split: {train: 0.9, by: '(a'}\n", "split.by holds '(a', which is no regular expression: missing ), unterminated subpattern"),
    # numbers that nothing has so many of, in text too
    ("batch: {bucket: 'auto:9007199254740993'}\n", "batch.bucket.auto is 9007199254740993: it has to be less than or equal to 9007199254740992"),
    ("batch: {bucket: 'boundaries:5,99999999999999999999'}\n", "batch.bucket.boundaries holds 99999999999999999999: no row is as long as that; remove it"),
    ("batch: {pad_to: 2147483648}\n", "batch.pad_to is 2147483648: it has to be at most 2147483647, the longest that a row can be"),
    ("batch: {pad_to: {data: 4294967296}}\n", "batch.pad_to.data is 4294967296: it has to be at most 2147483647"),
    ("order: {by: 'laplace:9223372036854775808'}\n", "order.by is 'laplace:9223372036854775808': there are fewer sequences than that; lower the number"),
    ("order: {by: 'laplace:.9223372036854775808'}\n", "order.by is 'laplace:.9223372036854775808': there are fewer sequences"),
    ("partition: 1/9999999999999999\n", "partition is '1/9999999999999999': it has to be k/n with k from 1 to n, such as 1/4"),
    ("epochs: 10001\n", "epochs is 10001: it has to be less than or equal to 10000"),
    ("split: {train: 0.9, by: 5}\n", "split.by is 5: it has to be a regular expression with one group, such as '^(spk[0-9]+)'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_what_is_wrong_is_said_with_setting_value_and_remedy(text: str, message: str) -> None:
    if not text.startswith("batch"):
        text += "batch: {max_sequences: 4}\n"
    else:
        text = text.replace("batch: {", "batch: {max_sequences: 4, ")
    path = "shards/{split}" if text.startswith("split") else "out"
    text += f"source: {{type: hdf5}}\noutput: {{path: '{path}'}}\n"
    with pytest.raises(ConfigError, match=f"^config.yaml:1: {re.escape(message)}"):
        load_config(parse_document(text, "config.yaml"))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"split": {"train": 0.9}}, "output.path is 'out', one folder for all parts of the split; write {split} in it, such as out/{split}"),
        ({"output": PARTS}, "output.path is 'shards/{split}' but there is no split; set split, such as {train: 0.9, dev: 0.1}"),
        ({"keys": {"data": {}, "classes": {"rate": 3}}, "batch": {"pack": True, "row_frames": 100}},
         "batch.row_frames is 100, which isn't a multiple of 3, as the rates of 'classes' (3) ask for; use 99 or 102"),
        ({"keys": {"data": {}, "classes": {"rate": 3}}, "batch": {"pack": True, "row_frames": 2}},
         "batch.row_frames is 2, which isn't a multiple of 3, as the rates of 'classes' (3) ask for; use 3"),
        ({"keys": {"data": {}, "classes": {"rate": 3}}, "batch": {"pad_to": 8}},
         "batch.pad_to is 8, which the rate 3 of key 'classes' doesn't divide; use 6 or 9, or give it per key"),
        ({"batch": {"pack": True, "row_frames": 100, "max_frames": {"classes": 90}}},
         "batch.max_frames is 90 for key 'classes', less than one packed row of 100 frames (batch.row_frames 100); raise it, or lower that"),
        ({"batch": {"pad_to": {"clases": 8}}}, "batch.pad_to.clases: 'clases' is not a stored key; did you mean 'classes'?"),
    ],
)  # fmt: skip
def test_settings_that_dont_go_together(sections: dict[str, Any], message: str) -> None:
    batch = sections.pop("batch", None)
    with pytest.raises(ConfigError, match=f"^settings: {re.escape(message)}"):
        rules(batch, **sections)
