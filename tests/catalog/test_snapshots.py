"""The snapshots of a table by id, beside PyIceberg's own search."""

import random
from uuid import UUID

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType, NestedField

from lakesink_catalog.snapshots import snapshots_by_id, with_added
from testkit.tasks import table_in_memory

SCHEMA = Schema(NestedField(1, "id", LongType()))


TABLES = [table_in_memory(SCHEMA).metadata for _ in range(3)]


def state_of(table: int, found: list[Snapshot]) -> TableMetadata:
    return TABLES[table].model_copy(update={"snapshots": found})


def a_snapshot(number: int) -> Snapshot:
    return Snapshot(snapshot_id=number, timestamp_ms=number, manifest_list=f"file:///{number}.avro")


def test_each_state_of_each_table_has_its_own_snapshots_by_id() -> None:
    """Tables grow, lose snapshots and get others with the ids of lost ones, as after a drop of the table."""
    chance = random.Random(4)
    tables: list[list[Snapshot]] = [[], [], []]
    for _ in range(600):
        at = chance.randrange(3)
        old = tables[at]
        match chance.randrange(8):
            case 0:
                tables[at] = [one for one in old if chance.random() < 0.7]
            case 1:
                tables[at] = [
                    one.model_copy(update={"timestamp_ms": 0}) if chance.random() < 0.3 else one for one in old
                ]
            case 2:
                tables[at] = list(tables[chance.randrange(3)])
            case _:
                new = [] if len(old) in {one.snapshot_id for one in old} else [a_snapshot(len(old))]
                tables[at] = with_added(state_of(at, old), new)
        at = chance.randrange(3)
        metadata = state_of(at, tables[at])
        found = snapshots_by_id(metadata)
        assert list(found) == [one.snapshot_id for one in metadata.snapshots]
        assert all(found[one.snapshot_id] is one for one in metadata.snapshots)


def test_only_new_snapshots_of_a_known_table_are_read() -> None:
    class Read(Snapshot):
        def __getattribute__(self, name: str) -> object:
            if name == "snapshot_id":
                reads.append(name)
            return super().__getattribute__(name)

    reads: list[str] = []
    history: list[Snapshot] = [
        Read(snapshot_id=number, timestamp_ms=1, manifest_list="file:///a.avro") for number in range(500)
    ]
    before = state_of(0, history)
    snapshots_by_id(before)
    reads.clear()
    longer = state_of(0, with_added(before, [a_snapshot(500)]))
    assert len(snapshots_by_id(longer)) == 501
    assert snapshots_by_id(longer.model_copy()) is snapshots_by_id(longer)
    assert reads == []


def test_no_other_thread_gets_its_turn_while_the_tables_are_searched() -> None:
    """Two threads in one OrderedDict end the process, and a UUID is compared by Python code."""

    class Watched(UUID):
        def __hash__(self) -> int:
            turns.append("hash")
            return super().__hash__()

        def __eq__(self, other: object) -> bool:
            turns.append("equality")
            return super().__eq__(other)

    turns: list[str] = []
    number = TABLES[0].table_uuid.int
    for _ in range(2):
        metadata = state_of(0, [a_snapshot(1)]).model_copy(update={"table_uuid": Watched(int=number)})
        longer = metadata.model_copy(update={"snapshots": with_added(metadata, [a_snapshot(2)])})
        assert list(snapshots_by_id(longer)) == [1, 2]
    assert turns == []
