"""Readers beside maintenance: each row that was written is read once, before, across and after its snapshots."""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.snapshots import Operation

from lakesink.read.batch_files import files_of
from lakesink.read.follow import unread_batches
from lakesink.read.position import Position, parse_offset
from lakesink.read.steps import Follows, SinkBatches, behind
from lakesink.sinks.iceberg.upkeep.maintenance import Maintenance
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.manifests.live_reading import LiveMemory
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.outcome import Committed
from lakesink_tools.audit.audit import audit
from lakesink_tools.operate.outbox.batch_records import BatchRecords
from lakesink_tools.past.as_of import Question, as_of
from lakesink_tools.past.changes import changes
from testkit.builders import TABLE, Lake, Stream, counted, expected
from testkit.change_table import ChangeStream, Reference, compactions, rows_of, upsert_lake
from testkit.examples import seeds
from testkit.letters import LETTERS, assigned, fix, ids, load
from testkit.maintenance import roll_back
from tests.read.consumer import EVENTS, Consumer
from tests.upsert.test_changelog import LOG, log_of, logged

SOON: dict[str, Any] = {"maintenance": {"min_input_files": 2}}
"""A stream compacts after each batch but the first."""


def by_another_process(load: Callable[[], object]) -> Maintenance:
    return Maintenance(load, policy=Policy(min_input_files=2))  # type: ignore[arg-type] # of a test's table


@dataclass(slots=True)
class Planning(Consumer):
    """Plans a micro-batch, and reads it when it is asked again: others come between."""

    planned: Position | None = None

    def poll(self) -> list[int]:
        start = self.position or self.sink.beginning(TABLE, str(self.lake.table().metadata.table_uuid))
        if self.planned is not None:
            self.read(start, self.planned)
            self.position, self.planned = self.planned, None
            return []
        past, found = unread_batches(self.lake.table(), TABLE, self.sink, start)
        if found.batches:
            self.planned = parse_offset(behind(past, start, found.batches).to_offset())
        return []


@pytest.mark.parametrize("seed", seeds(1))
def test_rows_that_were_appended_are_read_once_in_each_batch_whatever_is_maintained_and_rolled_back(
    lake: Lake, seed: int
) -> None:
    chance, stream = random.Random(seed), Stream(lake, options=SOON)
    other = by_another_process(lake.table)
    planning = Planning(lake)
    readers = [Consumer(lake), Consumer(lake), planning]
    number = furthest = 0
    while furthest < 8:
        stream.options = SOON if chance.random() < 0.6 else {}
        assert isinstance(stream.run(number), Committed)
        number += 1
        furthest = max(furthest, number)
        if chance.random() < 0.3:
            other.run()
        for reader in readers:
            if chance.random() < 0.4:
                reader.poll()
        if chance.random() < 0.2 and number > 1:
            back = chance.randrange(number)
            goal = stream.snapshot_of(back)
            later = [one.snapshot_id for one in compactions(lake) if one.parent_snapshot_id == goal]
            planning.planned = None  # its micro-batch may be rolled back: it plans again
            roll_back(lake, chance.choice([goal, *later]))
            number = back + 1
    last = Consumer(lake)
    for reader in (*readers, last):
        for _ in range(3):  # one may have a plan, which it reads first
            reader.poll()
        assert reader.rows == expected(*range(number))
    assert compactions(lake)
    assert counted(lake) == expected(*range(number))
    assert not audit(lake.table()).findings
    for batch in {0, number // 2, number - 1}:
        snapshot_id = as_of(lake.table(), TABLE, Question(batch_id=batch)).commit.snapshot_id
        found = changes(lake.table(), snapshot_id, lake.head().snapshot_id, 0)
        assert (found.rows_added, found.rows_removed) == (3 * (number - batch - 1), 0)


@dataclass(slots=True)
class Outbox:
    """Reads the records of each new batch, as `lakesink outbox` does, and keeps the newest one of each key."""

    lake: Lake
    position: Position | None = None
    rows: dict[str, bytes] = field(default_factory=dict)
    read: list[int] = field(default_factory=list)

    def poll(self) -> None:
        table = self.lake.table()
        start = self.position or EVENTS.beginning(TABLE, str(table.metadata.table_uuid))
        past, found = unread_batches(table, TABLE, EVENTS, start, changes=True)
        for batch in found.batches:
            [files] = files_of(table, past, [batch])
            of_batch = Counter[bytes]()
            for records in BatchRecords(table, past, files, ["id"], LiveMemory()).read():
                for key, value in zip(*(column.to_pylist() for column in records.columns), strict=True):
                    of_batch[key] += 1
                    if value is None:
                        del self.rows[key]
                    else:
                        self.rows[key] = value
            assert set(of_batch.values()) <= {1}
            start = behind(past, start, [batch])
            self.read.append(batch.batch_id)
        self.position = parse_offset(start.to_offset())

    def versions(self) -> dict[int, int]:
        return {row["id"]: row["version"] for row in map(json.loads, self.rows.values())}


@pytest.mark.parametrize("seed", seeds(1))
def test_rows_that_were_replaced_and_deleted_are_read_once_by_an_outbox_and_in_the_changelog(
    tmp_path: Path, seed: int
) -> None:
    lake, reference, chance = upsert_lake(tmp_path, partitioned=seed % 2 == 1), Reference(), random.Random(seed)
    stream = ChangeStream(lake, seed=seed, options={**SOON, "changelog_table": LOG})
    prompt, slow, log = Outbox(lake), Outbox(lake), []
    for number in range(8):
        assert isinstance(stream.run(number), Committed)
        reference.apply(stream.changes(number))
        log += logged(stream.changes(number), number)
        if chance.random() < 0.3:
            by_another_process(lake.table).run()
            by_another_process(lambda: lake.catalog.load_table(LOG)).run()
        prompt.poll()
        assert prompt.versions() == {row["id"]: row["version"] for row in reference.table}
        if chance.random() < 0.3:
            slow.poll()
    for outbox in (prompt, slow, Outbox(lake)):
        outbox.poll()
        assert outbox.read == [*range(8)]
        assert outbox.rows == prompt.rows
    assert rows_of(lake) == reference.table
    assert not audit(lake.table()).findings
    table = lake.catalog.load_table(LOG)
    sink = SinkBatches("events", "main", Follows.CHANGELOG)
    past, found = unread_batches(table, LOG, sink, sink.beginning(LOG, str(table.metadata.table_uuid)))
    read = {
        one.batch.batch_id: sum(file.record_count for file in one.data) for one in files_of(table, past, found.batches)
    }
    assert read == {number: len(stream.changes(number)) for number in range(8)}
    assert log_of(lake) == log
    assert compactions(lake)
    assert Operation.REPLACE in {one.summary.operation for one in table.snapshots() if one.summary}


@pytest.mark.usefixtures("home")
def test_letters_of_a_table_that_is_maintained_are_replayed_once() -> None:
    """Before, after and between maintenances of the letters."""
    letters = by_another_process(lambda: load_table(connect(create=False), LETTERS))
    for version in range(6):
        load(version, (10 * version, 30), (10 * version + 1, 130), **SOON, on_malformed="quarantine")
        if version in (2, 4):
            assert fix() == (1, version + 1 if version == 2 else 2, 0)
        if version in (3, 5):
            letters.run()
    assert fix()[1:] == (1, 0)
    assert assigned() == {1: 3, 2: 2, 3: 1}
    assert ids() == sorted([10 * version + at for version in range(6) for at in (0, 1)])
    kinds = [one.summary.operation for one in letters.load().snapshots() if one.summary]
    assert kinds.count(Operation.REPLACE) >= 2
    assert not audit(letters.load()).findings
