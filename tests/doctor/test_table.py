"""What is seen of one table: settings with their origin, places, sinks, and nothing of a secret."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import RemovePropertiesUpdate, RemoveSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FixedType, NestedField

from lakesink.read.hold import set_hold
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing
from lakesink_tools.checks.doctor.storage import check_storage
from lakesink_tools.checks.doctor.table import check_readers, check_table
from testkit.batches import Writer

CANARY = "c4n4ry-Sw0rdfish"
SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return connect("lake", {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"})


def events(catalog: Catalog, *, partition_by: str | None = None, **properties: str) -> Table:
    return create_table(catalog, "demo.events", SCHEMA, partition_by, properties)


def looked(catalog: Catalog) -> dict[str, Finding]:
    findings = check_table("demo.events", load_table(catalog, "demo.events"))
    return {finding.check: finding for finding in findings}


def test_a_table_that_nobody_wrote_to_is_well(catalog: Catalog) -> None:
    events(catalog, partition_by="month(at)")
    findings = looked(catalog)
    assert {finding.standing for finding in findings.values()} == {Standing.OK}
    assert findings["partitions"].found == "month(at)"
    assert findings["sinks"].found == "no lakesink stream has written to it yet"


def test_a_partition_that_java_cannot_read_is_a_warning(catalog: Catalog) -> None:
    catalog.create_namespace("demo")
    schema = Schema(NestedField(1, "key", FixedType(16), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "key"))
    catalog.create_table("demo.events", schema, partition_spec=spec)
    finding = looked(catalog)["partitions"]
    assert (finding.standing, finding.found) == (Standing.WARNING, "identity(key)")
    assert "Spark, Trino and Flink cannot read this table" in finding.fix


def test_a_partition_field_that_lost_its_column_is_found(catalog: Catalog) -> None:
    table = events(catalog, partition_by="void(id)")
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("id")
    finding = looked(catalog)["partitions"]
    assert finding.standing is Standing.FAILED
    assert "drop partition field 'id_null', whose column was dropped" in finding.fix


def test_an_order_is_told_and_one_that_is_not_kept_warns(catalog: Catalog) -> None:
    events(catalog)
    assert "sort order" not in looked(catalog)
    catalog.drop_table("demo.events")
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    table = create_table(catalog, "demo.events", schema, sort_by="id desc")
    finding = looked(catalog)["sort order"]
    assert finding.standing is Standing.OK
    assert finding.found == "id DESC NULLS LAST; each file that lakesink writes has it"
    table.update_sort_order().asc("tags.element", IdentityTransform()).commit()
    finding = looked(catalog)["sort order"]
    assert finding.standing is Standing.WARNING
    assert "lakesink cannot sort by tags.element ASC NULLS LAST, so its files state no order" in finding.found
    assert "ALTER TABLE demo.events WRITE ORDERED BY" in finding.fix


def test_settings_are_told_with_their_origin(catalog: Catalog) -> None:
    events(catalog, **{"write.parquet.compression-codec": "snappy"})
    finding = looked(catalog)["settings"]
    assert finding.standing is Standing.OK
    assert finding.found == "by table property: write.parquet.compression-codec=snappy; all others are defaults"
    settings = finding.details["settings"]
    assert settings["write.parquet.compression-codec"] == {
        "value": "snappy",
        "origin": "table property",
        "option": "compression_codec",
    }
    assert settings["commit.retry.num-retries"]["origin"] == "default"
    assert settings["prepared_max_age"] == {
        "value": "20 hours",
        "origin": "option default",
        "option": "prepared_max_age",
    }


def test_properties_that_change_nothing_are_named(catalog: Catalog) -> None:
    events(catalog, **{"write.spark.fanout.enabled": "true"})
    finding = looked(catalog)["settings"]
    assert finding.standing is Standing.WARNING
    assert "not honoured: write.spark.fanout.enabled" in finding.found


def test_a_malformed_property_fails_with_its_name(catalog: Catalog) -> None:
    events(catalog, **{"commit.retry.num-retries": "often"})
    finding = looked(catalog)["settings"]
    assert finding.standing is Standing.FAILED
    assert "commit.retry.num-retries" in finding.found


@pytest.mark.parametrize("may_write", [False, True])
def test_a_place_outside_the_table_fails_before_it_is_written_to(
    catalog: Catalog,
    tmp_path: Path,
    may_write: bool,  # noqa: FBT001 - a table of cases
) -> None:
    table = events(catalog, **{"write.data.path": f"file://{tmp_path}/elsewhere"})
    findings = {found.check: found for found in check_storage(Part.TABLE, table, [], may_write=may_write)}
    assert findings["data files"].standing is Standing.FAILED
    assert "LAKESINK_LOCATION_REFUSED" in findings["data files"].found
    assert findings["metadata files"].standing is (Standing.OK if may_write else Standing.SKIPPED)
    assert not (tmp_path / "elsewhere").exists()


def test_scratch_objects_leave_no_file_and_no_folder(catalog: Catalog, tmp_path: Path) -> None:
    table = events(catalog)
    before = set((tmp_path / "w").rglob("*"))
    sightings: list[Any] = []
    findings = check_storage(Part.TABLE, table, sightings, may_write=True)
    assert [found.standing for found in findings] == [Standing.OK, Standing.OK]
    assert [sighting.whose for sighting in sightings] == ["the storage of data files"]
    assert set((tmp_path / "w").rglob("*")) == before


def test_a_folder_that_takes_no_file_fails(catalog: Catalog, tmp_path: Path) -> None:
    table = events(catalog)
    (tmp_path / "w" / "demo" / "events" / "data").write_text("not a folder")
    findings = {found.check: found for found in check_storage(Part.TABLE, table, [], may_write=True)}
    assert findings["data files"].standing is Standing.FAILED
    assert findings["metadata files"].standing is Standing.OK


def test_each_sink_is_told_by_its_ledger(catalog: Catalog) -> None:
    events(catalog)
    writer = Writer(catalog)
    writer.commit(0)
    writer.commit(1)
    finding = looked(catalog)["sinks"]
    assert finding.standing is Standing.OK
    assert finding.found.startswith("events into main: last batch 1, snapshot ")
    assert "tags" not in looked(catalog)


def test_a_sink_that_would_be_refused_fails_with_its_code(catalog: Catalog) -> None:
    events(catalog)
    writer = Writer(catalog)
    writer.commit(0)
    catalog.commit_table(writer.load(), (), (RemovePropertiesUpdate(removals=[writer.key.ledger_property]),))
    finding = looked(catalog)["sinks"]
    assert finding.standing is Standing.FAILED
    assert "would be refused: LedgerLost" in finding.found
    assert "LAKESINK_LEDGER_LOST" in finding.fix


@pytest.mark.parametrize(("days", "standing"), [(0, Standing.OK), (8, Standing.WARNING)])
def test_a_reader_that_has_not_moved_its_branch_for_days_warns(catalog: Catalog, days: int, standing: Standing) -> None:
    events(catalog)
    writer = Writer(catalog)
    writer.commit(0)
    table = writer.load()
    head = table.current_snapshot()
    assert head is not None
    assert set_hold(table, "silver", head.snapshot_id, 3) == ""
    later = head.model_copy(update={"snapshot_id": 7, "timestamp_ms": head.timestamp_ms + days * 86_400_000})
    metadata = writer.load().metadata
    metadata = metadata.model_copy(update={"snapshots": [*metadata.snapshots, later], "current_snapshot_id": 7})
    table = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
    [finding] = check_readers("demo.events", table)
    assert finding.standing is standing
    assert finding.found == f"silver keeps 3 snapshots from expiry, {f'{days} d' if days else '0 s'} behind the table"
    assert ("DROP BRANCH `lakesink-reader-silver`" in finding.fix) is bool(days)


def test_a_sink_without_its_tag_warns(catalog: Catalog) -> None:
    events(catalog)
    writer = Writer(catalog)
    writer.commit(0)
    catalog.commit_table(writer.load(), (), (RemoveSnapshotRefUpdate(ref_name=writer.key.ledger_tag),))
    finding = looked(catalog)["tags"]
    assert finding.standing is Standing.WARNING
    assert "ledger tag is missing" in finding.found


def test_a_manifest_list_that_cannot_be_read_fails(catalog: Catalog) -> None:
    events(catalog)
    writer = Writer(catalog)
    writer.commit(0)
    head = writer.load().metadata.current_snapshot()
    assert head is not None
    Path(head.manifest_list.removeprefix("file://")).unlink()
    assert looked(catalog)["readable"].standing is Standing.FAILED


def test_no_property_shows_a_secret(catalog: Catalog) -> None:
    events(catalog, **{"write.data.path": f"s3://me:{CANARY}@bucket/data", f"write.password={CANARY}": "1"})
    found = [finding.without_secrets({}) for finding in looked(catalog).values()]
    assert "s3://***@bucket/data" in str(found)
    assert CANARY not in str(found)
