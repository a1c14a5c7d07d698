"""Tables are made once however many try, hold what the DataFrame holds, and keep their files where they belong."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import FixedType, NestedField

from lakesink_catalog.commit.old_metadata import delete_old_metadata
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.arrow_schema import RESERVED_NAMES, iceberg_schema
from lakesink_catalog.tables.locations import (
    data_location,
    is_under,
    metadata_location,
)
from lakesink_catalog.tables.partition_by import parse_partition_by, parse_sort_by, spelled_term
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.errors import CatalogError, LakesinkError, SettingsError, WriteError

EVENTS = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(tmp_path)


def open_catalog(folder: Path, **properties: str) -> Catalog:
    return connect("test", {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/w", **properties})


# Creating


def test_a_table_is_made_with_its_namespaces_in_version_2(catalog: Catalog) -> None:
    table = create_table(catalog, "lake.raw.events", EVENTS, "day(ts)", {"owner": "me"})
    assert table.metadata.format_version == 2
    assert table.properties == {"owner": "me"}
    assert [str(field.transform) for field in table.spec().fields] == ["day"]
    assert load_table(catalog, "lake.raw.events").metadata.table_uuid == table.metadata.table_uuid


def test_a_table_that_is_there_is_returned_as_it_is(catalog: Catalog) -> None:
    first = create_table(catalog, "demo.events", EVENTS)
    second = create_table(catalog, "demo.events", pa.schema([("other", pa.string())]), "other")
    assert second.metadata == first.metadata


def test_drivers_that_create_a_table_at_once_get_the_same_table(tmp_path: Path) -> None:
    open_catalog(tmp_path)
    drivers, rounds = 4, 5
    barrier = threading.Barrier(drivers)
    results: list[tuple[int, object]] = []

    def drive() -> None:
        catalog = open_catalog(tmp_path)
        for number in range(rounds):
            barrier.wait(60)
            try:
                table = create_table(catalog, f"space{number}.inner.events", EVENTS)
                results.append((number, table.metadata.table_uuid))
            except LakesinkError as error:
                results.append((number, error))

    threads = [threading.Thread(target=drive) for _ in range(drivers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(results) == drivers * rounds
    assert len(set(results)) == rounds


def test_an_unwritable_warehouse_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    catalog = open_catalog(tmp_path, warehouse=f"file://{tmp_path}/file/warehouse")
    with pytest.raises(CatalogError, match="LAKESINK_WAREHOUSE_UNWRITABLE"):
        create_table(catalog, "demo.events", EVENTS)
    assert catalog.list_tables("demo") == []


@pytest.mark.parametrize("version", ["1", "3", "x"])
def test_another_format_version_is_refused_by_name(catalog: Catalog, version: str) -> None:
    with pytest.raises(CatalogError, match=f"LAKESINK_FORMAT_UNSUPPORTED.*{version}"):
        create_table(catalog, "demo.events", EVENTS, properties={"format-version": version})


@pytest.mark.parametrize("name", ["write.py-location-provider.impl", "py-io-impl"])
def test_a_new_table_names_no_code(catalog: Catalog, name: str) -> None:
    with pytest.raises(CatalogError, match="LAKESINK_TABLE_NAMES_CODE"):
        create_table(catalog, "demo.events", EVENTS, properties={name: "evil.Provider"})


# Columns


def test_every_spark_type_becomes_an_optional_iceberg_column() -> None:
    instant = pa.timestamp("us", tz="America/New_York")
    nested = pa.struct([pa.field("x", pa.int32(), nullable=False), ("when", instant)])
    arrow = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": b"77", b"doc": b"the key"}),
            ("flag", pa.bool_()),
            ("tiny", pa.int8()),
            ("ratio", pa.float32()),
            ("price", pa.decimal128(38, 10)),
            ("name", pa.large_string()),
            ("kind", pa.dictionary(pa.int32(), pa.string())),
            ("raw", pa.binary()),
            ("day", pa.date32()),
            ("at", instant),
            ("local", pa.timestamp("us")),
            ("members", pa.list_(pa.field("element", nested, nullable=False))),
            ("tags", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
        ]
    )
    fields = {field.name: field for field in iceberg_schema(arrow).fields}
    assert {name: str(field.field_type) for name, field in fields.items()} == {
        "id": "long",
        "flag": "boolean",
        "tiny": "int",
        "ratio": "float",
        "price": "decimal(38, 10)",
        "name": "string",
        "kind": "string",
        "raw": "binary",
        "day": "date",
        "at": "timestamptz",
        "local": "timestamp",
        "members": "list<struct<14: x: optional int, 15: when: optional timestamptz>>",
        "tags": "map<string, int>",
    }
    assert not any(field.required for field in fields.values())
    assert fields["id"].field_id != 77
    assert fields["id"].doc == "the key"
    assert "required=True" not in f"{fields['members']!r} {fields['tags']!r}"


def test_field_ids_are_unique_at_every_level(catalog: Catalog) -> None:
    inner = pa.struct([("b", pa.list_(pa.struct([("c", pa.map_(pa.string(), pa.struct([("d", pa.int32())])))])))])
    table = create_table(catalog, "demo.deep", pa.schema([("a", inner), ("e", inner)]))
    assert sorted(table.schema().field_ids) == list(range(1, 15))


@pytest.mark.parametrize(
    ("arrow", "column"),
    [
        (pa.schema([("v", pa.null())]), "v"),
        (pa.schema([("v", pa.duration("us"))]), "v"),
        (pa.schema([("v", pa.timestamp("ns"))]), "v"),
        (pa.schema([("v", pa.uint32())]), "v"),
        (pa.schema([("v", pa.uint64())]), "v"),
        (pa.schema([("v", pa.time32("s"))]), "v"),
        (pa.schema([("v", pa.month_day_nano_interval())]), "v"),
        (pa.schema([("s", pa.struct([("l", pa.list_(pa.null()))]))]), "s.l.element"),
        (pa.schema([("v", pa.struct([]))]), "v"),
        (pa.schema([("m", pa.map_(pa.string(), pa.struct([])))]), "m.value"),
    ],
)
def test_a_column_that_no_table_can_hold_is_named(catalog: Catalog, arrow: pa.Schema, column: str) -> None:
    with pytest.raises(WriteError, match=f"LAKESINK_TYPE_UNSUPPORTED.*Column '{column}'"):
        create_table(catalog, "demo.events", arrow)
    assert catalog.list_namespaces() == []


@pytest.mark.parametrize(
    ("arrow", "column"),
    [
        (pa.schema([("a", pa.int32()), ("A", pa.int32())]), "A"),
        (pa.schema([("a", pa.int32()), ("a", pa.int32())]), "a"),
        (pa.schema([("s", pa.struct([("x", pa.int32()), ("X", pa.int32())]))]), "X"),
        (pa.schema([]), "no columns"),
        (pa.schema([("a.b", pa.int32()), ("a", pa.struct([("b", pa.int32())]))]), "a.b"),
        *((pa.schema([(name, pa.int32())]), f"reserves the column name '{name}'") for name in sorted(RESERVED_NAMES)),
        (pa.schema([("_FILE", pa.int32())]), "_FILE"),
    ],
)
def test_columns_that_readers_could_not_tell_apart_make_no_table(
    catalog: Catalog, arrow: pa.Schema, column: str
) -> None:
    with pytest.raises(WriteError, match=f"LAKESINK_SCHEMA_UNSUPPORTED.*{column}"):
        create_table(catalog, "demo.events", arrow)
    assert catalog.list_namespaces() == []


# Partitioning

FLIGHTS = iceberg_schema(
    pa.schema(
        [
            ("time_hour", pa.timestamp("us", tz="UTC")),
            ("carrier", pa.string()),
            ("month", pa.int32()),
            ("day", pa.date32()),
            ("hour", pa.int32()),
            ("Mixed", pa.string()),
            ("weird, name", pa.string()),
            ("tick`ed", pa.string()),
            ("bucket", pa.string()),
            ("carrier_day", pa.string()),
            ("amount", pa.float64()),
            ("place", pa.struct([("Country", pa.string()), ("point", pa.struct([("x", pa.int64())]))])),
            ("items", pa.list_(pa.struct([("sku", pa.string())]))),
        ]
    )
)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("", []),
        ("  ", []),
        ("carrier", ["carrier: identity(carrier)"]),
        ("month(time_hour)", ["time_hour_month: month(time_hour)"]),
        ("month", ["month: identity(month)"]),
        ("month, day, hour", ["month: identity(month)", "day: identity(day)", "hour: identity(hour)"]),
        ("month(day)", ["day_month: month(day)"]),
        ("MONTHS( Time_Hour )", ["time_hour_month: month(time_hour)"]),
        ("year(day)", ["day_year: year(day)"]),
        (
            "hours(time_hour),bucket(16,carrier)",
            ["time_hour_hour: hour(time_hour)", "carrier_bucket: bucket[16](carrier)"],
        ),
        ("bucket(4, bucket)", ["bucket_bucket: bucket[4](bucket)"]),
        ("bucket", ["bucket: identity(bucket)"]),
        ("truncate(4, mixed)", ["Mixed_trunc: truncate[4](Mixed)"]),
        ("void(carrier)", ["carrier_null: void(carrier)"]),
        ("identity(carrier)", ["carrier: identity(carrier)"]),
        ("place.country", ["place.Country: identity(place.Country)"]),
        ("bucket(8, PLACE.Point.X)", ["place.point.x_bucket: bucket[8](place.point.x)"]),
        ("`weird, name`", ["weird, name: identity(weird, name)"]),
        ("truncate(2, `tick``ed`)", ["tick`ed_trunc: truncate[2](tick`ed)"]),
        ("day(time_hour) as d, carrier AS c", ["d: day(time_hour)", "c: identity(carrier)"]),
        ("amount", ["amount: identity(amount)"]),
        ("carrier, bucket(2, carrier)", ["carrier: identity(carrier)", "carrier_bucket: bucket[2](carrier)"]),
    ],
)
def test_partition_by_is_read(text: str, spec: list[str]) -> None:
    fields = parse_partition_by(text, FLIGHTS).fields
    shown = [f"{part.name}: {part.transform}({FLIGHTS.find_column_name(part.source_id)})" for part in fields]
    assert shown == spec
    assert [part.field_id for part in fields] == list(range(1000, 1000 + len(fields)))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("month(time_huor)", "Did you mean 'time_hour'?"),
        ("place.contry", "Did you mean 'place.Country'?"),
        ("monht(time_hour)", "Did you mean 'month'?"),
        ("month(month)", "type int; identity, void, bucket, truncate can"),
        ("hour(day)", "of type date"),
        ("bucket(16, amount)", "of type double"),
        ("truncate(3, time_hour)", "of type timestamptz"),
        ("bucket(carrier, 16)", "bucket(<whole number from 1>, <column>)"),
        ("bucket(carrier)", "bucket(<whole number from 1>, <column>)"),
        ("bucket(0, carrier)", "whole number from 1"),
        ("bucket(99999999999, carrier)", "whole number from 1"),
        ("truncate(-1, carrier)", "whole number from 1"),
        ("place", "is a struct"),
        ("items", "is a list"),
        ("items.element.sku", "is not a struct"),
        ("carrier.x", "is not a struct"),
        ("carrier,", "ends too early"),
        (",carrier", "a name is missing"),
        ("carrier carrier", "expected ','"),
        ("month(time_hour", "expected ')'"),
        ("month()", "a name is missing"),
        ("`carrier", "back-quote"),
        ("carrier as", "ends too early"),
        ("carrier, carrier", "two partition fields are named 'carrier'"),
        ("carrier, carrier as c", "partition by the same column"),
        ("day(time_hour), hour(time_hour)", "keep the finer one"),
        ("bucket(2, carrier), bucket(4, carrier)", "two partition fields are named 'carrier_bucket'"),
        ("carrier as month", "share its name with a column"),
        ("truncate(1, carrier) as CARRIER", "share its name with a column"),
    ],
)
def test_a_wrong_partition_by_says_what_is_wrong(text: str, hint: str) -> None:
    with pytest.raises(SettingsError, match="LAKESINK_PARTITION_BY_INVALID") as refused:
        parse_partition_by(text, FLIGHTS)
    assert hint in refused.value.what
    assert len(str(refused.value).splitlines()[0]) < 200


def test_a_column_of_fixed_width_divides_only_by_what_all_engines_read() -> None:
    schema = Schema(NestedField(1, "key", FixedType(16), required=False))
    with pytest.raises(SettingsError, match="Spark, Trino and Flink cannot read"):
        parse_partition_by("key", schema)
    assert str(parse_partition_by("bucket(4, key)", schema).fields[0].transform) == "bucket[4]"


def test_a_case_sensitive_session_matches_names_exactly() -> None:
    assert parse_partition_by("Mixed", FLIGHTS, case_sensitive=True).fields[0].name == "Mixed"
    with pytest.raises(SettingsError, match="there is no column 'mixed'"):
        parse_partition_by("mixed", FLIGHTS, case_sensitive=True)


@given(st.text(alphabet="abmonth(),.` 0123carrier_\n\x00é", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_partition_by(text, FLIGHTS)
    except SettingsError as error:
        assert "PARTITION_BY_INVALID" in error.code  # noqa: PT017 - both ends are right


ASC, DESC = "ASC NULLS FIRST", "DESC NULLS LAST"


@pytest.mark.parametrize(
    ("text", "order"),
    [
        (None, []),
        (" ", []),
        ("carrier", [f"carrier {ASC}"]),
        ("carrier ASC, day desc", [f"carrier {ASC}", f"day {DESC}"]),
        ("day(time_hour) desc nulls first", ["day(time_hour) DESC NULLS FIRST"]),
        ("bucket(4, PLACE.point.x) Nulls Last", ["bucket(4, place.point.x) ASC NULLS LAST"]),
        ("`weird, name` desc,truncate(2, mixed)", [f"weird, name {DESC}", f"truncate(2, Mixed) {ASC}"]),
    ],
)
def test_sort_by_is_read_as_spark_reads_it(text: str | None, order: list[str]) -> None:
    fields = parse_sort_by(text, FLIGHTS).fields
    columns = [str(FLIGHTS.find_column_name(one.source_id)) for one in fields]
    terms = [spelled_term(str(one.transform), column) for one, column in zip(fields, columns, strict=True)]
    found = [f"{term} {one.direction} {one.null_order}" for term, one in zip(terms, fields, strict=True)]
    assert found == order


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("carrier nulls", "write NULLS FIRST or NULLS LAST"),
        ("carrier desc asc", "expected ',' before 'asc'"),
        ("carrier first", "expected ',' before 'first'"),
        ("carrier as c", "expected ',' before 'as'"),
        ("zorder(carrier)", "'zorder' is not a transform"),
        ("carier", "Did you mean 'carrier'"),
        ("items", "is a list; name a column with plain values"),
        ("day(carrier)", "day cannot be applied to 'carrier' of type string"),
        ("carrier,", "ends too early"),
    ],
)
def test_a_wrong_sort_by_says_what_is_wrong(text: str, hint: str) -> None:
    with pytest.raises(SettingsError, match="LAKESINK_SORT_BY_INVALID") as refused:
        parse_sort_by(text, FLIGHTS)
    assert hint in refused.value.what


def test_an_order_reaches_the_table_with_the_tables_own_ids(catalog: Catalog) -> None:
    nested = pa.schema([("place", pa.struct([("country", pa.string())])), ("ts", pa.timestamp("us", tz="UTC"))])
    table = create_table(catalog, "demo.events", nested, sort_by="month(ts), place.country desc")
    assert table.sort_order().order_id == 1
    columns = [table.schema().find_column_name(one.source_id) for one in table.sort_order().fields]
    assert columns == ["ts", "place.country"]


def test_a_spec_reaches_the_table_with_the_tables_own_ids(catalog: Catalog) -> None:
    nested = pa.schema([("place", pa.struct([("country", pa.string())])), ("ts", pa.timestamp("us", tz="UTC"))])
    table = create_table(catalog, "demo.events", nested, "place.country, month(ts)")
    schema: Schema = table.schema()
    names = [schema.find_column_name(part.source_id) for part in table.spec().fields]
    assert names == ["place.country", "ts"]


# Locations


def test_files_lie_under_the_table_unless_its_properties_say_otherwise(catalog: Catalog, tmp_path: Path) -> None:
    table = create_table(catalog, "demo.events", EVENTS)
    assert (data_location(table), metadata_location(table)) == (
        f"{table.location()}/data",
        f"{table.location()}/metadata",
    )
    moved = create_table(
        catalog,
        "demo.moved",
        EVENTS,
        properties={"write.data.path": f"file:{tmp_path}/w/d/", "write.metadata.path": f"file://{tmp_path}/w/m"},
    )
    assert data_location(moved) == f"file:{tmp_path}/w/d"
    assert metadata_location(moved) == f"file://{tmp_path}/w/m"


OUTSIDE = ["/etc/cron.d", "file:///etc", "s3://other/x", "data", "file://{}/w/../../etc", "file://{}/w2", "{}/w/a?b"]


@pytest.mark.parametrize("path", [*OUTSIDE, "file://{}/w/a\n"])
def test_a_property_cannot_lead_files_out_of_the_table(catalog: Catalog, tmp_path: Path, path: str) -> None:
    properties = {"write.data.path": path.format(tmp_path)}
    table = create_table(catalog, "demo.events", EVENTS, properties=properties)
    with pytest.raises(CatalogError, match=r"LAKESINK_LOCATION_REFUSED.*write\.data\.path"):
        data_location(table)


def test_the_catalogs_configuration_allows_more_places(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path, **{"lakesink.allowed-locations": f"s3://lake/, {tmp_path}/other"})
    places = {"s3://lake/x": True, "s3a://lake/x": True, "s3://lake2/x": False, f"file://{tmp_path}/other": True}
    for number, (place, allowed) in enumerate(places.items()):
        table = create_table(catalog, f"demo.t{number}", EVENTS, properties={"write.data.path": place})
        if allowed:
            assert data_location(table) == place
        else:
            with pytest.raises(CatalogError, match="LAKESINK_LOCATION_REFUSED"):
                data_location(table)


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("file:///w/t/data/a.parquet", True),
        ("/w/t/data/a.parquet", True),
        ("file:/w/t/data/x/y.parquet", True),
        ("file://w/t/data/a.parquet", False),  # /t/data on a host of the name w
        ("//w/t/data/a.parquet", False),
        ("file:///w/t/data", False),
        ("file:///w/t/database/a.parquet", False),
        ("file:///w/t/data/../secret", False),
        ("file:///w/t/data/./a", False),
        ("file:///w/t/data/a\x00b", False),
        ("file:///w/t/data/a?b", False),
        ("s3://w/t/data/a", False),
        ("", False),
    ],
)
def test_a_path_is_inside_a_folder_or_it_is_not(path: str, inside: bool) -> None:  # noqa: FBT001 - a table of cases
    assert is_under(path, "file:///w/t/data") is inside


# Old metadata

TRIM = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}


def commit(catalog: Catalog, table: Table, change: Callable[[Table], Any]) -> Table:
    """A commit as the fenced commit makes it: straight to the catalog."""
    before = load_table(catalog, ".".join(table.name()))
    requirements, updates = change(before)
    response = catalog.commit_table(before, requirements, updates)
    delete_old_metadata(before, response.metadata)
    return load_table(catalog, ".".join(table.name()))


def set_property(value: str) -> Callable[[Table], Any]:
    from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate  # noqa: PLC0415 - this helper's alone

    return lambda table: (
        (AssertTableUUID(uuid=table.metadata.table_uuid),),
        (SetPropertiesUpdate(updates={"n": value}),),
    )


@pytest.mark.parametrize(("properties", "left"), [(TRIM, 3), ({}, 8), ({**TRIM, next(iter(TRIM)): "false"}, 8)])
def test_old_metadata_is_deleted_after_a_commit_only_if_the_table_asks(
    catalog: Catalog, properties: dict[str, str], left: int
) -> None:
    table = create_table(catalog, "demo.events", EVENTS, properties=properties)
    for number in range(7):
        table = commit(catalog, table, set_property(str(number)))
    folder = Path(metadata_location(table).removeprefix("file://"))
    assert len(list(folder.glob("*.metadata.json"))) == left
    assert table.properties["n"] == "6"


def test_deleting_old_metadata_spares_everything_else_and_never_fails(catalog: Catalog, tmp_path: Path) -> None:
    table = create_table(catalog, "demo.events", EVENTS, properties=TRIM)
    for number in range(3):
        table = commit(catalog, table, set_property(str(number)))
    precious = tmp_path / "precious.metadata.json"
    precious.write_text("{}")
    after = table.metadata.model_copy(update={"metadata_log": []})
    log = [
        entry.model_copy(update={"metadata_file": path})
        for entry in table.metadata.metadata_log[:1]
        for path in (
            f"file://{precious}",
            f"{table.location()}/data/a.parquet",
            f"{table.location()}/gone.metadata.json",
        )
    ]
    before = Table(
        table.name(),
        table.metadata.model_copy(update={"metadata_log": log}),
        table.metadata_location,
        table.io,
        catalog,
    )
    delete_old_metadata(before, after)
    assert precious.exists()
