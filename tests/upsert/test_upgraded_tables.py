"""Tables that were of format version 1: an upgrade leaves their manifest lists and manifests as they were."""

import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import fastavro
import pyarrow as pa
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec

from lakesink_protocol.errors import CatalogError
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes
from lakesink_tools.audit.audit import audit
from lakesink_tools.checks.doctor.finding import Standing
from lakesink_tools.checks.doctor.table import check_table
from testkit.builders import TABLE, Lake, Stream
from testkit.change_table import BY_PART, ROWS, SCHEMA, Change, ChangeStream, Reference, compactions, rows_of


def old(key: int) -> Change:
    return Change(key, 0, "abc"[key % 3], f"old {key}", Decimal(key))


def append_old(lake: Lake, keys: range) -> None:
    table = lake.table()
    table.append(pa.Table.from_pylist([old(key).row for key in keys], schema=table.schema().as_arrow()))


def upgrade(lake: Lake) -> None:
    with lake.table().transaction() as transaction:
        transaction.upgrade_table_version(2)


def upgraded(folder: Path, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, *, drops: bool = False) -> Lake:
    """A table of two appends in version 1, then of version 2."""
    lake = Lake.make(folder, schema=SCHEMA, spec=spec, properties={"format-version": "1"})
    append_old(lake, range(10))
    if drops:
        with lake.table().update_spec() as change:
            change.remove_field("part")
    append_old(lake, range(10, 20))
    upgrade(lake)
    return lake


def of(keys: range) -> Reference:
    reference = Reference()
    reference.apply(map(old, keys))
    return reference


def stored_in(lake: Lake) -> list[str]:
    """The live data files."""
    return [urlsplit(task.file.file_path).path for task in lake.table().scan().plan_files()]


def stored(lake: Lake) -> Counter[tuple[Any, ...]]:
    """The rows in the live data files as DuckDB reads them, deleted ones too."""
    return Counter(duckdb.read_parquet(stored_in(lake)).project("id, version, part, value, amount").fetchall())


def assert_nothing_is_said_of(lake: Lake) -> None:
    table = lake.table()
    assert audit(table).findings == ()
    found = {finding.check: finding.standing for finding in check_table(TABLE, table)}
    found.pop("dead rows", None)  # true of any table that was just changed so
    assert set(found.values()) == {Standing.OK}


@pytest.fixture(params=["unpartitioned", "partitioned", "with a dropped partition field"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    spec = UNPARTITIONED_PARTITION_SPEC if request.param == "unpartitioned" else BY_PART
    return upgraded(tmp_path, spec, drops="dropped" in request.param)


def test_rows_are_appended_beside_those_of_before_the_upgrade(lake: Lake) -> None:
    new = [Change(key, 1, "abd"[key % 3], "new", Decimal(key)) for key in range(100, 109)]
    stream = Stream(lake)
    sink = replace(stream.sink(), schema=ROWS)
    rows = pa.RecordBatch.from_pylist([one.row for one in new], schema=ROWS)

    def job(writers: Mapping[str, TaskWriter]) -> Votes:
        return Votes.in_order({name: [writer.write(0, iter([rows]))] for name, writer in writers.items()})

    assert isinstance(stream.run_with(sink, 0, job=job), Committed)
    assert isinstance(stream.run_with(sink, 0, job=job), AlreadyCommitted)
    wanted = [one.row for one in [*map(old, range(20)), *new]]
    assert rows_of(lake) == wanted
    assert stored(lake) == Counter(tuple(row.values()) for row in wanted)
    assert_nothing_is_said_of(lake)


def test_rows_of_before_the_upgrade_are_replaced_by_key(lake: Lake) -> None:
    reference, changes = of(range(20)), [Change(key, 1, "abd"[key % 3], "new", Decimal(key)) for key in range(5, 25)]
    stream = ChangeStream(lake, options={"mode": "upsert", "apply_as_deletes": None})
    stream.run_changes(0, [changes])
    reference.apply(changes)
    assert rows_of(lake) == reference.table
    assert stored(lake) == Counter(tuple(one.row.values()) for one in [*map(old, range(20)), *changes])
    assert_nothing_is_said_of(lake)


def test_changes_of_rows_of_before_the_upgrade_are_exact(lake: Lake) -> None:
    reference, stream = of(range(20)), ChangeStream(lake)
    for number in range(4):
        outcome = stream.run(number)
        assert isinstance(outcome, Committed)
        assert outcome.changes == reference.apply(stream.changes(number))
        assert rows_of(lake) == reference.table
    assert_nothing_is_said_of(lake)


def test_files_of_before_the_upgrade_keep_no_others_from_being_compacted(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, schema=SCHEMA, properties={"format-version": "1"})
    for key in range(12):
        append_old(lake, range(key, key + 1))
    upgrade(lake)
    before, reference, stream = set(stored_in(lake)), of(range(12)), ChangeStream(lake)
    sink = stream.sink()
    for number in range(30):
        stream.run_with(sink, number)
        reference.apply(stream.changes(number))
    assert len(compactions(lake)) >= 3
    assert set(stored_in(lake)) >= before
    assert rows_of(lake) == reference.table
    assert audit(lake.table()).findings == ()


def test_a_list_of_version_1_without_counts_is_refused_at_once_by_name(tmp_path: Path) -> None:
    lake = upgraded(tmp_path)
    place = Path(urlsplit(lake.head().manifest_list).path)
    found = fastavro.reader(io.BytesIO(place.read_bytes()))
    entries: list[Any] = list(found)
    for entry in entries:
        entry["added_files_count"] = None
    out = io.BytesIO()
    fastavro.writer(out, found.writer_schema, entries, metadata={"format-version": "1"})
    place.write_bytes(out.getvalue())
    stream = ChangeStream(lake)
    with pytest.raises(CatalogError, match="does not state the files of each of its manifests") as refused:
        stream.run(0)
    assert refused.value.code == "LAKESINK_MANIFEST_UNREADABLE"
    assert lake.head().manifest_list in refused.value.action
    assert "map('rewrite-all', 'true')" in refused.value.action
    assert stream.chance.waited_ms == []
