"""The ledger topic of an outbox says where it is, and is refused if it says anything else."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lakesink.read.position import LARGEST, Position
from lakesink.read.steps import CHANGELOG_PART, Follows, SinkBatches
from lakesink.sinks.kafka.commit_record import LedgerState, parse_commit_record
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.verdict import Commit
from lakesink_tools.operate.outbox.position import (
    LONGEST_KEY_BYTES,
    Outbox,
    Progress,
    batch_of,
    check_same_ledger,
    progress_in,
)
from tests.kafka_out.test_ledger_records import record as record_of

OUTBOX = Outbox("orders-out", "shop.orders", SinkBatches("orders", "main"))
HERE = "a" * 32
POSITION = Position("shop.orders", "f" * 36, "main", "orders", "q" * 36, LARGEST, "f" * 32, "e" * 32, LARGEST, LARGEST)


def stored(progress: Progress, **changes: Any) -> LedgerState:
    """What a process reads that starts after the commit."""
    batch = batch_of(LedgerState(None, HERE), progress)
    record = replace(record_of(0, batch), sink_id=OUTBOX.name, target_id=HERE)
    record = parse_commit_record(record.to_bytes(), OUTBOX.name)
    return LedgerState(replace(record, batch=replace(record.batch, **changes)), HERE)


@pytest.mark.parametrize("keys", [(), ("id",), ("x" * (LONGEST_KEY_BYTES - 4),), ("ü€𝄞", '"\\')])
@pytest.mark.parametrize("starting_batch", [None, 0, LARGEST])
def test_progress_comes_back_as_it_was_written(keys: tuple[str, ...], starting_batch: int | None) -> None:
    progress = Progress(POSITION, keys, starting_batch)
    assert progress_in(stored(progress), OUTBOX) == progress
    assert progress_in(LedgerState(None, HERE), OUTBOX) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"keys": None},
        {"keys": "id"},
        {"keys": [1]},
        {"starting": "1"},
        {"starting": True},
        {"lakesink": 2},
        {"more": 1},
    ],
)
def test_a_record_with_other_fields_is_refused(changed: dict[str, Any]) -> None:
    state = stored(Progress(POSITION, ("id",)), offsets=json.dumps(POSITION.to_offset() | {"keys": ["id"]} | changed))
    with pytest.raises(CatalogError, match="OUTBOX_REFUSED"):
        progress_in(state, OUTBOX)


@pytest.mark.parametrize("offsets", ["", "[4]", "4", "null", '{"events":{"0":4}}'])
def test_the_record_of_a_stream_is_refused(offsets: str) -> None:
    with pytest.raises(CatalogError, match="OUTBOX_REFUSED"):
        progress_in(stored(Progress(POSITION, ("id",)), offsets=offsets), OUTBOX)


def test_a_ledger_that_lost_its_record_since_the_last_look_is_refused() -> None:
    first = stored(Progress(POSITION, ("id",)))
    assert first.record is not None
    second = replace(first, record=replace(first.record, number=1))
    empty, damaged = replace(first, record=None), replace(first, damage="it is damaged")
    for before, now in ((None, empty), (empty, first), (first, first), (first, second), (first, damaged)):
        check_same_ledger(before, now, OUTBOX)
    for before, now in ((first, empty), (second, first), (empty, replace(empty, target_id="b" * 32))):
        with pytest.raises(CatalogError, match="OUTBOX_REFUSED"):
            check_same_ledger(before, now, OUTBOX)


def test_an_outbox_of_a_changelog_goes_on_behind_its_own_position() -> None:
    of_changelog = replace(OUTBOX, sink=SinkBatches("orders", "main", Follows.CHANGELOG))
    progress = Progress(replace(POSITION, sink=f"orders{CHANGELOG_PART}x"), ("id",))
    assert progress_in(stored(progress), of_changelog) == progress
    for other, position in ((OUTBOX, progress.position), (of_changelog, POSITION)):
        with pytest.raises(CatalogError, match="OUTBOX_REFUSED"):
            progress_in(stored(Progress(position, ("id",))), other)


def test_batches_of_an_outbox_follow_each_other_and_records_with_another_key_are_another_batch() -> None:
    first = stored(Progress(POSITION, ("id",)))
    assert first.record is not None
    again = batch_of(LedgerState(None, HERE), Progress(POSITION, ("other",)))
    later = batch_of(first, Progress(replace(POSITION, snapshot_id=1), ("id",)))
    assert (again.batch_id, again.fingerprint == first.record.batch.fingerprint) == (0, False)
    assert (later.batch_id, later.start, later.query_id) == (1, first.record.batch.end, first.record.batch.query_id)
    assert isinstance(first.decide_on(OUTBOX.name, later, HERE, None).verdict, Commit)
