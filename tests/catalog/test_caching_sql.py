"""The caching catalog gives the results of PyIceberg's own: metadata, files, errors."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertRefSnapshotId,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.types import LongType, NestedField

from lakesink_catalog.commit.evolution import evolve
from lakesink_catalog.connect.caching_sql import (
    NONE_KNOWN,
    CachingSqlCatalog,
    metadata_json,
    updated_metadata,
    write_metadata,
)
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.change import ColumnType, SchemaChange
from lakesink_protocol.errors import CatalogError

ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def caching(tmp_path: Path) -> CachingSqlCatalog:
    return CachingSqlCatalog("lake", **properties(tmp_path))


def properties(folder: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": f"file://{folder}"}


@pytest.fixture
def table(caching: CachingSqlCatalog) -> Table:
    caching.create_namespace("a")
    made = caching.create_table("a.b", ROWS.schema)
    made.append(ROWS)
    made.append(ROWS)
    return caching.load_table("a.b")


def a_snapshot(number: int, parent: int | None) -> AddSnapshotUpdate:
    return AddSnapshotUpdate(
        snapshot=Snapshot(
            snapshot_id=number,
            parent_snapshot_id=parent,
            sequence_number=number,
            timestamp_ms=4_000_000_000_000 + number,
            manifest_list=f"file:///{number}.avro",
            summary=Summary(Operation.APPEND, rows=str(number)),
            schema_id=0,
        )
    )


def a_ref(name: str, number: int, kind: SnapshotRefType) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=kind,
        snapshot_id=number,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


refs = st.builds(
    a_ref,
    st.sampled_from(["main", "branch", "tag"]),
    st.integers(10, 16),
    st.sampled_from([SnapshotRefType.BRANCH, SnapshotRefType.TAG]),
)
settings_of_tables = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), min_size=1)
changes = st.one_of(
    st.builds(a_snapshot, st.integers(10, 16), st.sampled_from([None, 10, 11])),
    refs,
    st.builds(SetPropertiesUpdate, updates=settings_of_tables),
    st.builds(
        lambda found: RemovePropertiesUpdate(removals=sorted(found)), st.sets(st.sampled_from("abc"), min_size=1)
    ),
)


def applied(base: TableMetadata, commits: list[tuple[TableUpdate, ...]], *, caching: bool) -> list[object]:
    """What each commit came to: the metadata as in its file but for the clock's own times, or the error."""
    found: list[object] = []
    for number, updates in enumerate(commits):
        try:
            after = (
                updated_metadata(base, updates, f"file:///{number}.metadata.json")
                if caching
                else update_table_metadata(base, updates, metadata_location=f"file:///{number}.metadata.json")
            )
        except (KeyError, ValueError) as error:
            found.append(str(error))
            continue
        base = after
        document = json.loads(after.model_dump_json())
        added = {one.snapshot.timestamp_ms for one in updates if isinstance(one, AddSnapshotUpdate)}
        if document["last-updated-ms"] not in added:
            document.pop("last-updated-ms")
        document["snapshot-log"] = [
            (entry["snapshot-id"], entry["timestamp-ms"] > 4_000_000_000_000) for entry in document["snapshot-log"]
        ]
        document["metadata-log"] = [entry["metadata-file"] for entry in document["metadata-log"]]
        found.append(document)
    return found


@given(st.lists(st.lists(changes, min_size=1, max_size=4).map(tuple), max_size=8))
def test_any_commits_come_to_what_pyiceberg_makes_of_them(commits: list[tuple[TableUpdate, ...]]) -> None:
    base = empty_metadata()
    assert applied(base, commits, caching=True) == applied(base, commits, caching=False)


def empty_metadata() -> TableMetadata:
    schema = Schema(NestedField(1, "id", LongType()))
    return new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t")


def test_history_is_kept_whole_and_readable_by_others(table: Table, tmp_path: Path) -> None:
    others = SqlCatalog("lake", **properties(tmp_path)).load_table("a.b")
    assert others.metadata == table.metadata
    assert others.scan().to_arrow().num_rows == 4
    assert len(others.metadata.snapshots) == len(others.metadata.snapshot_log) == 2


def test_a_table_that_others_changed_is_read_again(caching: CachingSqlCatalog, table: Table, tmp_path: Path) -> None:
    SqlCatalog("lake", **properties(tmp_path)).load_table("a.b").append(ROWS)
    found = caching.load_table("a.b")
    assert found.metadata_location != table.metadata_location
    assert len(found.metadata.snapshots) == 3


def test_a_commit_on_what_others_changed_is_refused(caching: CachingSqlCatalog, table: Table, tmp_path: Path) -> None:
    head = table.metadata.current_snapshot_id
    SqlCatalog("lake", **properties(tmp_path)).load_table("a.b").append(ROWS)
    stays = (AssertRefSnapshotId(ref="main", snapshot_id=head),)
    with pytest.raises(CommitFailedException, match="branch main has changed"):
        caching.commit_table(table, stays, (SetPropertiesUpdate(updates={"x": "1"}),))


def test_a_table_of_version_1_stays_one_as_it_is_written(caching: CachingSqlCatalog) -> None:
    """Its snapshots have no sequence numbers."""
    caching.create_namespace("a")
    caching.create_table("a.b", ROWS.schema, properties={"format-version": "1"}).append(ROWS)
    table = caching.load_table("a.b")
    answer = caching.commit_table(table, (), (SetPropertiesUpdate(updates={"x": "1"}),))
    written = json.loads(Path(answer.metadata_location.removeprefix("file://")).read_text())
    assert written["properties"]["x"] == "1"
    assert [snapshot.get("sequence-number") for snapshot in written["snapshots"]] == [None]


@pytest.mark.parametrize("has_committed", [False, True])
def test_what_a_caller_does_to_a_table_is_in_no_other(
    caching: CachingSqlCatalog, table: Table, *, has_committed: bool
) -> None:
    if has_committed:
        table.append(ROWS)
    table.metadata.properties["x"] = "1"
    table.metadata.refs.clear()
    found = caching.load_table("a.b").metadata
    assert "x" not in found.properties
    assert list(found.refs) == ["main"]


def test_a_metadata_file_without_a_uuid_may_be_another_next_time(
    caching: CachingSqlCatalog, table: Table, tmp_path: Path
) -> None:
    """As of a Hadoop table that was dropped, made anew and registered again."""
    place = tmp_path / "v2.metadata.json"
    shutil.copy(table.metadata_location.removeprefix("file://"), place)
    caching.drop_table("a.b")
    caching.register_table("a.b", f"file://{place}")
    assert len(caching.load_table("a.b").metadata.snapshots) == 2
    write_metadata(empty_metadata(), NONE_KNOWN, table.io.new_output(f"file://{tmp_path}/v3.metadata.json"))
    (tmp_path / "v3.metadata.json").rename(place)
    assert not caching.load_table("a.b").metadata.snapshots


@pytest.mark.parametrize("torn", [b"", b"{", b"\xff\xfe"])
def test_a_torn_metadata_file_is_named(caching: CachingSqlCatalog, table: Table, tmp_path: Path, torn: bytes) -> None:
    Path(table.metadata_location.removeprefix("file://")).write_bytes(torn)
    caching = CachingSqlCatalog("lake", **properties(tmp_path))
    with pytest.raises(CatalogError, match="LAKESINK_TABLE_METADATA_UNREADABLE") as refused:
        load_table(caching, "a.b")
    assert Path(table.metadata_location).name in str(refused.value)


def test_of_two_commits_at_the_same_moment_one_is_refused(
    caching: CachingSqlCatalog, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another commits after the table was looked at and before the row is swapped."""
    load = caching.load_table

    def load_and_let_others_in(name: tuple[str, ...]) -> Table:
        found = load(name)
        SqlCatalog("lake", **properties(tmp_path)).load_table("a.b").append(ROWS)
        return found

    monkeypatch.setattr(caching, "load_table", load_and_let_others_in)
    with pytest.raises(CommitFailedException, match="updated by another process"):
        caching.commit_table(table, (), (SetPropertiesUpdate(updates={"x": "1"}),))
    monkeypatch.undo()
    assert "x" not in caching.load_table("a.b").metadata.properties


def test_a_table_that_was_dropped_and_made_anew_is_another_one(caching: CachingSqlCatalog, table: Table) -> None:
    caching.drop_table("a.b")
    with pytest.raises(NoSuchTableError):
        caching.load_table("a.b")
    made = caching.create_table("a.b", ROWS.schema)
    assert caching.load_table("a.b").metadata.table_uuid == made.metadata.table_uuid != table.metadata.table_uuid


def test_what_changes_nothing_writes_nothing(caching: CachingSqlCatalog, table: Table) -> None:
    head = table.metadata.current_snapshot_id
    assert head is not None
    answer = caching.commit_table(table, (), (a_ref("main", head, SnapshotRefType.BRANCH),))
    assert answer.metadata_location == table.metadata_location == caching.load_table("a.b").metadata_location


@given(st.lists(st.lists(changes, min_size=1, max_size=4).map(tuple), max_size=8), st.booleans())
def test_the_spliced_text_is_the_metadatas_own(commits: list[tuple[TableUpdate, ...]], exclude_none: bool) -> None:  # noqa: FBT001 - Hypothesis gives it
    history = NONE_KNOWN
    metadata = empty_metadata().model_copy(update={"properties": {"odd": '"snapshots":[],"snapshot-log":[]'}})
    for updates in commits:
        try:
            metadata = updated_metadata(metadata, updates, "file:///1.metadata.json")
        except (KeyError, ValueError):
            continue
        history = history.extended_to(metadata, exclude_none=exclude_none)
        found = b"".join(metadata_json(metadata, history, exclude_none=exclude_none)).decode()
        assert found == metadata.model_dump_json(exclude_none=exclude_none)


@pytest.mark.parametrize("name", ["00001-a.metadata.json", "00001-a.gz.metadata.json"])
def test_a_metadata_file_is_written_as_pyiceberg_reads_it_and_replaces_no_other(
    table: Table, tmp_path: Path, name: str
) -> None:
    output = table.io.new_output(f"file://{tmp_path}/{name}")
    write_metadata(table.metadata, NONE_KNOWN, output)
    assert FromInputFile.table_metadata(output.to_input_file()) == table.metadata
    with pytest.raises(FileExistsError):
        write_metadata(table.metadata, NONE_KNOWN, output)


def test_threads_that_share_a_catalog_lose_no_snapshot(caching: CachingSqlCatalog, table: Table) -> None:
    def append(number: int) -> None:
        while True:
            now = caching.load_table("a.b")
            head, last = now.metadata.current_snapshot_id, now.last_sequence_number
            snapshot = Snapshot(
                snapshot_id=number,
                parent_snapshot_id=head,
                sequence_number=last + 1,
                timestamp_ms=now.metadata.last_updated_ms + 1,
                manifest_list="file:///l.avro",
                summary=Summary(Operation.APPEND),
                schema_id=0,
            )
            change = (AddSnapshotUpdate(snapshot=snapshot), a_ref("main", number, SnapshotRefType.BRANCH))
            with suppress(CommitFailedException):
                caching.commit_table(now, (AssertRefSnapshotId(ref="main", snapshot_id=head),), change)
                return

    numbers = range(1_000, 1_024)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, numbers))
    assert len(table.metadata.snapshots) == 2
    found = SqlCatalog("lake", **caching.properties).load_table("a.b").metadata
    assert {snapshot.snapshot_id for snapshot in found.snapshots} >= set(numbers)
    assert len(found.snapshots) == len(found.snapshot_log) == 2 + len(numbers)


def test_two_catalogs_in_one_database_each_have_their_own_table(tmp_path: Path) -> None:
    shared = properties(tmp_path)
    lake, sea = (CachingSqlCatalog(name, **shared) for name in ("lake", "sea"))
    for catalog in (lake, sea):
        catalog.create_namespace("a")
    before = lake.create_table("a.b", ROWS.schema).metadata_location
    sea.register_table("a.b", before)  # the same metadata, until one of them commits
    sea.load_table("a.b").append(ROWS)
    fresh = [CachingSqlCatalog(name, **shared).load_table("a.b") for name in ("lake", "sea")]
    assert [table.scan().to_arrow().num_rows for table in fresh] == [0, 2]
    assert fresh[0].metadata_location == before
    lake.load_table("a.b").append(pa.table({"id": [3]}))
    assert [catalog.load_table("a.b").scan().to_arrow()["id"].to_pylist() for catalog in (lake, sea)] == [[3], [1, 2]]


def test_a_schema_id_that_another_writer_took_is_a_conflict(caching: CachingSqlCatalog, table: Table) -> None:
    """Renamed and renamed back: the current schema and the last column id are as before, but the next id is taken."""
    evolved = evolve(table, SchemaChange(added=(ColumnType(("new",), '"string"'),)))
    seen = table.metadata
    requirements = (
        AssertCurrentSchemaId(current_schema_id=seen.current_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=seen.last_column_id),
    )
    for before, after in (("id", "passing"), ("passing", "id")):
        with caching.load_table(table.name()).update_schema() as update:
            update.rename_column(before, after)
    with pytest.raises(CommitFailedException, match="schema with this id"):
        caching.commit_table(table, requirements, evolved.updates)
    assert [one.schema_id for one in caching.load_table(table.name()).metadata.schemas] == [0, 1]


def test_a_schema_change_gives_the_metadata_of_pyicebergs_own(caching: CachingSqlCatalog, table: Table) -> None:
    evolved = evolve(table, SchemaChange(added=(ColumnType(("new",), '"string"'),)))
    caching.commit_table(table, (), evolved.updates)
    found = caching.load_table(table.name()).metadata
    wanted = update_table_metadata(table.metadata, evolved.updates)
    assert (found.schemas, found.current_schema_id, found.last_column_id) == (wanted.schemas, 1, wanted.last_column_id)
    assert json.loads(Path(caching.load_table(table.name()).metadata_location[7:]).read_text())["last-column-id"] == 2
