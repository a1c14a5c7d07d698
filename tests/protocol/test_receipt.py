"""Receipts come from a less trusted process: what was encoded comes back, and nothing else is a receipt."""

import json
import math
import tracemalloc
import zlib
from base64 import b64encode
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink_protocol.change import ContentFile
from lakesink_protocol.measures import MEASURES, RESCUED_ROWS, UNKNOWN_KEYS, UNMET_ROWS, Tally
from lakesink_protocol.quality import (
    RESCUED,
    UNKNOWN_NAMES,
    Quality,
    first_names,
    first_reasons,
    quality_from,
    rescued_in,
    together,
    unmet_in,
)
from lakesink_protocol.receipt import MOST_MISFITS, RECEIPT_VERSION, Misfit, Receipt, ReceiptEncoder, decode, encode
from lakesink_protocol.receipt_json import ReceiptInvalid, binary
from lakesink_protocol.row_changes import OF_CHANGES, ChangeCounts, KeysFile

COUNT = st.integers(0, 2**63 - 1)
FIELD = st.integers(1, 2**31 - 1)
BOUNDS = st.dictionaries(FIELD, st.binary(max_size=20), max_size=4)
REASONS = ["a.b: no column", "a: not DECIMAL(9,2)", "c[].d: not STRUCT", "id: not STRING (uuid)", "others"]
COUNTS = st.dictionaries(FIELD, COUNT, max_size=4)
FILE = st.builds(
    ContentFile,
    path=st.text(max_size=30),
    spec_id=COUNT,
    partition=st.lists(st.none() | st.binary(max_size=10), max_size=3).map(tuple),
    record_count=COUNT,
    file_size_bytes=COUNT,
    column_sizes=COUNTS,
    value_counts=COUNTS,
    null_value_counts=COUNTS,
    nan_value_counts=COUNTS,
    lower_bounds=BOUNDS,
    upper_bounds=BOUNDS,
    split_offsets=st.lists(COUNT, max_size=3).map(tuple),
    sort_order_id=COUNT,
)
RECEIPT = st.builds(
    Receipt,
    task=COUNT,
    rows=COUNT,
    files=st.lists(FILE, max_size=3).map(tuple),
    schema_id=st.none() | COUNT,
    quality=st.builds(
        Quality,
        counts=st.dictionaries(st.sampled_from(MEASURES), COUNT).map(Tally),
        unknown_names=st.lists(st.text("abc.", max_size=9), max_size=10).map(first_names),
        unmet=st.dictionaries(st.sampled_from(["valid_age", "has_id"]), COUNT),
        rescued=st.dictionaries(st.sampled_from(REASONS), st.integers(1, 2**63 - 1)),
    ),
    payload_digest=st.integers(0, 2**128 - 1),
    misfits=st.lists(st.builds(Misfit, *[st.text("ab: /.", max_size=9)] * 4), max_size=20).map(tuple),
    malformed=COUNT,
    refused=st.booleans(),
    keys=st.none()
    | st.builds(
        KeysFile,
        path=st.text(max_size=30),
        task=COUNT,
        rows=COUNT,
        size_bytes=COUNT,
        sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
    ),
    changed=st.dictionaries(st.sampled_from(OF_CHANGES), COUNT).map(Tally),
)
WHOLE = Receipt(
    task=1,
    rows=3,
    files=(
        ContentFile(
            path="file:///t/data/a.parquet",
            spec_id=0,
            partition=(None, b"\x01"),
            record_count=3,
            file_size_bytes=100,
            column_sizes={1: 10},
            value_counts={1: 3},
            null_value_counts={1: 0},
            nan_value_counts={},
            lower_bounds={1: b"\x00"},
            upper_bounds={1: b"\xff"},
            split_offsets=(4,),
        ),
    ),
)


@given(RECEIPT)
def test_a_receipt_arrives_as_it_was_sent(receipt: Receipt) -> None:
    assert decode(encode(receipt)) == receipt


@given(st.binary(max_size=300))
def test_bytes_are_no_receipt(data: bytes) -> None:
    with pytest.raises(ReceiptInvalid):
        decode(data)


@given(st.data())
def test_a_receipt_that_was_cut_or_padded_is_none(data: st.DataObject) -> None:
    whole = encode(WHOLE)
    cut = data.draw(st.integers(0, len(whole) - 1))
    for broken in (whole[:cut], whole + b"\x00", whole + whole):
        with pytest.raises(ReceiptInvalid):
            decode(broken)


@given(st.data())
def test_a_receipt_with_a_flipped_bit_is_none_or_the_same(data: st.DataObject) -> None:
    whole = bytearray(encode(WHOLE))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(ReceiptInvalid):
        assert decode(bytes(whole)) == WHOLE


@given(st.lists(FILE, max_size=40).map(tuple))
def test_files_that_are_added_one_by_one_arrive_in_their_order(files: tuple[ContentFile, ...]) -> None:
    receipt = replace(WHOLE, rows=7, files=files, premises="p", misfits=(Misfit("a", "b", "c", "d"),))
    encoder = ReceiptEncoder()
    for file in files:
        encoder.add(file)
    sent = encoder.finish(replace(receipt, files=()))
    assert sent == encode(receipt)
    assert decode(sent) == receipt
    assert encoder.record_count == sum(file.record_count for file in files)


@given(st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=300), st.integers(1, 9_000))
def test_groups_of_any_size_give_the_same_files(kinds: list[int], size: int) -> None:
    """Of three kinds with other fields, so that groups end where the kind changes, or where they are full."""
    [file] = WHOLE.files
    other = replace(file, lower_bounds={}, upper_bounds={3: b"", 1: b"abc"}, nan_value_counts={2: 7}, partition=())
    known = (file, other, replace(other, value_counts={1: 2, 2: 3}, null_value_counts={2: 0, 1: 2}))
    files = tuple(replace(known[kind], path=f"{number}", record_count=number // 3) for number, kind in enumerate(kinds))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakesink_protocol.receipt.GROUP_BYTES", size)
        assert decode(encode(replace(WHOLE, files=files))).files == files


def test_the_files_of_a_group_share_lists_and_equal_values_are_there_once() -> None:
    [file] = WHOLE.files
    longer = replace(
        file,
        path="b",
        record_count=5,
        value_counts={1: 5},
        upper_bounds={1: b"yz"},
        split_offsets=(4, 9),
        sort_order_id=2,
    )
    other = replace(file, null_value_counts={})
    found = json.loads(zlib.decompress(encode(replace(WHOLE, files=(file, longer, other)))))["files"]
    assert found[0] == {
        "path": ["file:///t/data/a.parquet", "b"],
        "spec": [0],
        "partition": [[None, None], ["AQ==", "AQ=="]],
        "rows": [3, 5],
        "bytes": [100],
        "sizes": {"1": [10]},
        "values": {"1": None},
        "nulls": {"1": [0]},
        "nans": {},
        "lower": {"1": [[1], "AAA="]},
        "upper": {"1": [[1, 2], b64encode(b"\xffyz").decode()]},
        "splits": [[4], [4, 9]],
        "order": [0, 2],
    }
    assert found[1]["path"] == ["file:///t/data/a.parquet"]
    assert found[1]["nulls"] == {}
    assert len(found) == 2


def test_an_encoder_keeps_a_few_bytes_of_each_file() -> None:
    encoder = ReceiptEncoder()
    tracemalloc.start()
    try:
        for number in range(5_000):
            encoder.add(replace(WHOLE.files[0], path=f"file:///t/data/{number}.parquet"))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 100 * 5_000


def document() -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(zlib.decompress(encode(WHOLE)))
    return parsed


def packed(value: Any) -> bytes:
    return zlib.compress(json.dumps(value).encode())


JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 1.5, math.inf, math.nan, 2**63, "x", "", [], [1], {}, {"a": 1}, "1", [[]]]
)
KEYS = [
    "v",
    "task",
    "rows",
    "schema",
    "quality",
    "misfits",
    "malformed",
    "refused",
    "premises",
    "payload_digest",
    "changes",
    "files",
]
FILE_KEYS = [
    "path",
    "spec",
    "partition",
    "rows",
    "bytes",
    "sizes",
    "values",
    "nulls",
    "nans",
    "lower",
    "upper",
    "order",
]


@given(st.sampled_from(KEYS), JUNK)
def test_a_receipt_with_a_wrong_field_is_none_or_a_receipt(key: str, junk: Any) -> None:
    _decodes_or_is_invalid(packed(document() | {key: junk}))


@given(st.sampled_from([*FILE_KEYS, "splits"]), JUNK)
def test_a_receipt_with_a_wrong_file_is_none_or_a_receipt(key: str, junk: Any) -> None:
    found = document()
    found["files"][0][key] = junk
    _decodes_or_is_invalid(packed(found))


@given(st.sampled_from(KEYS), st.sampled_from([*FILE_KEYS, "splits"]))
def test_a_receipt_that_lacks_a_field_is_none(key: str, file_key: str) -> None:
    lacking, lacking_in_file = document(), document()
    del lacking[key]
    del lacking_in_file["files"][0][file_key]
    for value in (lacking, lacking_in_file):
        with pytest.raises(ReceiptInvalid):
            decode(packed(value))


def _decodes_or_is_invalid(data: bytes) -> None:
    try:
        receipt = decode(data)
    except ReceiptInvalid:
        return
    assert decode(encode(receipt)) == receipt
    assert isinstance(receipt.task, int)
    assert isinstance(receipt.refused, bool)
    assert all(isinstance(file.path, str) and file.file_size_bytes >= 0 for file in receipt.files)


OTHERS = [*range(RECEIPT_VERSION), RECEIPT_VERSION + 1, "7", None, [7], 10**6, True, 1.0]


@pytest.mark.parametrize("version", [*OTHERS, "\n" * 10**6, {"a": "x" * 10**6}])
def test_a_receipt_of_another_version_is_refused_by_its_version(version: Any) -> None:
    with pytest.raises(ReceiptInvalid, match="receipt version") as error:
        decode(packed(document() | {"v": version}))
    assert len(str(error.value)) < 100


@pytest.mark.parametrize("nested", [b"[" * 100_000, b'{"v":' * 100_000])
def test_a_deeply_nested_receipt_is_none(nested: bytes) -> None:
    with pytest.raises(ReceiptInvalid):
        decode(zlib.compress(nested))


def test_a_receipt_that_inflates_beyond_all_measure_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakesink_protocol.receipt.MAX_RECEIPT_BYTES", 1024 * 1024)
    with pytest.raises(ReceiptInvalid, match="larger than"):
        decode(zlib.compress(b" " * (64 * 1024 * 1024)))


def test_ten_thousand_files_fit_in_a_receipt() -> None:
    many = replace(WHOLE, files=WHOLE.files * 10_000)
    sent = encode(many)
    assert len(sent) < 400_000
    assert len(decode(sent).files) == 10_000


COUNTS_OF_FILES, BOUNDS_OF_FILES = ["sizes", "values", "nulls", "nans"], ["lower", "upper"]
FIELD_IDS = ["0", "-5", "2147483648", "1" * 40, "1_0", " 7", "07", "7.0", "\u0667", "", "x"]


def changed(**values: Any) -> bytes:
    """A receipt of two files, whose group has these values."""
    [file] = WHOLE.files
    found = json.loads(zlib.decompress(encode(replace(WHOLE, files=(file, replace(file, path="b", record_count=5))))))
    [group] = found["files"]
    group |= values
    return packed(found)


@pytest.mark.parametrize("field_id", FIELD_IDS)
@pytest.mark.parametrize("name", COUNTS_OF_FILES + BOUNDS_OF_FILES)
def test_a_statistic_of_no_field_is_no_receipt(name: str, field_id: str) -> None:
    """Manifests have room for four bytes: a larger id would make one that nobody reads."""
    column = [[1], "AAA="] if name in BOUNDS_OF_FILES else [1]
    assert decode(changed(**{name: {"7": column}}))
    with pytest.raises(ReceiptInvalid):
        decode(changed(**{name: {field_id: column}}))


NO_COUNTS = [
    [], [1, 2, 3], [1, True], [True], [1, -1], [-1], [1, 2**63], [2**63], [1, 2.0], [1, None], [1, "2"], [[1], [2]],
    "12", "1", {"1": 1, "2": 2}, 1, 0, True, -1, 1.5, "",
]  # fmt: skip


@pytest.mark.parametrize("column", NO_COUNTS, ids=repr)
@pytest.mark.parametrize("name", COUNTS_OF_FILES)
def test_there_is_one_count_for_each_file_or_one_for_all(name: str, column: Any) -> None:
    for counts in ({"7": column}, {"7": column, "8": [1]}, {"7": [1], "8": column}):
        with pytest.raises(ReceiptInvalid):
            decode(changed(**{name: counts}))


@pytest.mark.parametrize("column", NO_COUNTS, ids=repr)
@pytest.mark.parametrize("name", ["spec", "rows", "bytes", "order"])
def test_numbers_of_files_are_counts_too(name: str, column: Any) -> None:
    with pytest.raises(ReceiptInvalid):
        decode(changed(**{name: column}))


NO_BOUNDS = [
    [[1], "AA=="], [[1], "AAAA"], [[1, 2], "AAA="], [[3, -1], "AAA="], [[2], "AAA="], [[1, 1, 0], "AAA="], [[], ""],
    [[2, 0, 0], "AAA="], [[True, True], "AAA="], [[True], "AAA="], [[2**70, 1], "AAA="], [[2**63], ""], ["11", "AAA="],
    [1, "AAA="], [[1]], [[1], "AAA=", 1], [[1.0], "AAA="], {"1": 1, "2": 2}, None, "11", [], [[1], None],
    [None, "AAA="], [[1], "AAA"], [[1], "A AA"], [[1], "AAA=AAA="], [[1], "AAA=\n"], [[1], ["AA==", "AA=="]],
    [[2], "AA==AA=="],
]  # fmt: skip


@pytest.mark.parametrize("column", NO_BOUNDS, ids=repr)
@pytest.mark.parametrize("name", BOUNDS_OF_FILES)
def test_bounds_have_the_sizes_that_the_receipt_states(name: str, column: Any) -> None:
    for sizes in ([1], [1, 1], [2, 0]):
        assert len(decode(changed(**{name: {"7": [sizes, "AAA="]}})).files) == 2
    for bounds in ({"7": column}, {"7": column, "8": [[1], "AAA="]}, {"7": [[1], "AAA="], "8": column}):
        with pytest.raises(ReceiptInvalid):
            decode(changed(**{name: bounds}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": "ab"}, {"path": ["a", 1]}, {"path": ["a"]}, {"path": ["a", "b", "c"]}, {"path": []}, {"path": None},
        {"partition": [["AQ=="]]}, {"partition": [["AQ==", None], [None]]}, {"partition": [["AQ==", 1]]},
        {"partition": [["AQ==", "AQ="]]}, {"partition": None}, {"partition": [[None] * 3]}, {"partition": [[]]},
        {"splits": [[4], [4], [4]]}, {"splits": [4]}, {"splits": [["4"]]}, {"splits": []}, {"splits": [[True]]},
        {"splits": 4}, {"values": {"7": "rows"}}, {"sizes": [1]}, {"lower": [1]},
    ],
    ids=repr,
)  # fmt: skip
def test_every_column_has_one_value_for_each_file_or_one_for_all(wrong: dict[str, Any]) -> None:
    assert len(decode(changed(partition=[], splits=[[4], []])).files) == 2
    with pytest.raises(ReceiptInvalid):
        decode(changed(**wrong))


@pytest.mark.parametrize("groups", [{"a": 1}, [1], ["x"], [[]], [{}], [None], None, 1, "x"], ids=repr)
def test_files_are_a_list_of_groups(groups: Any) -> None:
    with pytest.raises(ReceiptInvalid):
        decode(packed(document() | {"files": groups}))


@pytest.mark.parametrize("name", ["sizes", "lower", "partition", "splits"])
def test_a_short_receipt_cannot_stand_for_any_number_of_values(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("lakesink_protocol.receipt_json.MOST_STATISTICS", 1_000)
    many: dict[str, Any] = {
        "sizes": {str(number): [5] for number in range(1, 601)},
        "lower": {str(number): [[0], ""] for number in range(1, 601)},
        "partition": [[None, None]] * 600,
        "splits": [list(range(600))],
    }
    with pytest.raises(ReceiptInvalid, match="more than 1000 statistics"):
        decode(changed(**{name: many[name]}))
    monkeypatch.setattr("lakesink_protocol.receipt_json.MOST_STATISTICS", 1_300)
    assert len(decode(changed(**{name: many[name]})).files) == 2


KEYS_FILE = KeysFile("file:///t/data/a.keys", 1, 3, 700, "0a" * 32)


def test_a_receipt_of_a_task_that_only_appends_says_nothing_of_changes() -> None:
    assert document()["changes"] is None
    assert not decode(encode(WHOLE)).changes_by_key


def test_a_receipt_of_changes_counts_what_its_rows_are() -> None:
    sent = replace(WHOLE, keys=KEYS_FILE, changed=Tally(zip(OF_CHANGES, (1, 2, 4, 3), strict=True)))
    found = decode(encode(sent))
    assert (found, found.changes, found.changes_by_key) == (sent, 3 + 4 - 3, True)
    changes = json.loads(zlib.decompress(encode(sent)))["changes"]
    assert changes == [["file:///t/data/a.keys", 1, 3, 700, "0a" * 32], 1, 2, 4, 3]


@pytest.mark.parametrize(
    "changes",
    [
        [], [None, 1, 2, 3], [None, 1, 2, 3, 4, 5], [None, -1, 0, 0, 0], [None, 0, True, 0, 0], [None, 0, 0, 2**63, 0],
        [None, 0, 0, 0, "1"], [["a", 0, 1, 2], 0, 0, 0, 0], [["a", 0, 1, 2, "0" * 63], 0, 0, 0, 0],
        [["a", 0, 1, 2, "A" * 64], 0, 0, 0, 0], [["a", 0, 1, 2, "0" * 64 + "\n"], 0, 0, 0, 0],
        [["a", 0, 1, -2, "0" * 64], 0, 0, 0, 0], [["a", 0, 1.0, 2, "0" * 64], 0, 0, 0, 0], [[0] * 5, 0, 0, 0, 0],
        [[7, 0, 1, 2, "0" * 64], 0, 0, 0, 0], ["abcde", 0, 0, 0, 0], 7, "12345", {"a": 1}, True,
    ],
    ids=repr,
)  # fmt: skip
def test_a_receipt_with_wrong_changes_is_none(changes: Any) -> None:
    assert decode(packed(document() | {"changes": [["a", 0, 1, 2, "0" * 64], 0, 0, 0, 0]})).keys is not None
    with pytest.raises(ReceiptInvalid):
        decode(packed(document() | {"changes": changes}))


def test_a_receipt_with_more_malformed_values_than_a_task_may_send_is_refused() -> None:
    misfit = Misfit("row 1 of task 0", "id", "BIGINT", "text of 1 character")
    assert len(decode(encode(replace(WHOLE, misfits=(misfit,) * MOST_MISFITS))).misfits) == MOST_MISFITS
    with pytest.raises(ReceiptInvalid, match="malformed values"):
        decode(encode(replace(WHOLE, misfits=(misfit,) * (MOST_MISFITS + 1))))


def test_words_in_a_receipt_are_cut_and_move_no_terminal() -> None:
    misfit = Misfit("\x1b[2J" + "x" * 1000, "y" * 1000, "z" * 1000, "\n" * 1000)
    [found] = decode(encode(replace(WHOLE, misfits=(misfit,)))).misfits
    assert found.place.startswith("?[2Jxxx")
    assert [len(found.place), len(found.column), len(found.expected), found.found] == [300, 120, 120, "?" * 120]


@pytest.mark.parametrize(
    "document",
    [
        {"rescued_rows": -1},
        {"rescued": []},
        {"rescued": {"a: no column": True}},
        {"rescued": {"a: no column": 2**63}},
        {"rescued": {"a": 1}},
        {"rescued": {"a: no such reason": 1}},
        {"rescued": {": no column": 1}},
        {"rescued": {f"{'a' * 201}: no column": 1}},
        {"rescued": {f"a{number}: no column": 1 for number in range(22)}},
        {"unknown_keys": "1"},
        {"unknown_names": ["x"] * 11},
        {"unknown_names": [1]},
        {"unknown_names": "x"},
        {"unmet_rows": -1},
        {"dead_letters": True},
        {"unmet": {"a": 2**63}},
        {"unmet": {"a b": 1}},
        {"unmet": {f"a{number}": 1 for number in range(51)}},
        {"unmet": [1]},
        {"letters_table": "t" * 1_025},
        {"letters_since": "t" * 1_025},
        {"letters_table": 7},
        {"rescued": {f"c{number:02}: no column": 1 for number in range(22)}},
    ],
)
def test_counts_of_documents_are_counts_and_a_few_names(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"unknown keys|whole number|names with counts|rescued row|no short text"):
        quality_from(Quality().to_json() | document)


def test_the_longest_names_of_tables_and_the_most_names_and_expectations_are_allowed() -> None:
    most = {
        "letters_table": "t" * 1_024,
        "letters_since": "s" * 1_024,
        "unknown_names": [f"n{number}" for number in range(10)],
        "unmet": {f"a{number}": 1 for number in range(50)},
        "rescued": {f"c{number:02}: no column": 1 for number in range(20)} | {"others": 3},
    }
    assert quality_from(Quality().to_json() | most).to_json() == Quality().to_json() | most


@pytest.mark.parametrize("text", ["AAA", "AAAA=", "AAAA====", "A===", "AA=", "A A=", "AAAA\n", "=AAA", "AA==AAAA"])
def test_a_text_that_is_not_base64_to_the_last_character_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"(?i)base64|padding"):
        binary(text)


def test_reasons_of_rescued_rows_are_safe_to_show_and_short() -> None:
    hostile = {"\x1b[2J: no column": 1, "password=hunter2: no column": 2, f"{'a' * 150}: not INT": 3}
    found = quality_from(Quality().to_json() | {"rescued_rows": 3, "rescued": hostile})
    assert found.rescued == {"?[2J: no column": 1, "password=***: no column": 2, f"{'a' * 60}: not INT": 3}


@given(st.lists(st.dictionaries(st.integers(0, 60).map("k{:02}: no column".format), st.integers(1, 9)), max_size=6))
def test_reasons_of_rescued_rows_do_not_depend_on_the_split_into_tasks(parts: list[dict[str, int]]) -> None:
    tasks = [Quality(Tally({RESCUED_ROWS: 9}), rescued=first_reasons(part.items())) for part in parts]
    every = sorted({reason for part in parts for reason in part})
    whole = {reason: sum(part.get(reason, 0) for part in parts) for reason in every}
    found = together(tasks).rescued
    assert found == first_reasons(whole.items())
    assert {reason: found[reason] for reason in every[:20]} == {reason: whole[reason] for reason in every[:20]}
    assert sum(found.values()) == sum(whole.values())
    assert len(found) <= 21
    assert rescued_in(Quality(rescued=found).to_summary().get(RESCUED, "")) == found


def test_a_summary_names_the_unknown_keys() -> None:
    summary = Quality(Tally({UNKNOWN_KEYS: 3}), ("new", "più")).to_summary()
    assert (summary[UNKNOWN_KEYS.key], json.loads(summary[UNKNOWN_NAMES])) == ("3", ["new", "più"])


def test_a_summary_has_every_expectation_also_one_that_was_met() -> None:
    summary = Quality(Tally({UNMET_ROWS: 3}), unmet={"valid_age": 3, "has_id": 0}).to_summary()
    assert (summary["lakesink.unmet.valid_age"], summary["lakesink.unmet.has_id"]) == ("3", "0")
    assert unmet_in(summary.items()) == {"valid_age": 3, "has_id": 0}


def test_no_changes_are_counts_of_zero() -> None:
    assert set(ChangeCounts().to_summary().values()) == {"0"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a: no column": "1"}', "[" * 100_000])
def test_a_summary_with_other_reasons_has_none(text: str) -> None:
    assert rescued_in(text) == {}
