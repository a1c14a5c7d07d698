"""What a receipt may say and what not, each rule at its limit, on a table that is in memory only."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from lakesink.rows.expectations import Expected, OnUnmet
from lakesink.sinks.iceberg.checked_receipts import CombinedReceipts, count_votes, is_data_file
from lakesink_catalog.commit.premises import premises_of
from lakesink_protocol.change import ContentFile
from lakesink_protocol.errors import WriteError
from lakesink_protocol.measures import DEAD_LETTERS, RESCUED_ROWS, UNKNOWN_KEYS, UNMET_ROWS, Measure, Tally
from lakesink_protocol.quality import OTHERS, Quality
from lakesink_protocol.receipt import MOST_MISFITS, LeftRows, Misfit, Receipt, encode
from lakesink_protocol.receipt_json import MOST_IN_A_BATCH
from lakesink_protocol.row_changes import DELETES, SPLITS, SUPERSEDED, TOMBSTONES, KeysFile
from testkit.tasks import table_in_memory

STEM, UUID = "events-7", "00000000-0000-4000-8000-00000000000"
EXPECTED = (Expected("warned", OnUnmet.WARN), Expected("failed", OnUnmet.FAIL))
MET = {"warned": 0, "failed": 0}
REJECTED, REFUSED = "LAKESINK_RECEIPT_REJECTED", "LAKESINK_VALUE_MALFORMED"


ID = NestedField(1, "id", LongType())
TABLE, FOLLOWED = table_in_memory(Schema(ID)), table_in_memory(Schema(ID, NestedField(2, "new", LongType())))
"""A table, and the same after its schema followed the rows that tasks left."""


def written(task: int = 0, rows: int = 3, number: int = 0, **changes: Any) -> ContentFile:
    path = f"file:///t/data/{STEM}-{task:05d}-{UUID}{number}.parquet"
    return replace(ContentFile(path, 0, (), rows, 90, {}, {}, {}, {}, {}, {}, ()), **changes)


def receipt(task: int = 0, rows: int = 3, table: Table = TABLE, **changes: Any) -> Receipt:
    """The receipt of a task that wrote all its rows into one file."""
    premises = premises_of(table.metadata, 0, [0])
    assert premises is not None
    files = (written(task, rows),)
    return replace(Receipt(task, rows, files, 0, Quality(unmet=MET), premises=premises.digest), **changes)


def quality(counts: Mapping[Measure, int], unmet: Mapping[str, int] = MET, **more: Any) -> Quality:
    return Quality(Tally(counts), unmet=unmet, **more)


def refusing(rows: int = 3, malformed: int = 1, **changes: Any) -> Receipt:
    """The receipt of a task that refuses the batch, and wrote nothing."""
    return receipt(rows=rows, files=(), malformed=malformed, refused=True, **changes)


def counted(*receipts: Receipt, rest: Table | None = None, by_key: bool = False) -> CombinedReceipts:
    encoded = list(map(encode, receipts))
    return count_votes(encoded, TABLE, STEM, 7, EXPECTED, rest=rest, changes_by_key=by_key)


def code_of(*receipts: Receipt, **how: Any) -> str:
    """The code of the error; empty if the receipts count."""
    try:
        counted(*receipts, **how)
    except WriteError as error:
        return error.code
    return ""


def test_receipts_are_combined_in_the_order_of_the_tasks() -> None:
    found = counted(receipt(1, 4), receipt(0, 3))
    assert found.files == (written(0, 3), written(1, 4))
    assert (found.rows, found.keys_files, found.changed, found.quality) == (7, (), {}, Quality(unmet=MET))
    assert found.schema == TABLE.schema()


@pytest.mark.parametrize("rest", [None, FOLLOWED])
def test_a_batch_of_no_tasks_is_empty_and_meets_what_is_expected(rest: Table | None) -> None:
    found = counted(rest=rest)
    assert (found.rows, found.files, found.quality, found.schema) == (0, (), Quality(unmet=MET), TABLE.schema())


def test_rows_that_tasks_left_are_counted_once_and_the_last_schema_is_that_of_the_driver() -> None:
    left = receipt(files=(), left=LeftRows("file:///left", 3, 9))
    found = counted(left, receipt(1, table=FOLLOWED), rest=FOLLOWED)
    assert (found.rows, [file.record_count for file in found.files]) == (3, [3])
    assert found.schema == FOLLOWED.schema()


@pytest.mark.parametrize(
    ("of_task", "of_driver", "is_right"),
    [
        ({"files": (), "left": LeftRows("l", 3, 9)}, {}, True),
        ({"files": (), "left": LeftRows("l", 3, 9)}, {"rows": 2, "files": (written(1, 2),)}, False),
        ({"rows": 7, "left": LeftRows("l", 4, 9)}, {"rows": 4, "files": (written(1, 4),)}, True),
        ({"rows": 7, "left": LeftRows("l", 4, 9)}, {}, False),
        ({}, {}, True),  # a changelog has all changes, and no task left one
        ({}, {"rows": 5, "left": LeftRows("l", 2, 9)}, False),
    ],
)
def test_the_driver_writes_what_the_tasks_left_and_leaves_nothing(
    of_task: dict[str, Any], of_driver: dict[str, Any], *, is_right: bool
) -> None:
    votes = replace(receipt(), **of_task), replace(receipt(1, table=FOLLOWED), **of_driver)
    assert code_of(*votes, rest=FOLLOWED) == ("" if is_right else REJECTED)


ALLOWED: dict[str, Receipt] = {
    "a dead letter beside the rows": receipt(rows=4, files=(written(),), quality=quality({DEAD_LETTERS: 1})),
    "all rows dead letters": receipt(files=(), quality=quality({DEAD_LETTERS: 3})),
    "all rows rescued": receipt(quality=quality({RESCUED_ROWS: 3}, rescued={"a: no column": 3})),
    "rows with two reasons": receipt(quality=quality({RESCUED_ROWS: 2}, rescued={"a: no column": 2, "b: not INT": 1})),
    "a reason each": receipt(quality=quality({RESCUED_ROWS: 3}, rescued={"a: no column": 2, "b: not INT": 1})),
    "other reasons of few rows": receipt(quality=quality({RESCUED_ROWS: 1}, rescued={OTHERS: MOST_IN_A_BATCH})),
    "more unknown keys than rows": receipt(quality=quality({UNKNOWN_KEYS: 4})),
    "all rows unmet": receipt(quality=quality({UNMET_ROWS: 3}, {"warned": 3, "failed": 0})),
    "the smallest file": receipt(rows=1, files=(written(rows=1, file_size_bytes=1),)),
    "as many NULLs as values": receipt(
        files=(written(value_counts={1: 3}, null_value_counts={1: 3}, nan_value_counts={1: 3}),)
    ),
    "no NULLs of a column without values": receipt(files=(written(null_value_counts={1: 0}),)),
    "row groups up to the last byte": receipt(files=(written(split_offsets=(4, 89)),)),
    "two files": receipt(rows=6, files=(written(), written(number=1))),
    "most rows": receipt(rows=MOST_IN_A_BATCH, files=(written(rows=MOST_IN_A_BATCH),)),
    "most bytes": receipt(files=(written(file_size_bytes=MOST_IN_A_BATCH),)),
}
IMPOSSIBLE: dict[str, tuple[Receipt, str]] = {
    "a row too many": (receipt(rows=4, files=(written(),)), "another number of rows"),
    "a row too few": (receipt(rows=2, files=(written(),)), "another number of rows"),
    "left rows that count twice": (receipt(left=LeftRows("l", 1, 9)), "another number of rows"),
    "more dead letters than rows": (
        receipt(rows=1, files=(), quality=quality({DEAD_LETTERS: 2}), changed=Tally({SPLITS: 1})),
        "changed rows by key",
    ),
    "more rescued than rows": (
        receipt(quality=quality({RESCUED_ROWS: 4}, rescued={"a: no column": 4})),
        "more malformed or unexpected rows",
    ),
    "more unmet than rows": (
        receipt(quality=quality({UNMET_ROWS: 4}, {"warned": 4, "failed": 0})),
        "more malformed or unexpected rows",
    ),
    "fewer rescued than one reason has": (
        receipt(quality=quality({RESCUED_ROWS: 1}, rescued={"a: no column": 2, "b: not INT": 1})),
        "counts of rescued rows contradict",
    ),
    "rescued without a reason": (
        receipt(quality=quality({RESCUED_ROWS: 2}, rescued={"a: no column": 1})),
        "counts of rescued rows contradict",
    ),
    "too many other reasons": (
        receipt(quality=quality({RESCUED_ROWS: 1}, rescued={OTHERS: MOST_IN_A_BATCH + 1})),
        "more reasons of rescued rows than the limit",
    ),
    "a file outside": (receipt(files=(written(path="file:///u/data/x.parquet"),)), "outside the table's data location"),
    "a file of another task": (receipt(files=(written(1),)), "the name of another task"),
    "one of two files of another task": (receipt(rows=6, files=(written(), written(1))), "the name of another task"),
    "no rows in a file": (receipt(rows=0, files=(written(rows=0),)), "is empty, or has a partition spec"),
    "no bytes in a file": (receipt(files=(written(file_size_bytes=0),)), "is empty, or has a partition spec"),
    "a file of another spec": (receipt(files=(written(spec_id=1),)), "is empty, or has a partition spec"),
    "a partition of no field": (receipt(files=(written(partition=(None,)),)), "is empty, or has a partition spec"),
    "more NULLs than values": (
        receipt(files=(written(value_counts={1: 3}, null_value_counts={1: 4, 2: 0}),)),
        "contradict each other",
    ),
    "more NaNs than values": (
        receipt(files=(written(value_counts={1: 3}, nan_value_counts={1: 4, 2: 0}),)),
        "contradict each other",
    ),
    "a row group beyond the end": (receipt(files=(written(split_offsets=(4, 90)),)), "contradict each other"),
    "a bound of another width": (receipt(files=(written(lower_bounds={1: bytes(7)}),)), "not a value of its column"),
    "malformed documents without refusing": (
        receipt(rows=4, files=(written(),), malformed=1, quality=quality({DEAD_LETTERS: 1})),
        "did not refuse the batch",
    ),
    "an expectation less": (receipt(quality=Quality(unmet={"warned": 0})), "other expectations"),
    "an expectation more": (receipt(quality=Quality(unmet=MET | {"own": 0})), "other expectations"),
    "a file twice": (receipt(rows=6, files=(written(), written())), "listed twice"),
    "a row above the limit": (
        receipt(rows=MOST_IN_A_BATCH + 1, files=(written(rows=MOST_IN_A_BATCH + 1),)),
        "more rows or bytes",
    ),
    "a byte above the limit": (receipt(files=(written(file_size_bytes=MOST_IN_A_BATCH + 1),)), "more rows or bytes"),
    "another schema": (receipt(schema_id=1), "different schemas"),
    "other premises": (receipt(premises="0" * 32), "now means another one"),
    "an order of other premises": (receipt(files=(written(sort_order_id=1),)), "now means another one"),
    "refusing without a reason": (refusing(malformed=0), "gave no reason"),
    "refusing what only warns": (
        refusing(malformed=0, quality=quality({UNMET_ROWS: 1}, {"warned": 1, "failed": 0})),
        "gave no reason",
    ),
    "refusing, but with files": (replace(refusing(), files=(written(),)), "but wrote files"),
    "more malformed than rows": (refusing(malformed=4), "more malformed or unexpected rows"),
    "too few unmet rows": (
        receipt(quality=quality({UNMET_ROWS: 1}, {"warned": 2, "failed": 1})),
        "counts of expectations contradict",
    ),
    "too many unmet rows": (
        receipt(quality=quality({UNMET_ROWS: 3}, {"warned": 1, "failed": 1})),
        "counts of expectations contradict",
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_a_receipt_may_say(name: str) -> None:
    assert code_of(ALLOWED[name]) == ""


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_no_receipt_says(name: str) -> None:
    impossible, why = IMPOSSIBLE[name]
    with pytest.raises(WriteError, match=why) as error:
        counted(impossible)
    assert error.value.code == REJECTED


def test_junk_is_no_receipt() -> None:
    with pytest.raises(WriteError, match="not a receipt") as error:
        count_votes([b"junk"], TABLE, STEM, 7)
    assert error.value.code == REJECTED


@pytest.mark.parametrize(
    ("folder", "stem", "task", "is_one"),
    [
        ("file:///t/data", STEM, None, True),
        ("file:///t/data", STEM, 0, True),
        ("file:///t/data", STEM, 1, False),
        ("file:///t/data", "events-8", None, False),
        ("file:///u/data", STEM, None, False),
        ("file:///u/../t/data", STEM, None, False),
    ],
)
def test_a_data_file_is_below_the_folder_and_has_the_name_of_its_batch(
    folder: str, stem: str, task: int | None, *, is_one: bool
) -> None:
    path = written().path if ".." not in folder else written().path.replace("file:///t/data", folder)
    assert is_data_file(path, folder, stem, task) is is_one


@pytest.mark.parametrize("tasks", [(1,), (0, 2), (0, 0)])
def test_there_is_one_receipt_of_every_task(tasks: tuple[int, ...]) -> None:
    votes = [receipt(task, files=(written(task, number=number),)) for number, task in enumerate(tasks)]
    with pytest.raises(WriteError, match="exactly one receipt of every task"):
        counted(*votes)


def test_tasks_write_under_one_schema() -> None:
    assert code_of(receipt(), receipt(1, schema_id=1)) == REJECTED


def test_rows_and_bytes_are_limited_for_all_files_together() -> None:
    halves = receipt(files=(written(file_size_bytes=MOST_IN_A_BATCH - 9),)), receipt(1)
    assert code_of(*halves) == REJECTED


@pytest.mark.parametrize("malformed", [1, 3])
def test_a_task_that_refuses_says_so_of_as_many_rows_as_it_found_and_accounts_for_no_other(malformed: int) -> None:
    assert code_of(refusing(malformed=malformed)) == REFUSED
    assert code_of(refusing(malformed=malformed, left=LeftRows("l", 2, 9))) == REFUSED


@pytest.mark.parametrize(("warned", "unmet_rows"), [(2, 2), (2, 3)])
def test_an_expectation_that_fails_the_batch_is_a_reason_to_refuse(warned: int, unmet_rows: int) -> None:
    found = quality({UNMET_ROWS: unmet_rows}, {"warned": warned, "failed": 1})
    assert code_of(refusing(malformed=0, quality=found)) == "LAKESINK_EXPECTATION_UNMET"


def keys(rows: int, task: int = 0, **changes: Any) -> KeysFile:
    path = f"file:///t/data/{STEM}-{task:05d}-{UUID}0.keys"
    return replace(KeysFile(path, task, rows, 9, "0" * 64), **changes)


def changing(rows: int = 3, changed: Mapping[Measure, int] | None = None, **changes: Any) -> Receipt:
    """The receipt of a task that wrote three changes, and the keys of them."""
    facts: dict[str, Any] = {"files": (written(),), "changed": Tally(changed or {}), "keys": keys(3)}
    return receipt(rows=rows, **facts | changes)


@pytest.mark.parametrize(
    ("of_task", "why"),
    [
        (changing(), ""),
        (changing(4, {SUPERSEDED: 1}), ""),
        (changing(4, {DELETES: 1}, keys=keys(4)), ""),
        (changing(1, {DELETES: 1}, files=(), keys=keys(1)), ""),
        (changing(3, {SPLITS: 3, TOMBSTONES: 3}), ""),
        (changing(2, {SPLITS: 2, SUPERSEDED: 1}), ""),
        (changing(2, {SUPERSEDED: 2}, files=(), keys=None), ""),
        (changing(0, files=(), keys=None), ""),
        (changing(keys=keys(3, size_bytes=1)), ""),
        (changing(4), "another number of rows"),
        (changing(3, {SUPERSEDED: 1}), "another number of rows"),
        (changing(3, {DELETES: 1}, keys=keys(4)), "another number of rows"),
        (changing(2, {SPLITS: 3, SUPERSEDED: 2}), "split more rows than it received"),
        (changing(3, {SPLITS: 3, TOMBSTONES: 4, SUPERSEDED: 0}, files=(written(rows=2),)), "split more rows"),
        (changing(4, {DELETES: 1}), "another number of changes than the task wrote"),
        (changing(keys=keys(4)), "another number of changes than the task wrote"),
        (changing(keys=None), "another number of changes than the task wrote"),
        (changing(files=(), keys=keys(0), refused=True, malformed=1), "another number of changes than the task wrote"),
        (changing(keys=keys(3, path="file:///u/data/x.keys")), "a file of keys is outside"),
        (changing(keys=keys(3, task=1)), "the name of another task"),
        (changing(keys=replace(keys(3, 1), task=0)), "the name of another task"),
        (changing(keys=keys(3, size_bytes=0)), "a file of keys is empty"),
    ],
)
def test_the_file_of_keys_has_what_the_task_wrote(of_task: Receipt, why: str) -> None:
    if not why:
        found = counted(of_task, by_key=True)
        assert (found.rows, found.changed) == (of_task.rows, of_task.changed)
        assert found.keys_files == (() if of_task.keys is None else (of_task.keys,))
    else:
        with pytest.raises(WriteError, match=why) as error:
            counted(of_task, by_key=True)
        assert error.value.code == REJECTED


def test_a_task_without_keys_may_refuse_changes() -> None:
    assert code_of(refusing(), by_key=True) == REFUSED


@pytest.mark.parametrize(
    "of_task",
    [
        changing(),
        changing(4, {SUPERSEDED: 1}, keys=None),
        changing(4, {DELETES: 1}, keys=None),
        changing(2, {SPLITS: 1}, keys=None),
        changing(4, {TOMBSTONES: 1}, keys=None),
    ],
)
def test_rows_that_are_appended_are_no_changes(of_task: Receipt) -> None:
    with pytest.raises(WriteError, match="changed rows by key, but its rows were to be appended"):
        counted(of_task)


def refused_with(*misfits: Sequence[Misfit]) -> WriteError:
    votes = [
        refusing(99, max(len(own), 1), task=task, misfits=tuple(own)) for task, own in reversed([*enumerate(misfits)])
    ]
    with pytest.raises(WriteError) as error:
        counted(*votes)
    assert error.value.code == REFUSED
    return error.value


def test_a_refusal_counts_all_malformed_documents_and_names_the_first_of_the_first_task() -> None:
    error = refused_with([Misfit("row 4", "", "JSON", "text")], [Misfit("row 2", "id", "BIGINT", "text")] * 2)
    first = "row 4: JSON expected, found text"
    assert error.what == f"3 malformed documents in batch 7; the first: {first}."
    assert list(error.details) == [first, *["row 2: column id: BIGINT expected, found text"] * 2]


def test_a_task_without_an_example_is_counted_too() -> None:
    assert refused_with([], []).what == "2 malformed documents in batch 7."


@pytest.mark.parametrize(("examples", "says"), [(MOST_MISFITS - 1, "19 mal"), (MOST_MISFITS, "At least 20 mal")])
def test_a_task_that_gives_as_many_examples_as_it_may_can_have_more(examples: int, says: str) -> None:
    error = refused_with([Misfit("r", "c", "INT", "x")] * examples)
    assert error.what.startswith(says)
    assert len(error.details) == examples


def test_all_tasks_together_give_no_more_examples_than_one_may() -> None:
    error = refused_with([Misfit("r", "c", "INT", "x")] * 12, [Misfit("s", "c", "INT", "x")] * 12)
    assert [line[0] for line in error.details] == ["r"] * 12 + ["s"] * 8


@pytest.mark.parametrize(("length", "shown"), [(81, 81), (82, 81), (200, 81)])
def test_a_long_place_is_cut_at_its_start_so_that_the_first_line_fits(length: int, shown: int) -> None:
    place = "".join(chr(ord("a") + at % 26) for at in range(length))
    what = refused_with([Misfit(place, "id", "BIGINT", "text")]).what
    begin, end = "1 malformed document in batch 7; the first: ", ": column id: BIGINT expected, found text."
    said = what.removeprefix(begin).removesuffix(end)
    assert len(what) == 165 + 1
    assert said == (place if length == shown else f"...{place[3 - shown :]}")


def test_the_end_of_a_place_is_said_in_any_case() -> None:
    place = "".join(chr(ord("a") + at % 26) for at in range(60))
    what = refused_with([Misfit(place, "c" * 100, "BIGINT", "text")]).what
    assert f"the first: ...{place[-21:]}: column ccc" in what
