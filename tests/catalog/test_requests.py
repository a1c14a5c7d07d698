"""What a commit decides from metadata and clocks: its snapshot's time and operation, its age. No catalog, no file."""

from collections.abc import Sequence

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, SnapshotLogEntry
from pyiceberg.types import LongType, NestedField

from lakesink_catalog.commit.batch_change import CommitOptions
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.evolution import brings_columns_of, keeps_columns_of
from lakesink_catalog.commit.left_out import shows_refs
from lakesink_catalog.commit.request import operation_of, snapshot_time_ms, tag_at
from lakesink_protocol.events import ClockBehind, Event
from testkit.tasks import table_in_memory
from tests.protocol.views import KEY, UUID

TAGS = {"main": 7, "tag": 8}


def schema(schema_id: int = 0, **ids: int) -> Schema:
    """A schema whose columns have these ids."""
    fields = (NestedField(field_id, name, LongType()) for name, field_id in ids.items())
    return Schema(NestedField(1, "id", LongType()), *fields, schema_id=schema_id)


def table_of(*schemas: Schema) -> Table:
    """A table that had these schemas, and has the last one."""
    found = table_in_memory(schemas[0])
    changed = {"schemas": [*schemas], "current_schema_id": schemas[-1].schema_id}
    found.metadata = found.metadata.model_copy(update=changed)
    return found


@pytest.mark.parametrize("log_ms", [(), (50_000,), (50_000, 100_000), (50_000, 100_050)])
@pytest.mark.parametrize("from_last_ms", [-3_600_000, -60_001, -60_000, -1, 0, 1, 60_000])
def test_a_snapshot_is_later_than_all_before_it_and_a_clock_is_told_that_is_a_minute_behind(
    log_ms: Sequence[int], from_last_ms: int
) -> None:
    table, told = table_of(schema()), list[Event]()
    log = [SnapshotLogEntry(snapshot_id=number, timestamp_ms=at) for number, at in enumerate(log_ms)]
    table.metadata = table.metadata.model_copy(update={"last_updated_ms": 100_000, "snapshot_log": log})
    last_ms = max([100_000, *log_ms])
    assert snapshot_time_ms(table, last_ms + from_last_ms, told.append) == last_ms + max(from_last_ms, 1)
    assert told == ([ClockBehind(-from_last_ms // 1000)] if from_last_ms < -60_000 else [])


@pytest.mark.parametrize(("replaces", "added", "deletes"), [(r, a, d) for r in (0, 1) for a in (0, 1) for d in (0, 1)])
def test_a_snapshot_is_called_by_what_it_does(replaces: int, added: int, deletes: int) -> None:
    of_rows = {(0, 0): "append", (1, 0): "append", (0, 1): "delete", (1, 1): "overwrite"}[added, deletes]
    found = operation_of(replaces=bool(replaces), added=bool(added), deletes=bool(deletes))
    assert found is Operation("replace" if replaces else of_rows)


@pytest.mark.parametrize(
    ("moves", "shown"),
    [
        ({}, True),
        ({"main": 7}, True),
        ({"main": 7, "tag": 8}, True),
        ({"main": 7, "tag": 7}, False),
        ({"no": 7}, False),
    ],
)
def test_a_table_shows_the_tags_and_branches_that_are_where_a_commit_put_them(
    moves: dict[str, int], *, shown: bool
) -> None:
    refs = {name: SnapshotRef.model_validate({"snapshot-id": at, "type": "tag"}) for name, at in TAGS.items()}
    metadata = table_of(schema()).metadata.model_copy(update={"refs": refs})
    assert shows_refs(metadata, [tag_at(name, at, None) for name, at in moves.items()]) is shown


def fence() -> FencedCommit:
    """At 100 ms by the clock, and 50 ms after the start of the process."""
    effects = Effects(now_ms=lambda: 100, monotonic_ms=lambda: 50)
    return FencedCommit(table_of, KEY, UUID, CommitOptions(prepared_max_age_ms=10), effects)


@pytest.mark.parametrize(("made_ms", "is_old"), [(89, True), (90, False), (100, False), (101, True)])
def test_what_was_prepared_is_old_beyond_its_age_or_if_it_comes_from_the_future(made_ms: int, *, is_old: bool) -> None:
    assert fence().is_old(made_ms) is is_old


@pytest.mark.parametrize(
    ("started", "held_up"),
    [((90, 50), False), ((89, 50), True), ((100, 40), False), ((100, 39), True), ((200, 50), False)],
)
def test_a_process_was_held_up_if_either_clock_says_so(started: tuple[int, int], *, held_up: bool) -> None:
    assert fence().was_held_up(started) is held_up


@pytest.mark.parametrize(
    ("before", "after", "brings"),
    [
        ([schema()], schema(1, x=2), True),
        ([schema()], schema(1, x=3), False),
        ([schema()], schema(1), False),
        ([schema()], schema(1, x=2, y=3), False),  # the files lack a column of another writer that comes with them
        ([schema(), schema(1, y=3)], schema(2, y=3, x=2), True),
        ([schema(), schema(1, x=2), schema(2)], schema(2), True),  # dropped meanwhile
    ],
)
def test_a_schema_change_brings_the_columns_of_the_files_and_no_others(
    before: list[Schema], after: Schema, *, brings: bool
) -> None:
    assert brings_columns_of(schema(x=2), table_of(*before), table_of(*before, after)) is brings


@pytest.mark.parametrize(
    ("written", "after", "keeps"),
    [
        (schema(x=2), schema(x=2), True),
        (schema(x=2), schema(x=2, y=3), True),
        (schema(x=2), schema(x=3), False),
        (schema(x=2), schema(y=2), False),
        (schema(x=2, y=3), schema(x=2), False),
    ],
)
def test_columns_are_kept_with_their_names_and_ids(written: Schema, after: Schema, *, keeps: bool) -> None:
    assert keeps_columns_of(written, after) is keeps
