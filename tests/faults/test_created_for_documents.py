"""A table that a stream of documents creates: from the option `schema`, from its first documents, or from both."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink_protocol.errors import SettingsError, WriteError
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.measures import DEAD_LETTERS
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Vote, Votes, receipts_of
from testkit.builders import Chance, Lake, Stream
from tests.decode.avro.messages import encoded, message, record
from tests.upsert.change_events import EventStream

RECORDS = pa.schema([("value", pa.binary()), ("offset", pa.int64())])
EVOLVES: dict[str, Any] = {"schema_evolution": "add"}
both_ways = pytest.mark.parametrize(
    "options", [EVOLVES, EVOLVES | {"schema": "id BIGINT NOT NULL"}], ids=["documents", "schema and documents"]
)


@dataclass(slots=True)
class Documents(Stream):
    """A stream of documents into a table that it creates, with those of each task: values for JSON, or messages."""

    tasks: list[list[Any]] = field(default_factory=list)
    meanwhile: Callable[[], object] = lambda: None

    def sink(self, **options: Any) -> IcebergSink:
        sink = Stream.sink(self, **({"decode": "json", "create_table": True} | options))
        sink.schema = RECORDS
        return sink

    def write_batch(self, batch_id: int = 0, **options: Any) -> Outcome:
        return self.run_with(self.sink(**options), batch_id, job=self._job)

    def _job(self, writers: Mapping[str, TaskWriter]) -> Votes:
        self.meanwhile()
        [(name, writer)] = writers.items()
        values = [[one if isinstance(one, bytes) else json.dumps(one).encode() for one in task] for task in self.tasks]
        batches = [pa.record_batch([task, list(range(len(task)))], schema=RECORDS) for task in values]
        written = [writer.write(task, iter([rows])) for task, rows in enumerate(batches)]
        return Votes(len(written), [Vote(at, receipts_of(name, writer, one)) for at, one in enumerate(written)])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A catalog without the table."""
    found = Lake.make(tmp_path)
    return Lake(found.folder, found.catalog, "demo.orders")


def columns(lake: Lake) -> dict[str, str]:
    return {one.name: f"{one.field_type}{' NOT NULL' if one.required else ''}" for one in lake.table().schema().fields}


def stored(lake: Lake) -> list[dict[str, Any]]:
    """The rows as PyArrow reads them from the data files, and PyIceberg from the table; values that are there.

    PyIceberg reads a NULL list of structs as an empty one.
    """
    paths = [task.file.file_path.removeprefix("file://") for task in lake.table().scan().plan_files()]
    files = pa.concat_tables(map(pq.read_table, paths), promote_options="permissive") if paths else pa.table({})
    table = lake.table().scan().to_arrow()
    found, same = (
        sorted(
            ({name: value for name, value in row.items() if value not in (None, [])} for row in one),
            key=lambda row: row.get("id", 0),
        )
        for one in (files.to_pylist(maps_as_pydicts="strict"), table.to_pylist(maps_as_pydicts="strict"))
    )
    assert found == same
    return found


EVERY_TYPE = """
    id BIGINT NOT NULL COMMENT 'of the shop', flag BOOLEAN, tiny TINYINT, number INT, f FLOAT, d DOUBLE,
    price DECIMAL(9, 2), text STRING, code VARCHAR(3), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, bytes BINARY,
    items ARRAY<STRUCT<sku: STRING NOT NULL, pieces: INT>>, tags MAP<STRING, BIGINT>,
    `in.side` STRUCT<a: STRUCT<b: INT>>
"""


def test_the_table_has_the_columns_of_the_schema_and_every_type_holds_its_values(lake: Lake) -> None:
    document = {
        "id": 1, "flag": True, "tiny": 7, "number": 2**31 - 1, "f": 0.5, "d": 0.1, "price": 12.34, "text": "a",
        "code": "EUR", "day": "2024-02-29", "at": "2024-02-29T12:00:00+01:00", "local": "2024-02-29T12:00:00.000001",
        "bytes": "AAE=", "items": [{"sku": "s", "pieces": 2}, {"sku": "t"}], "tags": {"k": 2**40},
        "in.side": {"a": {"b": 3}},
    }  # fmt: skip
    stream = Documents(lake, tasks=[[document], [{"id": 2, "unknown": 1}]])
    stream.write_batch(schema=EVERY_TYPE, binary_encoding="base64")
    assert columns(lake) == {
        "id": "long NOT NULL", "flag": "boolean", "tiny": "int", "number": "int", "f": "float", "d": "double",
        "price": "decimal(9, 2)", "text": "string", "code": "string", "day": "date", "at": "timestamptz",
        "local": "timestamp", "bytes": "binary",
        "items": "list<struct<18: sku: required string, 19: pieces: optional int>>", "tags": "map<string, long>",
        "in.side": "struct<22: a: optional struct<23: b: optional int>>",
    }  # fmt: skip
    assert lake.table().schema().find_field("id").doc == "of the shop"
    assert stored(lake) == [
        document | {
            "price": Decimal("12.34"), "day": date(2024, 2, 29), "at": datetime(2024, 2, 29, 11, tzinfo=UTC),
            "local": datetime(2024, 2, 29, 12, 0, 0, 1), "bytes": b"\0\1",  # noqa: DTZ001 - a clock reading
            "items": [{"sku": "s", "pieces": 2}, {"sku": "t", "pieces": None}],
        },
        {"id": 2},
    ]  # fmt: skip


def test_the_first_documents_name_the_columns_in_the_commit_of_their_rows(lake: Lake) -> None:
    stream = Documents(lake, tasks=[[{"id": 1, "at": {"zip": 5}}, {"id": 2, "f": 1}], [{}, {"id": 3, "f": 0.5}], []])
    outcome = stream.write_batch(**EVOLVES)
    assert isinstance(outcome, Committed)
    assert outcome.schema_change == "added at, f, id"
    assert columns(lake) == {"at": "struct<2: zip: optional long>", "f": "double", "id": "long"}
    assert stored(lake) == [{}, {"id": 1, "at": {"zip": 5}}, {"id": 2, "f": 1.0}, {"id": 3, "f": 0.5}]
    assert len(lake.table().snapshots()) == 1
    assert isinstance(stream.write_batch(**EVOLVES), AlreadyCommitted)


def test_columns_of_the_schema_come_first_and_the_documents_bring_others_into_the_same_partitions(lake: Lake) -> None:
    stream = Documents(
        lake, tasks=[[{"id": 1, "day": "2024-02-29", "z": 1}], [{"id": 2, "day": "2024-03-01", "a": "x"}]]
    )
    stream.write_batch(schema="day DATE NOT NULL, id LONG", partition_by="month(day)", **EVOLVES)
    assert columns(lake) == {"day": "date NOT NULL", "id": "long", "a": "string", "z": "long"}
    first, second = date(2024, 2, 29), date(2024, 3, 1)
    assert stored(lake) == [{"id": 1, "day": first, "z": 1}, {"id": 2, "day": second, "a": "x"}]
    files = {task.file.partition[0]: task.file.file_path for task in lake.table().scan().plan_files()}
    assert {month: Path(path).parent.name for month, path in files.items()} == {
        649: "day_month=2024-02",
        650: "day_month=2024-03",
    }
    assert len(lake.table().snapshots()) == 1


@pytest.mark.parametrize("rescue", ["", "_rescued"])
def test_a_batch_without_a_document_brings_no_column_and_the_next_one_does(lake: Lake, rescue: str) -> None:
    options = EVOLVES | ({"rescue_column": rescue} if rescue else {})
    stream = Documents(lake, tasks=[[]])
    assert isinstance(stream.write_batch(0, **options), Committed)
    assert list(columns(lake)) == ([rescue] if rescue else [])
    stream.tasks = [[{"id": 1}]]
    stream.write_batch(1, **options)
    assert stored(lake) == [{"id": 1}]


def test_a_table_of_columns_that_are_not_of_documents_gets_theirs_from_the_first_ones(lake: Lake) -> None:
    stream = Documents(lake, tasks=[[{"id": 1}, {}, {"id": 2}]])
    stream.write_batch(schema="_kafka_offset BIGINT", **EVOLVES)
    assert stored(lake) == [{"_kafka_offset": 1}, {"id": 1, "_kafka_offset": 0}, {"id": 2, "_kafka_offset": 2}]


def test_what_cannot_become_a_column_of_the_new_table_is_rescued(lake: Lake) -> None:
    stream = Documents(lake, tasks=[[{"mixed": 1}], [{"mixed": "x"}], [{}]])
    stream.write_batch(rescue_column="_rescued", **EVOLVES)
    assert list(columns(lake)) == ["_rescued"]
    rescued = [row.get("_rescued", "") for row in stored(lake)]
    assert sorted(rescued) == ["", '{"unknown":{"mixed":"x"}}', '{"unknown":{"mixed":1}}']


def test_documents_without_a_column_fail_the_batch_and_a_schema_lets_it_pass(lake: Lake) -> None:
    stream = Documents(lake, tasks=[[{}, {"none": None}], [{"mixed": 1}, {"mixed": "x"}]])
    with pytest.raises(
        WriteError, match=r"demo\.orders has no columns, and the documents of batch 0 bring none"
    ) as error:
        stream.write_batch(on_malformed="quarantine", **EVOLVES)
    assert error.value.details == ("mixed: no type holds all of its values",)
    stream.write_batch(schema="id BIGINT", on_malformed="quarantine", **EVOLVES)
    assert stored(lake) == [{}, {}]


def test_a_version_of_an_application_creates_its_table_too(lake: Lake) -> None:
    stream = Documents(lake, kind=SinkKind.TXN, tasks=[[{"id": 1}]])
    stream.write_batch(7, **EVOLVES)
    assert stored(lake) == [{"id": 1}]


def test_messages_of_avro_name_the_columns_by_their_schemas(lake: Lake, tmp_path: Path) -> None:
    old, new = record(("id", "long"), ("size", "int")), record(("id", "long"), ("size", "long"), ("name", "string"))
    (tmp_path / "schemas.json").write_text(json.dumps({1: old, 2: new, 3: record()}))
    messages = [
        message(encoded(old, {"id": 1, "size": 2}), 1),
        message(encoded(new, {"id": 2, "size": 2**40, "name": "a"}), 2),
        message(encoded(record(), {}), 3),
    ]
    stream = Documents(lake, tasks=[[one] for one in messages])
    stream.write_batch(decode="avro", schema_registry=str(tmp_path / "schemas.json"), **EVOLVES)
    assert columns(lake) == {"id": "long", "name": "string", "size": "long"}
    assert stored(lake) == [{}, {"id": 1, "size": 2}, {"id": 2, "size": 2**40, "name": "a"}]


@pytest.mark.parametrize(
    "options", [EVOLVES, EVOLVES | {"schema": "id BIGINT"}], ids=["documents", "schema and documents"]
)
def test_malformed_first_documents_go_aside_and_the_others_name_the_columns(
    lake: Lake, options: dict[str, Any]
) -> None:
    stream = Documents(
        lake, tasks=[[b"{", {"id": 1, "new": 2}], [b"[]"], [{"id": 2, "mixed": 1}, {"id": 3, "mixed": "x"}]]
    )
    options = options | {"on_malformed": "quarantine", "max_dead_letter_ratio": 1}
    outcome = stream.write_batch(**options)
    assert isinstance(outcome, Committed)
    assert outcome.quality.counts[DEAD_LETTERS] == 4
    assert stored(lake) == [{"id": 1, "new": 2}]
    letters = lake.catalog.load_table("demo.orders__dead_letters").scan().to_arrow().to_pylist()
    assert sorted(one["payload"] for one in letters) == ["[]", "{", '{"id": 2, "mixed": 1}', '{"id": 3, "mixed": "x"}']
    assert isinstance(stream.write_batch(**options), AlreadyCommitted)


def test_a_first_batch_that_is_all_malformed_becomes_dead_letters_and_the_next_one_brings_columns(lake: Lake) -> None:
    options = EVOLVES | {"on_malformed": "quarantine", "max_dead_letter_ratio": 1}
    stream = Documents(lake, tasks=[[b"{"]])
    stream.write_batch(0, **options)
    stream.tasks = [[{"id": 1}]]
    stream.write_batch(1, **options)
    assert stored(lake) == [{"id": 1}]


def test_a_malformed_first_document_fails_the_batch_by_its_own_name(lake: Lake) -> None:
    with pytest.raises(WriteError, match="LAKESINK_VALUE_MALFORMED"):
        Documents(lake, tasks=[[b"{"], [{"id": 1}]]).write_batch(**EVOLVES)


# Crashes and rivals


@both_ways
def test_a_driver_that_dies_before_its_tasks_leaves_a_table_that_the_replay_takes(
    lake: Lake, options: dict[str, Any]
) -> None:
    stream = Documents(lake, tasks=[[{"id": 1, "new": 2}]])
    stream.meanwhile = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        stream.write_batch(**options)
    assert not lake.table().snapshots()
    stream.meanwhile = lambda: None
    stream.write_batch(**options)
    assert stored(lake) == [{"id": 1, "new": 2}]


@both_ways
def test_a_prepared_first_batch_is_recovered_with_its_columns(lake: Lake, options: dict[str, Any]) -> None:
    stream = Documents(lake, tasks=[[{"id": 1, "new": 2}]])
    sink = stream.sink(**options)
    sink.before_commit = partial(pytest.fail, "killed")
    with pytest.raises(pytest.fail.Exception):
        stream.run_with(sink, 0, job=stream._job)  # noqa: SLF001 - with a sink that dies
    assert "new" not in columns(lake)
    stream.meanwhile = lambda: pytest.fail("the prepared batch is not written again")
    outcome = stream.write_batch(**options)
    assert isinstance(outcome, Committed)
    assert (outcome.recovered, stored(lake)) == (True, [{"id": 1, "new": 2}])


def test_of_two_drivers_of_one_batch_one_creates_and_one_commits(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Documents(lake, tasks=[[{"id": 1, "new": 2}]])
    second = Documents(lake, catalog=Lake.connect(lake.folder), tasks=first.tasks)
    creates = lake.catalog.create_table
    outcomes: list[Outcome] = []

    def create_late(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        outcomes.append(second.write_batch(**EVOLVES))
        return creates(*args, **options)

    monkeypatch.setattr(lake.catalog, "create_table", create_late)
    outcomes.append(first.write_batch(**EVOLVES))
    assert [type(one) for one in outcomes] == [Committed, AlreadyCommitted]
    assert stored(lake) == [{"id": 1, "new": 2}]


@pytest.mark.parametrize("when", ["before its tasks", "after its votes"])
def test_another_stream_brings_other_columns_into_the_new_table_meanwhile(lake: Lake, when: str) -> None:
    stream, chance = Documents(lake, tasks=[[{"id": 1, "new": 2}]]), Chance()
    other = Documents(lake, sink_id="other", chance=chance, tasks=[[{"id": 9, "else": "x"}]])
    if when == "before its tasks":
        stream.meanwhile = lambda: other.write_batch(**EVOLVES)
        stream.write_batch(**EVOLVES)
    else:
        sink = stream.sink(**EVOLVES)

        def rival() -> None:
            sink.before_commit = None
            other.write_batch(**EVOLVES)

        sink.before_commit = rival
        stream.run_with(sink, 0, job=stream._job)  # noqa: SLF001 - with a sink that waits
    assert sorted(columns(lake)) == ["else", "id", "new"]
    table = lake.table().scan().to_arrow().to_pylist()
    assert sorted(table, key=lambda row: row["id"]) == [
        {"id": 1, "new": 2, "else": None},
        {"id": 9, "new": None, "else": "x"},
    ]


def test_a_later_batch_never_creates_a_table(lake: Lake) -> None:
    with pytest.raises(Exception, match="LAKESINK_TABLE_MISSING"):
        Documents(lake, tasks=[[{"id": 1}]]).write_batch(1, **EVOLVES)
    assert not lake.catalog.table_exists(lake.name)


# A table that exists


@pytest.fixture
def existing(lake: Lake) -> Lake:
    Documents(lake, tasks=[[{"id": 1}]]).write_batch(schema="id INT, s STRUCT<a: INT>, d DECIMAL(5, 2)")
    return lake


@pytest.mark.parametrize(
    "schema", ["id INT", "id INT NOT NULL, d DECIMAL(4, 2)", "d DECIMAL(5, 2), s STRUCT<a: INT>, id INT"]
)
def test_a_table_that_has_the_columns_is_kept(existing: Lake, schema: str) -> None:
    before = existing.table().schema()
    Documents(existing, tasks=[[{"id": 2}]]).write_batch(1, schema=schema)
    assert (existing.table().schema(), stored(existing)) == (before, [{"id": 1}, {"id": 2}])


def test_columns_that_the_table_lacks_are_refused_by_name_or_added(existing: Lake) -> None:
    stream = Documents(existing, tasks=[[{"id": 2, "s": {"b": 3}, "total": 1.5, "more": 1}]])
    schema = "id BIGINT, total DECIMAL(9, 2) NOT NULL, s STRUCT<a: INT, b: INT>"
    with pytest.raises(WriteError, match=r"demo\.orders lacks columns of the option schema: s\.b, total") as error:
        stream.write_batch(1, schema=schema.replace("id BIGINT", "id INT"))
    assert "ALTER TABLE demo.orders ADD COLUMN s.b INT" in str(error.value)
    assert "schema_evolution='add'" in str(error.value)
    with pytest.raises(WriteError, match="'id' is BIGINT in the option schema and INT in the table"):
        stream.write_batch(1, schema=schema, **EVOLVES)
    outcome = stream.write_batch(1, schema=schema, schema_evolution="widen")
    assert isinstance(outcome, Committed)
    assert outcome.schema_change == "added s.b, total, more; widened id"
    assert columns(existing)["total"] == "decimal(9, 2)"
    assert stored(existing)[1]["total"] == Decimal("1.50")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id STRING", "'id' is STRING in the option schema and INT in the table"),
        ("s STRUCT<a: STRING>", "'s' is STRUCT<a: STRING> in the option schema"),
        ("d DECIMAL(5, 3)", "'d' is DECIMAL"),
        ("ID INT", "'ID' differs only in case from 'id'"),
    ],
)
@pytest.mark.parametrize("evolution", ["ignore", "widen"])
def test_a_column_that_cannot_hold_the_schemas_values_is_refused(
    existing: Lake, schema: str, said: str, evolution: str
) -> None:
    with pytest.raises(WriteError, match=said):
        Documents(existing).write_batch(1, schema=schema, schema_evolution=evolution)


def test_a_required_column_that_the_schema_leaves_out_stays_required(lake: Lake) -> None:
    stream = Documents(lake, tasks=[[{"id": 1, "n": 2}]])
    stream.write_batch(0, schema="id BIGINT NOT NULL, n INT")
    stream.write_batch(1, schema="n INT", schema_evolution="widen")
    assert columns(lake) == {"id": "long NOT NULL", "n": "int"}


def test_a_column_that_was_renamed_is_not_added_again(existing: Lake) -> None:
    with existing.table().update_schema() as update:
        update.rename_column("id", "number")
    with pytest.raises(WriteError, match=r"'id' .* was renamed to 'number'"):
        Documents(existing).write_batch(1, schema="id INT", **EVOLVES)


def test_a_restart_with_the_same_schema_goes_on_after_the_documents_have_changed_the_table(lake: Lake) -> None:
    stream = Documents(lake, tasks=[[{"id": 1, "n": 2}]])
    options = {"schema": "id BIGINT NOT NULL, n INT", "schema_evolution": "widen"}
    stream.write_batch(0, **options)
    stream.tasks = [[{"id": 2, "n": 2**40}, {"n": 3}]]
    stream.write_batch(1, **options)
    assert columns(lake) == {"id": "long", "n": "long"}
    stream.write_batch(2, **options)
    assert len(stored(lake)) == 5


# Keys


def test_events_of_a_database_create_a_table_with_its_key(lake: Lake) -> None:
    options = {"create_table": True, "schema": "id BIGINT, name STRING, _kafka_offset BIGINT", "partition_by": "id"}
    events = EventStream(lake, options=options)
    events.take(0, [(0, 1, {"op": "c", "after": {"id": 1, "name": "a"}}), (0, 2, {"op": "c", "after": {"id": 2}})])
    events.take(1, [(0, 3, {"op": "d", "before": {"id": 1}}), (0, 4, {"op": "u", "after": {"id": 2, "name": "b"}})])
    schema = lake.table().schema()
    assert columns(lake) == {"id": "long NOT NULL", "name": "string", "_kafka_offset": "long"}
    assert [schema.find_column_name(one) for one in schema.identifier_field_ids] == ["id"]
    assert lake.table().scan().to_arrow().to_pylist() == [{"id": 2, "name": "b", "_kafka_offset": 4}]


def test_soft_deletes_have_their_column_in_a_new_table_once(lake: Lake) -> None:
    for schema in ("id BIGINT", "id BIGINT, _is_deleted BOOLEAN"):
        name = f"demo.soft{len(schema)}"
        events = EventStream(
            Lake(lake.folder, lake.catalog, name), options={"create_table": True, "schema": schema, "deletes": "soft"}
        )
        events.take(0, [(0, 1, {"op": "c", "after": {"id": 1}})])
        events.take(1, [(0, 2, {"op": "d", "before": {"id": 1}})])
        assert lake.catalog.load_table(name).scan().to_arrow().to_pylist() == [{"id": 1, "_is_deleted": True}]


# Refusals


@pytest.mark.parametrize(
    ("options", "said", "ways"),
    [
        ({}, "documents have no schema", ["id BIGINT NOT NULL", "schema_evolution='add'"]),
        ({"partition_by": "day(at)"}, "documents have no schema", ['schema="at ..."', "of partition_by in schema"]),
        (
            EVOLVES | {"partition_by": "day(at), `x y`"},
            "the option partition_by needs them",
            ['schema="at ..., `x y` ..."'],
        ),
        (
            {"mode": "upsert", "keys": ["id"], "sequence_by": "v"},
            "documents have no schema",
            ['schema="id ..., v ..."', "with those of keys and sequence_by in schema"],
        ),
    ],
)
def test_a_table_of_which_nothing_says_the_columns_is_not_created(
    lake: Lake, options: dict[str, Any], said: str, ways: list[str]
) -> None:
    with pytest.raises(SettingsError, match=said) as error:
        Documents(lake, tasks=[[{"id": 1}]]).write_batch(**options)
    assert error.value.code == "LAKESINK_OPTION_MISSING"
    assert "demo.orders" in error.value.what
    found = error.value.choices or (error.value.action,)
    assert len(found) == len(ways)
    assert all(way in one for way, one in zip(ways, found, strict=True))
    assert not lake.catalog.table_exists(lake.name)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"schema": "id BIGINT", "partition_by": "day"}, "PARTITION_BY_INVALID"),
        ({"schema": "id BIGINT", "mode": "upsert", "keys": "key"}, "OPTION_INVALID"),
        ({"schema": "id DOUBLE", "mode": "upsert", "keys": "id"}, "KEY_UNSUPPORTED"),
        ({"schema": "id BIGINT, ID INT"}, "SCHEMA_UNSUPPORTED"),
        ({"schema": "id BIGINT, _pos INT"}, "SCHEMA_UNSUPPORTED"),
        ({"schema": "_rescued INT", "rescue_column": "_rescued"}, "SCHEMA_MISMATCH"),
    ],
)
def test_columns_that_no_table_can_have_create_none(lake: Lake, options: dict[str, Any], code: str) -> None:
    with pytest.raises((SettingsError, WriteError), match=f"LAKESINK_{code}"):
        Documents(lake).write_batch(**options)


def test_without_create_table_nothing_is_created(lake: Lake) -> None:
    with pytest.raises(Exception, match="LAKESINK_TABLE_MISSING"):
        Documents(lake, tasks=[[{"id": 1}]]).write_batch(create_table=False, **EVOLVES)


def test_an_existing_table_needs_no_schema(existing: Lake) -> None:
    Documents(existing, tasks=[[{"id": 2}]]).write_batch(1)
    assert stored(existing) == [{"id": 1}, {"id": 2}]
