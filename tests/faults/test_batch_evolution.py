"""Rows with other columns than the table: the batch's commit changes the schema too, or an error says how to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, AssertLastAssignedFieldId
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink_protocol.change import ColumnType, SchemaChange
from lakesink_protocol.errors import BatchRefused, CommitUnresolved, WriteError
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_tools.past.records import history, outcome_in_words
from testkit.answers import first
from testkit.builders import Lake, Stream, offered

Rows = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class Evolving(Stream):
    """A stream whose rows have any schema."""

    columns: pa.Schema = field(default_factory=lambda: pa.schema([("id", pa.int64())]))
    content: Rows = ()

    def having(self, columns: pa.Schema, content: Rows) -> "Evolving":
        self.columns, self.content = columns, content
        return self

    def sink(self, **options: Any) -> IcebergSink:
        sink = Stream.sink(self, **options)
        sink.schema = self.columns
        return sink

    def rows(self, told: int, positions: range) -> list[pa.RecordBatch]:  # noqa: ARG002 - the same for every batch
        return [pa.RecordBatch.from_pylist(list(self.content), schema=self.columns)]


BASE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "n", IntegerType()),
    NestedField(3, "x", FloatType()),
    NestedField(4, "d", DecimalType(9, 2)),
    NestedField(5, "s", StructType(NestedField(6, "a", IntegerType()))),
    NestedField(7, "l", ListType(8, StructType(NestedField(9, "a", IntegerType())), element_required=False)),
    NestedField(
        10, "m", MapType(11, StringType(), 12, StructType(NestedField(13, "a", IntegerType())), value_required=False)
    ),
)
PRESENT = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int32()),
        ("x", pa.float32()),
        ("d", pa.decimal128(9, 2)),
        ("s", pa.struct([("a", pa.int32())])),
        ("l", pa.list_(pa.struct([("a", pa.int32())]))),
        ("m", pa.map_(pa.string(), pa.struct([("a", pa.int32())]))),
    ]
)
OLD = {
    "id": 1,
    "n": 7,
    "x": 0.5,
    "d": Decimal("1.25"),
    "s": {"a": 1},
    "l": [{"a": 1}],
    "m": [("k", {"a": 1})],
}
WIDER = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("d", pa.decimal128(18, 2)),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ("l", pa.list_(pa.struct([("b", pa.float64()), ("a", pa.int64())]))),
        ("m", pa.map_(pa.string(), pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int32()))]))),
        ("z", pa.string()),
        ("new", pa.struct([("deep", pa.map_(pa.string(), pa.decimal128(38, 9)))])),
        ("with.dot", pa.int32()),
    ]
)
NEW = {
    "id": 2,
    "n": 2**40,
    "x": 0.1,
    "d": Decimal("1234567890123456.78"),
    "s": {"a": 2**40, "b": "b"},
    "l": [{"a": 2**40, "b": 0.1}],
    "m": [("k", {"a": 2**40, "b": [1, 2]})],
    "z": "z",
    "new": {"deep": [("k", Decimal("0.123456789"))]},
    "with.dot": 5,
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path, schema=BASE, properties={"commit.retry.num-retries": "1"})


@pytest.fixture
def stream(lake: Lake) -> Evolving:
    """A stream with one batch in the table, of the table's own columns."""
    stream = Evolving(lake).having(PRESENT, [OLD])
    stream.run(0)
    return stream


def read(lake: Lake, snapshot_id: int | None = None) -> list[dict[str, Any]]:
    rows = lake.table().scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def test_rows_and_schema_change_in_one_commit(lake: Lake, stream: Evolving) -> None:
    before = lake.head().snapshot_id
    outcome = stream.having(WIDER, [NEW]).run(1, schema_evolution="widen")
    assert isinstance(outcome, Committed)
    requirements, updates = lake.catalog.sent[-1]
    assert {type(one).__name__ for one in updates} > {"AddSchemaUpdate", "AddSnapshotUpdate"}
    assert AssertLastAssignedFieldId(last_assigned_field_id=13) in requirements
    old, new = read(lake)
    assert new == NEW
    absent = {"z": None, "new": None, "with.dot": None}
    assert old == OLD | absent | {
        "s": {"a": 1, "b": None},
        "l": [{"a": 1, "b": None}],
        "m": [("k", {"a": 1, "b": None})],
    }
    assert lake.head().schema_id == lake.table().schema().schema_id == 1
    assert read(lake, before) == [OLD]


def test_new_columns_are_optional_sorted_last_and_have_the_next_ids(lake: Lake, stream: Evolving) -> None:
    stream.having(WIDER, [NEW]).run(1, schema_evolution="widen")
    schema = lake.table().schema()
    names = [one.name for one in schema.fields]
    assert names == [*(one.name for one in BASE.fields), "new", "with.dot", "z"]
    assert lake.table().metadata.last_column_id == schema.highest_field_id
    assert min(schema.find_field(name).field_id for name in ("new", "z", "s.b", "l.element.b", "m.value.b")) == 14
    assert not any(schema.find_field(name).required for name in ("new", "z", "s.b", "new.deep"))


def test_other_readers_see_what_was_written(lake: Lake, stream: Evolving) -> None:
    stream.having(WIDER, [NEW]).run(1, schema_evolution="widen")
    paths = [task.file.file_path.removeprefix("file://") for task in lake.table().scan().plan_files()]
    found = duckdb.read_parquet(paths, union_by_name=True).project("id, n, x, d, s.a, s.b, z").order("id").fetchall()
    assert found == [
        (1, 7, 0.5, Decimal("1.25"), 1, None, None),
        (2, 2**40, 0.1, Decimal("1234567890123456.78"), 2**40, "b", "z"),
    ]


def test_history_tells_what_a_batch_changed(lake: Lake, stream: Evolving) -> None:
    outcome = stream.having(WIDER, [NEW]).run(1, schema_evolution="widen")
    first, second = history(lake.table())
    added = "l.element.b, m.value.b, new, s.b, with.dot, z"
    change = f"added {added}; widened n, x, d, s.a, l.element.a, m.value.a"
    assert isinstance(outcome, Committed)
    assert (first.schema_change, second.schema_change, outcome.schema_change) == ("", change, change)
    assert (outcome_in_words(first), outcome_in_words(second)) == ("committed", f"committed, {change}")


def test_a_replay_evolves_nothing(lake: Lake, stream: Evolving) -> None:
    stream.having(WIDER, [NEW]).run(1, schema_evolution="widen")
    metadata = lake.table().metadata
    assert isinstance(stream.run(1, schema_evolution="widen"), AlreadyCommitted)
    assert lake.table().metadata == metadata


def test_the_next_batch_finds_the_schema_and_changes_nothing(lake: Lake, stream: Evolving) -> None:
    stream.having(WIDER, [NEW]).run(1, schema_evolution="widen")
    stream.having(WIDER, [NEW | {"id": 3}]).run(2, schema_evolution="widen")
    assert len(lake.table().metadata.schemas) == 2
    assert AddSchemaUpdate not in {type(one) for one in lake.catalog.sent[-1][1]}


def test_a_batch_without_rows_brings_its_columns(lake: Lake, stream: Evolving) -> None:
    stream.having(WIDER, []).run(1, schema_evolution="widen")
    assert "z" in lake.table().schema().column_names
    assert read(lake)[0]["z"] is None


RENAMED = [
    (("n",), pa.schema([("id", pa.int64()), ("N", pa.int32())]), "'N' of the query was renamed to 'new'"),
    (("s", "a"), pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int32())]))]), "'s.a' .* 's.new'"),
    (
        ("l", "element", "a"),
        pa.schema([("id", pa.int64()), ("l", pa.list_(pa.struct([("a", pa.int32())])))]),
        "'l.element.a' .* 'l.element.new'",
    ),
    (
        ("m", "value", "a"),
        pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), pa.struct([("a", pa.int32())])))]),
        "'m.value.a' .* 'm.value.new'",
    ),
]


def test_a_column_that_is_missing_since_it_was_renamed_is_told_with_its_name_of_now(
    lake: Lake, stream: Evolving
) -> None:
    with lake.table().update_schema() as update:
        update.rename_column("n", "new")
    with pytest.raises(WriteError, match="SCHEMA_MISMATCH") as refused:
        stream.having(pa.schema([("id", pa.int64()), ("n", pa.int32())]), []).run(1)
    assert (
        refused.value.choices[0] == "Column 'n' of the query was renamed to 'new' in the table. Rename it in the query."
    )


@pytest.mark.parametrize("policy", ["add", "widen"])
@pytest.mark.parametrize(("column", "rows", "said"), RENAMED, ids=[".".join(it[0]) for it in RENAMED])
def test_a_renamed_column_is_not_added_again_under_its_former_name(
    lake: Lake, stream: Evolving, column: tuple[str, ...], rows: pa.Schema, said: str, policy: str
) -> None:
    with lake.table().update_schema() as update:
        update.rename_column(column, "new")
    with pytest.raises(WriteError, match=said) as refused:
        stream.having(rows, []).run(1, schema_evolution=policy)
    assert refused.value.code == "LAKESINK_SCHEMA_MISMATCH"
    assert "ADD COLUMN" in refused.value.action
    with lake.table().update_schema() as update:
        update.add_column(column, IntegerType())
    stream.having(rows, []).run(1, schema_evolution=policy)


def test_add_does_not_widen(lake: Lake, stream: Evolving) -> None:
    with pytest.raises(WriteError, match=r"SCHEMA_MISMATCH.*'n' is BIGINT in the query and INT in the table") as caught:
        stream.having(WIDER, [NEW]).run(1, schema_evolution="add")
    assert "schema_evolution='widen'" in str(caught.value)
    assert len(lake.table().metadata.schemas) == 1


def test_a_required_column_that_the_rows_lack_becomes_optional(lake: Lake, stream: Evolving) -> None:
    stream.having(pa.schema([("n", pa.int32())]), [{"n": 3}])
    with pytest.raises(WriteError, match="Required column 'id'"):
        stream.run(1, schema_evolution="add")
    stream.run(1, schema_evolution="widen")
    assert not lake.table().schema().find_field("id").required
    assert sorted(lake.table().scan().to_arrow()["n"].to_pylist()) == [3, 7]


def test_a_column_that_identifies_rows_stays_required(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, schema=Schema(*BASE.fields, identifier_field_ids=[1]))
    stream = Evolving(lake).having(pa.schema([("n", pa.int32())]), [{"n": 3}])
    with pytest.raises(WriteError, match="Required column 'id'"):
        stream.run(0, schema_evolution="widen")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (pa.schema([("id", pa.int64()), ("n", pa.float64())]), "'n' is DOUBLE in the query and INT in the table"),
        (pa.schema([("id", pa.int64()), ("d", pa.decimal128(18, 4))]), "'d' is DECIMAL"),
        (pa.schema([("id", pa.string())]), "'id' is STRING"),
        (pa.schema([("id", pa.int64()), ("s", pa.int32())]), "'s' is INT"),
        (pa.schema([("id", pa.int64()), ("_pos", pa.int32())]), "'_pos' has a name that Iceberg reserves"),
        (pa.schema([("id", pa.int64()), (" ", pa.int32())]), "has an empty name"),
        (pa.schema([("id", pa.int64()), ("é" * 128, pa.int32())]), "more than 255 bytes"),
        (pa.schema([("id", pa.int64()), ("u", pa.uint64())]), "'u' is of type uint64"),
        (pa.schema([("id", pa.int64()), ("s.a", pa.int32())]), "cannot follow the query"),
    ],
)
def test_what_iceberg_cannot_do_is_refused_and_changes_nothing(
    lake: Lake, stream: Evolving, columns: pa.Schema, said: str
) -> None:
    with pytest.raises(WriteError, match=said):
        stream.having(columns, []).run(1, schema_evolution="widen")
    assert len(lake.table().metadata.schemas) == 1


def test_a_name_that_differs_only_in_case_never_becomes_a_column(lake: Lake, stream: Evolving) -> None:
    stream.having(pa.schema([("id", pa.int64()), ("N", pa.int64())]), [{"id": 3, "N": 3}])
    sink = stream.sink(schema_evolution="widen")
    sink.case_sensitive = True
    with pytest.raises(WriteError, match="'N' differs only in case from 'n'"):
        stream.run_with(sink, 1)
    stream.run(1, schema_evolution="widen")  # the same column, where case does not count
    assert [row["n"] for row in read(lake)] == [7, 3]


def test_the_error_names_every_difference_and_its_commands_mend_it(lake: Lake, stream: Evolving) -> None:
    stream.having(WIDER, [NEW])
    with pytest.raises(WriteError, match="SCHEMA_MISMATCH") as caught:
        stream.run(1)
    table = [line.split() for line in caught.value.details]
    assert ["n", "INT", "BIGINT"] in table
    assert ["l.element.b", "-", "DOUBLE"] in table
    [command] = [one for one in caught.value.choices if one.startswith("In PyIceberg: ")]
    exec(command.removeprefix("In PyIceberg: "), _names(lake))  # noqa: S102 - a user would paste it
    stream.run(1)
    assert read(lake)[1] == NEW


def _names(lake: Lake) -> dict[str, Any]:
    import pyiceberg.types  # noqa: PLC0415 - all names of the module

    return {"table": lake.table(), **vars(pyiceberg.types)}


def test_ignore_leaves_out_columns_that_the_table_lacks(lake: Lake, stream: Evolving) -> None:
    columns = pa.schema(
        [("id", pa.int64()), ("z", pa.string()), ("s", pa.struct([("q", pa.int8()), ("a", pa.int32())]))]
    )
    stream.having(columns, [{"id": 3, "z": "z", "s": {"q": 1, "a": 2}}]).run(1, schema_evolution="ignore")
    assert read(lake)[1]["s"] == {"a": 2}
    assert len(lake.table().metadata.schemas) == 1


# Others change the schema meanwhile


def in_one_life(lake: Lake, stream: Evolving, act: Callable[[], object]) -> Committed:
    """After the first attempt's request, which fails."""

    def fails() -> None:
        act()
        raise CommitFailedException("somebody was quicker")

    lake.catalog.faults = [first(fails)]
    return _committed(stream)


def before_the_request(lake: Lake, stream: Evolving, act: Callable[[], object]) -> Committed:
    """After the look of the first attempt and before its request is carried out."""
    lake.catalog.faults = [first(act)]
    return _committed(stream)


def over_a_restart(lake: Lake, stream: Evolving, act: Callable[[], object]) -> Committed:
    lake.catalog.faults = [lake.catalog.arrives_late] * 2
    with pytest.raises(CommitUnresolved):
        stream.run(1, schema_evolution="widen")
    act()
    return _committed(stream)


def _committed(stream: Evolving) -> Committed:
    outcome = stream.run(1, schema_evolution="widen")
    assert isinstance(outcome, Committed)
    return outcome


WHEN = [in_one_life, before_the_request, over_a_restart]
When = Callable[[Lake, Evolving, Callable[[], object]], Committed]


def add(lake: Lake, name: str, kind: Any) -> None:
    with lake.table().update_schema() as update:
        update.add_column(name, kind)


def drop(lake: Lake, name: str) -> None:
    with lake.table().update_schema() as update:
        update.delete_column(name)


@pytest.fixture
def adding(stream: Evolving) -> Evolving:
    return stream.having(pa.schema([("id", pa.int64()), ("z", pa.string())]), [{"id": 2, "z": "z"}])


@pytest.mark.parametrize("when", WHEN)
def test_a_schema_change_of_another_writer_stays_and_ids_stay_unique(lake: Lake, adding: Evolving, when: When) -> None:
    when(lake, adding, lambda: add(lake, "foreign", DoubleType()))
    schema = lake.table().schema()
    assert [one.name for one in schema.fields][-2:] == ["foreign", "z"]
    assert (schema.find_field("foreign").field_id, schema.find_field("z").field_id) == (14, 15)
    assert [(row["z"], row["foreign"]) for row in read(lake)] == [(None, None), ("z", None)]


@pytest.mark.parametrize("when", WHEN)
def test_the_same_column_of_another_writer_is_used(lake: Lake, adding: Evolving, when: When) -> None:
    before = adding.writes
    when(lake, adding, lambda: add(lake, "z", StringType()))
    assert [row["z"] for row in read(lake)] == [None, "z"]
    assert [one.schema_id for one in lake.table().metadata.schemas] == [0, 1]
    assert adding.writes == before + 1  # it has the same id, so the files fit


@pytest.mark.parametrize("when", WHEN)
def test_the_same_column_with_another_type_is_refused(lake: Lake, adding: Evolving, when: When) -> None:
    with pytest.raises(WriteError, match="'z' is STRING in the query and BIGINT in the table"):
        when(lake, adding, lambda: add(lake, "z", LongType()))
    assert [row["id"] for row in read(lake)] == [1]


@pytest.mark.parametrize("when", WHEN)
def test_a_column_added_and_dropped_by_another_writer_keeps_its_id(lake: Lake, adding: Evolving, when: When) -> None:
    def act() -> None:
        add(lake, "passing", LongType())
        drop(lake, "passing")

    when(lake, adding, act)
    assert lake.table().schema().find_field("z").field_id == 15
    assert [row["z"] for row in read(lake)] == [None, "z"]


@pytest.mark.parametrize("when", WHEN)
def test_a_column_dropped_and_added_again_under_its_name_gets_the_values(
    lake: Lake, stream: Evolving, when: When
) -> None:
    stream.having(WIDER, [NEW])

    def act() -> None:
        drop(lake, "n")
        add(lake, "n", IntegerType())

    when(lake, stream, act)
    assert [row["n"] for row in read(lake)] == [None, 2**40]


@pytest.mark.parametrize("when", WHEN)
def test_a_widening_of_another_writer_needs_no_second_write(lake: Lake, adding: Evolving, when: When) -> None:
    before = adding.writes

    def act() -> None:
        with lake.table().update_schema() as update:
            update.update_column("n", LongType())

    when(lake, adding, act)
    assert adding.writes == before + 1
    assert [(row["n"], row["z"]) for row in read(lake)] == [(7, None), (None, "z")]


def test_two_streams_that_evolve_at_once_keep_both_columns(lake: Lake, adding: Evolving) -> None:
    other = Evolving(lake, "other").having(pa.schema([("id", pa.int64()), ("w", pa.int32())]), [{"id": 3, "w": 4}])
    before_the_request(lake, adding, lambda: other.run(0, schema_evolution="widen"))
    assert [(row["id"], row["z"], row["w"]) for row in read(lake)] == [(1, None, None), (2, "z", None), (3, None, 4)]
    schema = lake.table().schema()
    assert len({schema.find_field(name).field_id for name in ("z", "w")}) == 2


def test_a_prepared_record_is_committed_with_its_schema_change(lake: Lake, adding: Evolving) -> None:
    written = adding.writes
    outcome = over_a_restart(lake, adding, lambda: None)
    assert outcome.recovered
    assert adding.writes == written + 1
    assert [row["z"] for row in read(lake)] == [None, "z"]


@pytest.mark.parametrize("transform", [IdentityTransform(), BucketTransform(4)])
def test_the_source_of_a_partition_may_be_widened_and_manifests_still_merge(tmp_path: Path, transform: Any) -> None:
    lake = Lake.make(
        tmp_path,
        schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "n", IntegerType())),
        spec=PartitionSpec(PartitionField(2, 1000, transform, "part")),
        properties={"commit.manifest.min-count-to-merge": "2"},
    )
    stream = Evolving(lake)
    for batch in range(6):
        kind = pa.int32() if batch < 3 else pa.int64()
        stream.having(pa.schema([("id", pa.int64()), ("n", kind)]), [{"id": batch, "n": batch + 2**31 * (batch > 2)}])
        stream.run(batch, schema_evolution="widen")
    assert [row["n"] for row in read(lake)] == [0, 1, 2, *(batch + 2**31 for batch in (3, 4, 5))]
    found = lake.table().scan(row_filter=f"n = {4 + 2**31}").to_arrow()["id"].to_pylist()
    assert (found, lake.table().scan(row_filter="n = 1").to_arrow()["id"].to_pylist()) == ([4], [1])


def struct_of(*names: str) -> pa.DataType:
    return pa.struct([(name, pa.string()) for name in names])


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("ours", [("y",), ("x", "y")])
@pytest.mark.parametrize("then", ["", "foreign"])
def test_a_struct_that_another_writer_adds_with_other_fields_gets_those_of_the_batch_too(
    lake: Lake, stream: Evolving, when: When, ours: tuple[str, ...], then: str
) -> None:
    """Both writers would give the same ids to the struct and to its first field."""
    value = dict.fromkeys(ours, "ours")
    stream.having(pa.schema([("id", pa.int64()), ("z", struct_of(*ours))]), [{"id": 2, "z": value}])

    def act() -> None:
        add(lake, "z", StructType(NestedField(1, "x", StringType())))
        if then:
            add(lake, then, StringType())

    when(lake, stream, act)
    assert [row["z"] for row in read(lake)] == [None, {"x": None, "y": None} | value]


def test_ignore_tells_what_it_leaves_out_at_every_level(stream: Evolving, caplog: pytest.LogCaptureFixture) -> None:
    inner = pa.struct([("a", pa.int32()), ("q", pa.int8())])
    columns = pa.schema([("id", pa.int64()), ("l", pa.list_(inner)), ("m", pa.map_(pa.string(), inner)), ("z", inner)])
    stream.having(columns, [{"id": 3, "l": [{"a": 1, "q": 2}], "m": [], "z": None}])
    stream.run(1, schema_evolution="ignore")
    assert "which are left out: l.element.q, m.value.q, z" in caplog.text


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("Z", pa.int64()), ("z", pa.int64())], "'z' differs only in case from 'Z'"),
        ([("s", pa.struct([("a", pa.int32()), ("B", pa.int32()), ("b", pa.int32())]))], "'s.b' differs only in case"),
        ([("new", pa.struct([("straße", pa.int32()), ("STRASSE", pa.int32())]))], "differs only in case"),
        ([("new", pa.list_(pa.struct([("", pa.int32())])))], "has an empty name"),
        ([("new", pa.map_(pa.string(), pa.struct([("x" * 256, pa.int32())])))], "more than 255 bytes"),
    ],
)
def test_no_new_column_gets_a_name_that_engines_cannot_read(
    lake: Lake, stream: Evolving, columns: list[tuple[str, pa.DataType]], said: str
) -> None:
    sink = stream.having(pa.schema([("id", pa.int64()), *columns]), []).sink(schema_evolution="widen")
    sink.case_sensitive = True
    with pytest.raises(WriteError, match=said):
        stream.run_with(sink, 1)
    assert len(lake.table().metadata.schemas) == 1


def test_a_column_that_the_table_cannot_follow_gets_no_advice_to_let_it(stream: Evolving) -> None:
    stream.having(pa.schema([("id", pa.int64()), ("x", pa.string()), ("z", pa.string())]), [])
    for policy in ("fail", "widen", "ignore"):
        with pytest.raises(WriteError, match=r"'x' is STRING|'z'") as caught:
            stream.run(1, schema_evolution=policy)
        assert "schema_evolution=" not in str(caught.value)
        assert "ALTER TABLE" not in str(caught.value)


@pytest.mark.parametrize("type_json", ['"decimal(50,2)"', '{"type":"list"}', '"geometry"', '"string"', "7"])
def test_a_record_with_another_schema_change_than_its_files_is_not_used(
    lake: Lake, adding: Evolving, monkeypatch: pytest.MonkeyPatch, type_json: str
) -> None:
    lake.catalog.faults = [lake.catalog.arrives_late] * 2
    with pytest.raises(CommitUnresolved):
        adding.run(1, schema_evolution="widen")
    forged = SchemaChange(added=(ColumnType(("forged",), type_json), ColumnType(("z",), '"string"')))
    monkeypatch.setattr(SchemaChange, "from_json", lambda _: forged)
    outcome = adding.run(1, schema_evolution="widen")
    assert isinstance(outcome, Committed)
    assert not outcome.recovered
    assert [one.name for one in lake.table().schema().fields] == [*(one.name for one in BASE.fields), "z"]


@pytest.mark.dear
def test_a_wide_struct_is_recovered(lake: Lake, stream: Evolving) -> None:
    wide = pa.struct([(f"column_{number}", pa.string()) for number in range(2000)])
    stream.having(pa.schema([("id", pa.int64()), ("wide", wide)]), [{"id": 2, "wide": {"column_7": "seven"}}])
    assert over_a_restart(lake, stream, lambda: None).recovered
    assert read(lake)[1]["wide"]["column_7"] == "seven"


def test_a_batch_that_an_operator_skips_changes_no_schema(lake: Lake, adding: Evolving) -> None:
    with pytest.raises(BatchRefused) as refused:
        adding.run(3, schema_evolution="widen")
    adding.run(3, schema_evolution="widen", accept=offered(refused.value)["skip"])
    assert len(lake.table().metadata.schemas) == 1


def test_a_schema_that_another_writer_gave_the_same_id_is_told(
    lake: Lake, adding: Evolving, caplog: pytest.LogCaptureFixture
) -> None:
    """PyIceberg's own catalog adds it without a check; lakesink's refuses it, see `test_caching_sql`."""

    def there_and_back() -> None:
        for before, after in (("n", "passing"), ("passing", "n")):
            with lake.table().update_schema() as update:
                update.rename_column(before, after)

    before_the_request(lake, adding, there_and_back)
    assert "lakesink.schema.id-taken" in caplog.text
