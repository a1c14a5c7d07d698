"""Every row of the verdict table, reached on a real table by what really happens to tables."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakesink_protocol.errors import BatchRefused, CommitUnresolved, Reason
from lakesink_protocol.identity import MAIN_BRANCH, Batch
from lakesink_protocol.ledger import parse_entry
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import Lake, Stream, counted, expected, offered
from testkit.commits import fence_of
from testkit.maintenance import (
    FOREIGN_BATCH,
    append_foreign,
    branch_off,
    expire,
    expire_like_java,
    remove_ref,
    replace_table,
    roll_back,
    set_property,
    upgrade,
)

Reach = Callable[[Lake, Stream], Batch]
"""Brings the table to where the row applies and returns the batch that is judged."""


@dataclass(frozen=True)
class Row:
    number: int
    reach: Reach
    verdict: Reason | type[Committed | AlreadyCommitted]
    left: tuple[int, ...] = ()
    """Batches whose rows the branch holds before the batch is judged."""
    branch: str = MAIN_BRANCH


def after(batches: int, judged: Callable[[Stream], Batch], *then: Callable[[Lake, Stream], object]) -> Reach:
    """So many batches land, then something happens, then a batch is judged."""

    def reach(lake: Lake, stream: Stream) -> Batch:
        for batch_id in range(batches):
            assert isinstance(stream.run(batch_id), Committed)
        for step in then:
            step(lake, stream)
        return judged(stream)

    return reach


def asks(batch_id: int, *, start: int | None = None, end: int | None = None) -> Callable[[Stream], Batch]:
    return lambda stream: stream.batch(batch_id, start=start, end=end)


def new_checkpoint(batch_id: int, start: int) -> Callable[[Stream], Batch]:
    def judged(stream: Stream) -> Batch:
        stream.query = "query-2"
        return stream.batch(batch_id, start=start)

    return judged


def undo_to(batch_id: int) -> Callable[[Lake, Stream], None]:
    def step(lake: Lake, stream: Stream) -> None:
        roll_back(lake, stream.snapshot_of(batch_id), stream.branch)

    return step


def foreign(lake: Lake, stream: Stream) -> None:
    append_foreign(lake, stream.branch)


def ledger(value: str | None) -> Callable[[Lake, Stream], None]:
    return lambda lake, stream: set_property(lake, stream.key.ledger_property, value)


def forge(old: str, new: str) -> Callable[[Lake, Stream], None]:
    def step(lake: Lake, stream: Stream) -> None:
        entry = lake.table().properties[stream.key.ledger_property]
        assert old in entry
        set_property(lake, stream.key.ledger_property, entry.replace(old, new))

    return step


def fork(lake: Lake, stream: Stream) -> None:
    branch_off(lake, "audit")
    stream.branch = "audit"


def replaced(lake: Lake, stream: Stream) -> None:
    replace_table(lake, stream.key.ledger_property)


def prepared_then_replaced(lake: Lake, stream: Stream) -> Batch:
    """The prepared record of a table that was dropped lies where its successor of the same name looks."""
    lake.catalog.faults = [lake.catalog.arrives_late, lake.catalog.arrives_late]
    with pytest.raises(CommitUnresolved):
        stream.run(0)
    replace_table(lake)
    return stream.batch(0)


def foreign_then(batches: int) -> Reach:
    def reach(lake: Lake, stream: Stream) -> Batch:
        append_foreign(lake)
        first = lake.head().snapshot_id
        after(batches, asks(0))(lake, stream)
        roll_back(lake, first)
        return stream.batch(0)

    return reach


SKIPS, COMMITS = AlreadyCommitted, Committed
ROWS: dict[str, Row] = {
    "the table was upgraded": Row(1, after(2, asks(2), lambda lake, _: upgrade(lake)), Reason.UNSUPPORTED, (0, 1)),
    "the branch was dropped": Row(
        1, after(2, asks(2), lambda lake, _: remove_ref(lake, "audit")), Reason.BRANCH_MISSING, branch="audit"
    ),
    "the table was replaced and its properties restored": Row(2, after(2, asks(2), replaced), Reason.TABLE_REPLACED),
    "the entry is garbage": Row(3, after(2, asks(2), ledger("{")), Reason.LEDGER_DAMAGED, (0, 1)),
    "the entry is of the future": Row(
        3, after(2, asks(2), forge('"version":1', '"version":2')), Reason.LEDGER_DAMAGED, (0, 1)
    ),
    "the entry was forged high": Row(
        3, after(2, asks(9), forge('"batch_id":1', '"batch_id":9')), Reason.LEDGER_DAMAGED, (0, 1)
    ),
    "the entry was forged low": Row(
        3, after(2, asks(1), forge('"batch_id":1', '"batch_id":0')), Reason.LEDGER_DAMAGED, (0, 1)
    ),
    "the entry was removed": Row(4, after(2, asks(2), ledger(None)), Reason.LEDGER_LOST, (0, 1)),
    "the entry was removed and the stream starts anew": Row(
        4, after(2, asks(0), ledger(None), foreign), Reason.LEDGER_LOST, (0, 1)
    ),
    "a table that knows no batch": Row(5, after(0, asks(1)), Reason.UNKNOWN_HISTORY),
    "a branch forked from where the sink writes": Row(5, after(2, asks(0), fork), Reason.UNKNOWN_HISTORY, (0, 1)),
    "a branch forked, the stream goes on there": Row(5, after(2, asks(2), fork), Reason.UNKNOWN_HISTORY, (0, 1)),
    "the first batch": Row(6, after(0, asks(0)), COMMITS),
    "the first batch on a branch": Row(6, after(0, asks(0)), COMMITS, branch="audit"),
    "rolled back, a batch that stayed": Row(7, after(4, asks(1), undo_to(1)), SKIPS, (0, 1)),
    "rolled back, the batch after what stayed": Row(8, after(4, asks(2), undo_to(1)), COMMITS, (0, 1)),
    "rolled back, others went on, the batch after what stayed": Row(
        8, after(4, asks(2), undo_to(1), foreign, foreign), COMMITS, (0, 1)
    ),
    "rolled back to before the first batch": Row(9, foreign_then(3), COMMITS),
    "rolled back, new checkpoint where the table ends": Row(
        10, after(4, new_checkpoint(0, 2), undo_to(1)), COMMITS, (0, 1)
    ),
    "rolled back, the stream went on": Row(11, after(4, asks(4), undo_to(1)), Reason.ROLLED_BACK, (0, 1)),
    "rolled back, the last batch again": Row(11, after(4, asks(3), undo_to(1)), Reason.ROLLED_BACK, (0, 1)),
    "rolled back on a branch": Row(11, after(4, asks(4), undo_to(1)), Reason.ROLLED_BACK, (0, 1), branch="audit"),
    "rolled back, others went on, everything expired, the stream went on": Row(
        11,
        after(4, asks(4), undo_to(1), foreign, foreign, lambda lake, _: expire(lake)),
        Reason.ROLLED_BACK,
        (0, 1),
    ),
    "the same, expired as Java does": Row(
        11,
        after(4, asks(4), undo_to(1), foreign, foreign, lambda lake, _: expire_like_java(lake)),
        Reason.ROLLED_BACK,
        (0, 1),
    ),
    "rolled back to nothing": Row(11, after(2, asks(0), lambda lake, _: remove_ref(lake, "main")), Reason.ROLLED_BACK),
    "new checkpoint where the sink ended": Row(12, after(2, new_checkpoint(0, 2)), COMMITS, (0, 1)),
    "checkpoint lost": Row(13, after(2, new_checkpoint(0, 0)), Reason.NEW_CHECKPOINT, (0, 1)),
    "another query's later batch": Row(13, after(2, new_checkpoint(2, 2)), Reason.NEW_CHECKPOINT, (0, 1)),
    "replay of the last batch": Row(14, after(2, asks(1)), SKIPS, (0, 1)),
    "replay on a branch while main moves": Row(
        14, after(2, asks(1), lambda lake, _: append_foreign(lake)), SKIPS, (0, 1), branch="audit"
    ),
    "replay with other data": Row(15, after(2, asks(1, end=99)), Reason.BATCH_CHANGED, (0, 1)),
    "the next batch": Row(16, after(2, asks(2)), COMMITS, (0, 1)),
    "the next batch starts elsewhere": Row(17, after(2, asks(2, start=0)), Reason.BATCH_CHANGED, (0, 1)),
    "replay of an old batch": Row(18, after(3, asks(0)), SKIPS, (0, 1, 2)),
    "an old checkpoint with other data": Row(19, after(3, asks(1, end=99)), Reason.REWOUND, (0, 1, 2)),
    "an old batch that expired": Row(19, after(3, asks(0), lambda lake, _: expire(lake)), Reason.REWOUND, (0, 1, 2)),
    "a batch is missing": Row(20, after(2, asks(3)), Reason.GAP, (0, 1)),
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path, properties={"commit.retry.num-retries": "1"})


def stream_of(lake: Lake, row: Row) -> Stream:
    if row.branch != MAIN_BRANCH:
        append_foreign(lake)
        branch_off(lake, row.branch)
    return Stream(lake, branch=row.branch)


def rule_of(lake: Lake, stream: Stream, batch: Batch) -> int:
    return fence_of(lake.table, stream.key, stream.chance.effects()).decide(batch).verdict.rule


def own(lake: Lake, stream: Stream) -> Counter[tuple[int, int]]:
    if lake.table().snapshot_by_name(stream.branch) is None:
        return Counter()
    return Counter({row: count for row, count in counted(lake, stream.branch).items() if row[0] != FOREIGN_BATCH})


def test_every_row_is_reached_on_a_table() -> None:
    assert {row.number for row in ROWS.values()} == set(range(1, 21))


@pytest.mark.parametrize("name", ROWS)
def test_the_table_is_judged_as_the_protocol_writes(lake: Lake, name: str) -> None:
    row = ROWS[name]
    stream = stream_of(lake, row)
    batch = row.reach(lake, stream)
    assert rule_of(lake, stream, batch) == row.number
    location, files, writes = lake.table().metadata_location, lake.files(), stream.writes
    if isinstance(row.verdict, Reason):
        with pytest.raises(BatchRefused) as refused:
            stream.run(batch)
        assert refused.value.reason is row.verdict
    else:
        outcome = stream.run(batch)
        assert isinstance(outcome, row.verdict)
    if row.verdict is Committed:
        assert own(lake, stream) == expected(*row.left, stream.tells(batch))
    else:
        assert (lake.table().metadata_location, lake.files(), stream.writes) == (location, files, writes)
        assert own(lake, stream) == expected(*row.left)


OVERRULABLE = {name: row for name, row in ROWS.items() if isinstance(row.verdict, Reason) and row.number > 3}


@pytest.mark.parametrize("does", ["commit", "skip"])
@pytest.mark.parametrize("name", OVERRULABLE)
def test_an_operator_overrules_one_batch_by_what_is_offered_and_the_stream_goes_on(
    lake: Lake, name: str, does: str
) -> None:
    row = OVERRULABLE[name]
    assert isinstance(row.verdict, Reason)
    stream = stream_of(lake, row)
    batch = row.reach(lake, stream)
    rows_before = counted(lake, stream.branch) if lake.table().snapshot_by_name(stream.branch) else expected()
    with pytest.raises(BatchRefused) as refused:
        stream.run(batch)
    accept = offered(refused.value).get(does)
    if accept is None:
        assert does == "commit" or "No accept is possible" in refused.value.action
        return
    outcome = stream.run(batch, accept=accept)
    assert isinstance(outcome, Committed)
    assert outcome.accepted == accept
    assert stream.marks()[-1].accepted == accept
    added = expected(stream.tells(batch)) if does == "commit" else expected()
    assert counted(lake, stream.branch) == rows_before + added
    if max(counted(lake, stream.branch).values(), default=1) > 1:
        assert "twice" in refused.value.action, "no row comes twice without a word of it"
    entry = parse_entry(lake.table().properties[stream.key.ledger_property])
    assert entry.batch_id == (row.left[-1] if row.verdict is Reason.REWOUND else batch.batch_id)
    assert isinstance(stream.run(batch, accept=accept), AlreadyCommitted)
    [end] = json.loads(entry.offsets)
    with pytest.raises(BatchRefused):
        stream.run(stream.batch(entry.batch_id + 2, start=end), accept=accept)
    assert isinstance(stream.run(stream.batch(entry.batch_id + 1, start=end), accept=accept), Committed)
    assert stream.marks()[-1].accepted == ""


def test_what_is_not_overrulable_is_refused_whatever_was_accepted(lake: Lake) -> None:
    stream = Stream(lake)
    batch = after(2, asks(2), ledger("{"))(lake, stream)
    with pytest.raises(BatchRefused) as refused:
        stream.run(batch, accept="LedgerLost:2@none:commit")
    assert refused.value.reason is Reason.LEDGER_DAMAGED


def test_the_prepared_record_of_a_replaced_table_is_refused(lake: Lake) -> None:
    stream = Stream(lake)
    prepared_for = str(lake.table().metadata.table_uuid)
    batch = prepared_then_replaced(lake, stream)
    with pytest.raises(BatchRefused) as refused:
        stream.run(batch)
    assert refused.value.reason is Reason.TABLE_REPLACED
    assert refused.value.what.endswith(f"this stream wrote to {prepared_for}.")
    assert lake.table().metadata.snapshots == []


def test_an_entry_set_low_where_expiry_cut_the_walk_doubles_nothing(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    before = lake.table().properties[stream.key.ledger_property]
    stream.run(1)
    foreign = append_foreign(lake) + append_foreign(lake)
    expire(lake)
    set_property(lake, stream.key.ledger_property, before)
    with pytest.raises(BatchRefused) as refused:
        stream.run(1)
    assert refused.value.reason is Reason.LEDGER_DAMAGED
    assert counted(lake) == expected(0, 1) + foreign
