"""Receipts of changes by key count if every file of keys has the changes of its task, and else fail the batch."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.rows.plan import ChangesPlan
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import task_plan
from lakesink.sinks.iceberg.checked_receipts import CombinedReceipts, check_documents, count_votes
from lakesink_protocol.errors import WriteError
from lakesink_protocol.measures import Measure, Tally
from lakesink_protocol.receipt import Receipt, decode, encode
from lakesink_protocol.row_changes import DELETES, SPLITS, SUPERSEDED, TOMBSTONES, KeysFile, Mode
from testkit.builders import ROWS, Lake, Stream
from testkit.tasks import writer_of


def changes(*rows: tuple[int, int, bool]) -> pa.RecordBatch:
    """Changes of keys (``batch``), with their sequence (``position``), and whether they are deletes."""
    keys, sequences, deletes = zip(*rows, strict=True)
    arrays = [pa.array(keys, pa.int64()), pa.array(sequences, pa.int64()), pa.nulls(len(rows), pa.int64())]
    return pa.RecordBatch.from_arrays([*arrays, pa.array(deletes)], names=[*ROWS.names, DELETE_MARK])


TASKS: Sequence[Sequence[pa.RecordBatch]] = (
    [changes((1, 1, False), (2, 1, False)), changes((1, 2, False), (3, 1, True))],
    [changes((4, 1, False))],
    [],
)


def cast(lake: Lake) -> list[Receipt]:
    """The receipts of three tasks: one with two rows, a delete and a superseded change, one with a row, one without."""
    stream = Stream(lake)
    plan = task_plan(lake.table(), stream.batch(1), stream.key, Settings())
    writer = writer_of(replace(plan, changes=ChangesPlan(Mode.CHANGES, (1,), (2,))))
    return [decode(writer.write(task, iter(batches))) for task, batches in enumerate(TASKS)]


def combined(lake: Lake, receipts: list[Receipt]) -> CombinedReceipts:
    return count_votes(list(map(encode, receipts)), lake.table(), "events-1", 1, changes_by_key=True)


def test_receipts_of_changes_are_combined_in_any_order(lake: Lake) -> None:
    receipts = cast(lake)
    found = combined(lake, receipts[::-1])
    assert (found.rows, found.changed) == (5, {SUPERSEDED: 1, DELETES: 1})
    assert [(keys.task, keys.rows) for keys in found.keys_files] == [(0, 3), (1, 1)]
    assert sum(file.record_count for file in found.files) == 3


def test_splits_and_tombstones_are_part_of_the_law(lake: Lake) -> None:
    first, *others = cast(lake)
    found = combined(lake, [more(first, {SPLITS: 1, TOMBSTONES: 2}, rows=1), *others])
    assert (found.rows, found.changed) == (6, {SUPERSEDED: 1, DELETES: 1, SPLITS: 1, TOMBSTONES: 2})


def more(vote: Receipt, changed: dict[Measure, int], *, rows: int = 0) -> Receipt:
    """A vote that counts more."""
    return replace(vote, rows=vote.rows + rows, changed=Tally.total([vote.changed, Tally(changed)]))


def with_keys(change: Callable[[KeysFile], KeysFile]) -> Callable[[Receipt], Receipt]:
    return lambda vote: replace(vote, keys=change(keys_of(vote)))


def keys_of(vote: Receipt) -> KeysFile:
    assert vote.keys is not None
    return vote.keys


def renamed(old: str, new: str) -> Callable[[Receipt], Receipt]:
    return with_keys(lambda keys: replace(keys, path=keys.path.replace(old, new)))


BAD: dict[str, Callable[[Receipt], Receipt]] = {
    "with a row that nothing accounts for": lambda vote: replace(vote, rows=vote.rows + 1),
    "with one superseded change too many": lambda vote: more(vote, {SUPERSEDED: 1}),
    "with a delete that its keys lack": lambda vote: more(vote, {DELETES: 1}, rows=1),
    "with a split row that is no change": lambda vote: more(vote, {SPLITS: 1}),
    "with a tombstone that is a change": lambda vote: more(vote, {TOMBSTONES: 1}),
    "with more splits than rows": lambda vote: more(vote, {SPLITS: vote.rows + 1, SUPERSEDED: vote.rows + 1}),
    "with more tombstones than rows": lambda vote: more(vote, {TOMBSTONES: vote.rows + 1, SPLITS: vote.rows + 1}),
    "without its keys": lambda vote: replace(vote, keys=None),
    "with the keys of fewer changes": with_keys(lambda keys: replace(keys, rows=keys.rows - 1)),
    "with the keys of more changes": with_keys(lambda keys: replace(keys, rows=keys.rows + 1)),
    "with keys without bytes": with_keys(lambda keys: replace(keys, size_bytes=0)),
    "with the keys of another task": with_keys(lambda keys: replace(keys, task=1)),
    "with keys named for another task": renamed("-00000-", "-00001-"),
    "with keys named for another batch": renamed("/events-1-", "/events-0-"),
    "with keys named for another sink": renamed("/events-1-", "/clicks-1-"),
    "with keys elsewhere": with_keys(lambda keys: replace(keys, path="file:///etc/passwd")),
    "with keys in the metadata": renamed("/data/", "/metadata/"),
    "with keys that climb": renamed("/data/", "/data/../data/"),
    "with keys in a folder": renamed("/data/", "/data/a/"),
    "with keys that are rows": renamed(".keys", ".parquet"),
    "that refuses the batch, but wrote keys": lambda vote: replace(vote, refused=True),
}


@pytest.mark.parametrize("name", BAD)
def test_a_receipt_fails_the_batch(lake: Lake, name: str) -> None:
    first, *others = cast(lake)
    with pytest.raises(WriteError) as error:
        combined(lake, [BAD[name](first), *others])
    assert error.value.code == "LAKESINK_RECEIPT_REJECTED"
    assert len(str(error.value).partition("\n")[0]) < 200
    combined(lake, [first, *others])


def test_changes_are_refused_where_rows_are_appended(lake: Lake) -> None:
    with pytest.raises(WriteError, match="RECEIPT_REJECTED"):
        count_votes(list(map(encode, cast(lake))), lake.table(), "events-1", 1)


def test_dead_letters_are_offered_for_changes_with_what_they_need() -> None:
    malformed = Receipt(0, 2, (), malformed=1, refused=True)
    with pytest.raises(WriteError, match="LAKESINK_VALUE_MALFORMED") as refused:
        check_documents([malformed], 7)
    assert "With changes, it needs sequence_by" in str(refused.value)
