"""The table's sort order: kept by each file of a batch and stated by it, or said to be kept by none."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.update import AddSortOrderUpdate, SetDefaultSortOrderUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, UnknownTransform, YearTransform
from pyiceberg.types import ListType, NestedField, StringType

from lakesink.rows.plan import SortField as Field
from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.table_layout import check_sort_by, kept_order, unkept_field
from lakesink_catalog.commit.premises import Premises, premises_of
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol import events
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import SinkKey, SinkKind, transaction_batch
from testkit.builders import SCHEMA, Lake, Stream
from testkit.letters import LETTERS, TABLE, append, load
from testkit.tasks import local, table_in_memory


def ordered_by(table: Table, column: str, transform: Transform[Any, Any] | None = None) -> None:
    """What another engine does with ALTER TABLE ... WRITE ORDERED BY: it descends."""
    source = table.schema().find_field(column).field_id
    field = SortField(source, transform or IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST)
    order = SortOrder(field, order_id=max(one.order_id for one in table.metadata.sort_orders) + 1)
    updates = AddSortOrderUpdate(sort_order=order), SetDefaultSortOrderUpdate(sort_order_id=-1)
    table.catalog.commit_table(table, (), updates)


def stated(table: Table) -> list[tuple[int, list[Any]]]:
    """The order that each data file states, oldest first, and the values of its first two columns."""
    found = table.refresh().inspect.data_files().sort_by("file_path").to_pylist()
    read = [(one["sort_order_id"], pq.read_table(local(one["file_path"])).to_pydict()) for one in found]
    return [(order, list(zip(*list(columns.values())[:2], strict=True))) for order, columns in read]


def test_a_created_table_gets_the_order_and_each_file_has_it(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    lake.catalog.drop_table(lake.name)
    stream = Stream(lake, options={"create_table": True, "sort_by": "batch, position desc"})
    for number in range(2):
        stream.run(number, rows=3)
    assert stated(lake.table()) == [(1, [(number, at) for at in (2, 1, 0)]) for number in range(2)]


def test_the_order_at_the_time_of_the_batch_counts(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    stream = Stream(lake).filled(1)
    ordered_by(lake.table(), "position")
    stream.run(1)
    ordered_by(lake.table(), "batch")
    stream.run(2)
    assert [order for order, _ in stated(lake.table())] == [0, 1, 2]
    assert [[at for _, at in rows] for _, rows in stated(lake.table())] == [[0, 1, 2], [2, 1, 0], [0, 1, 2]]


def test_an_order_that_cannot_be_kept_is_told_once_and_stated_by_no_file(tmp_path: Path) -> None:
    """The columns of a list have no value for each row."""
    tags = NestedField(4, "tags", ListType(5, StringType()), required=False)
    lake, told = Lake.make(tmp_path, schema=Schema(*SCHEMA.fields, tags)), list[events.Event]()
    ordered_by(lake.table(), "tags.element")
    sink = Stream(lake, listeners=LISTENERS.also(told.append)).sink()
    stream = Stream(lake)
    for number in range(2):
        stream.run_with(sink, number)
    found = [one for one in told if isinstance(one, events.SortOrderUnkept)]
    assert [(one.batch_id, one.field) for one in found] == [(0, "tags.element DESC NULLS LAST")]
    assert stated(lake.table()) == [(0, [(number, at) for at in range(3)]) for number in range(2)]


def _order(*fields: SortField) -> Table:
    """A table in memory whose metadata has this order, as another version of Iceberg may have written it."""
    table = table_in_memory(SCHEMA)
    table.metadata = table.metadata.model_copy(update={"sort_orders": [SortOrder(*fields)], "default_sort_order_id": 1})
    return table


def test_one_field_that_cannot_be_kept_is_enough() -> None:
    nulls_last = SortDirection.ASC, NullOrder.NULLS_LAST
    kept = SortField(1, BucketTransform(4), *nulls_last)
    assert kept_order(_order(kept)) == (Field(1, "bucket[4]", is_descending=False, nulls_first=False),)
    for other, said in [
        (SortField(2, UnknownTransform("zorder"), *nulls_last), "unknown(batch)"),
        (SortField(2, YearTransform(), *nulls_last), "year(batch)"),
        (SortField(2, BucketTransform(0), *nulls_last), "bucket(0, batch)"),
        (SortField(9, IdentityTransform(), *nulls_last), "column 9"),
    ]:
        table = _order(kept, other)
        assert kept_order(table) == ()
        assert unkept_field(table) == f"{said.replace('batch', str(SCHEMA.find_column_name(2)))} ASC NULLS LAST"
    assert (kept_order(_order()), unkept_field(_order())) == ((), "")


def test_an_id_that_means_another_order_now_breaks_the_premises() -> None:
    fields = [SortField(number, IdentityTransform()) for number in (1, 2)]
    one, other = (_order(field).metadata for field in fields)
    premises = premises_of(one, 0, [0], [0, 1])
    assert premises is not None
    assert Premises.from_json(premises.to_json()) == premises
    assert (premises.hold_in(one), premises.hold_in(other)) == (True, False)
    assert (premises.specs_hold_in(one), premises.specs_hold_in(other)) == (True, False)
    assert premises.digest != Premises(premises.schema, premises.specs).digest
    assert premises_of(one, 0, [0], [2]) is None


@pytest.mark.parametrize("asked", ["batch", "position desc nulls first", "position desc, batch"])
def test_an_option_that_was_never_the_tables_order_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, asked: str
) -> None:
    lake = Lake.make(tmp_path)
    ordered_by(lake.table(), "position")
    Stream(lake, options={"create_table": True, "sort_by": asked}).run(0)
    [told] = [one.getMessage() for one in caplog.records if "sort_by" in one.getMessage()]
    assert told.startswith("lakesink.sort_by.unused table=demo.events: its order is position DESC NULLS LAST, sort_by")
    assert stated(lake.table()) == [(1, [(0, at) for at in (2, 1, 0)])]


def test_an_option_that_was_the_tables_order_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = Lake.make(tmp_path)
    ordered_by(lake.table(), "position")
    ordered_by(lake.table(), "batch")
    Stream(lake, options={"create_table": True, "sort_by": "Position DESC"}).run(0)
    assert "sort_by" not in caplog.text


def test_an_order_keeps_its_meaning_if_a_column_is_renamed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = Lake.make(tmp_path)
    ordered_by(lake.table(), "position")
    with lake.table().update_schema() as update:
        update.rename_column("position", "place")
    check_sort_by(lake.table(), "position desc")
    assert "sort_by" not in caplog.text
    check_sort_by(lake.table(), "nosuch")
    assert "its order is place DESC NULLS LAST, sort_by" in caplog.text


def test_a_malformed_option_stops_a_stream_into_any_table(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    with pytest.raises(SettingsError, match="SORT_BY_INVALID"):
        Stream(lake, options={"create_table": True, "sort_by": "position nulls"}).run(0)
    lake.catalog.drop_table(lake.name)
    with pytest.raises(SettingsError, match="SORT_BY_INVALID"):
        Stream(lake, options={"create_table": True, "sort_by": "nosuch"}).run(0)
    assert not lake.catalog.table_exists(lake.name)


@pytest.mark.usefixtures("home")
def test_the_newest_rows_of_keys_are_in_the_tables_order() -> None:
    """And so are dead letters, in the order of their own table."""
    rows = pa.table({"id": pa.array([1, 2, 3, 2], pa.int64()), "age": pa.array([7, 5, 9, 6], pa.int32())})
    options: dict[str, Any] = {"mode": "upsert", "keys": "id", "sequence_by": "age", "sort_by": "age desc"}
    settings = Settings.parse({"create_table": True, "verbose": False, **options}, entry=Entry.UPSERT)
    append(rows, TABLE, SinkKey("load", kind=SinkKind.TXN), transaction_batch(1), settings)
    assert stated(load_table(connect(create=False), TABLE)) == [(1, [(3, 9), (1, 7), (2, 6)])]


@pytest.mark.usefixtures("home")
def test_dead_letters_have_the_order_of_their_own_table() -> None:
    load(1, (1, 20), (2, 400))
    catalog = connect(create=False)
    ordered_by(load_table(catalog, LETTERS), "letter_id")
    load(2, (3, 20), (1, 20), (5, 500), (6, 600), (7, 700), (8, 800))
    letters = load_table(catalog, LETTERS)
    ids = [
        pq.read_table(local(one)).column("letter_id").to_pylist()
        for one in letters.inspect.files()["file_path"].to_pylist()
    ]
    [in_order] = [one for one in ids if len(one) == 4]
    assert in_order == sorted(in_order, reverse=True)
    assert sorted(order for order, _ in stated(letters)) == [0, 1]
    assert {order for order, _ in stated(load_table(catalog, TABLE))} == {0}
