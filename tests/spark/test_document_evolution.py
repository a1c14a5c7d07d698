"""The table follows the keys of JSON documents: no restart, and one commit has the columns and the rows."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType, LongType

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.errors import SettingsError, WriteError
from lakesink_tools.cli.main import main
from tests.spark.adapters import Adapter
from tests.spark.streams import failure, run

TABLE = "demo.events"
OPTIONS: dict[str, Any] = {"sink_id": "events", "checkpoint": "ck", "decode": "json", "schema_evolution": "add"}


@pytest.fixture(autouse=True)
def table(home: Path) -> None:  # noqa: ARG001 - where the embedded catalog is
    create_table(connect(), TABLE, pa.schema([("id", pa.int64()), ("name", pa.string()), ("size", pa.int32())]))


def documents(spark: Any, folder: Path, *texts: str) -> Any:
    folder.mkdir(exist_ok=True)
    (folder / f"{len(list(folder.iterdir()))}.txt").write_text("\n".join(texts) + "\n")
    return spark.readStream.format("text").load(str(folder))


def append(spark: Any, *texts: str, version: int = 1, **options: Any) -> None:
    """As many tasks as documents."""
    parts = [spark.createDataFrame([(text,)], "value string") for text in texts]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    chosen = {"decode": "json", "schema_evolution": "add", **options}
    lakesink.append(whole, TABLE, txn=("load", version), **chosen)


def rows() -> list[dict[str, Any]]:
    found = load_table(connect(create=False), TABLE).scan().to_arrow().to_pylist()
    return sorted(({key: row[key] for key in row if row[key] is not None} for row in found), key=lambda row: row["id"])


def columns() -> dict[str, str]:
    return {field.name: str(field.field_type) for field in load_table(connect(create=False), TABLE).schema().fields}


def test_new_keys_become_columns_in_the_commit_of_their_batch(spark: Any, tmp_path: Path, either: Adapter) -> None:
    first = (
        '{"id": 1, "name": "a"}',
        '{"id": 2, "price": 1.5, "tags": ["x", "y"], "at": {"city": "Bonn", "zip": 53111}}',
        '{"id": 3, "price": 2, "nothing": null, "ok": true, "none": []}',
    )
    run(either(documents(spark, tmp_path / "in", *first), TABLE, **OPTIONS))
    assert rows() == [
        {"id": 1, "name": "a"},
        {"id": 2, "price": 1.5, "tags": ["x", "y"], "at": {"city": "Bonn", "zip": 53111}},
        {"id": 3, "price": 2.0, "ok": True},
    ]
    run(either(documents(spark, tmp_path / "in", '{"id": 4, "at": {"land": "DE"}}'), TABLE, **OPTIONS))
    assert rows()[3] == {"id": 4, "at": {"city": None, "zip": None, "land": "DE"}}
    assert columns() == {
        "id": "long", "name": "string", "size": "int",
        "at": "struct<5: city: optional string, 6: zip: optional long, 11: land: optional string>",
        "ok": "boolean", "price": "double", "tags": "list<string>",
    }  # fmt: skip
    shown = CliRunner().invoke(main, ["doctor", TABLE, "--no-spark"]).output
    assert "a key without a column becomes a column; a row that cannot be written stops the query" in shown
    changes = [record.schema_change for record in lakesink.history(TABLE)]
    assert changes == ["added at, ok, price, tags", "added at.land"]
    assert len(load_table(connect(create=False), TABLE).snapshots()) == 2


def test_a_crash_before_the_commit_leaves_the_old_columns_and_the_replay_adds_them_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = documents(spark, tmp_path / "in", '{"id": 1, "new": 1}', '{"id": 2}')
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "after-prepared@0=raise")
    failure(lakesink.stream(query, TABLE, **OPTIONS))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    assert list(columns()) == ["id", "name", "size"]
    run(lakesink.stream(query, TABLE, **OPTIONS))
    assert rows() == [{"id": 1, "new": 1}, {"id": 2}]
    [record] = lakesink.history(TABLE)
    assert (record.outcome, record.schema_change) == ("recovered", "added new")


def test_widen_makes_columns_wide_enough_for_numbers_and_optional_where_documents_lack_them(spark: Any) -> None:
    texts = '{"id": 1, "size": 3000000000}', '{"id": 2, "size": 5}'
    append(spark, *texts, schema_evolution="widen")
    assert rows() == [{"id": 1, "size": 3_000_000_000}, {"id": 2, "size": 5}]
    assert columns()["size"] == "long"


def test_add_does_not_widen(spark: Any) -> None:
    with pytest.raises(WriteError, match="LAKESINK_VALUE_MALFORMED"):
        append(spark, '{"id": 1, "size": 3000000000}')
    assert columns()["size"] == "int"


def test_fail_names_the_keys_their_types_and_the_commands(spark: Any) -> None:
    texts = '{"id": 1, "price": 1.5}', '{"id": 2, "mixed": 1}', '{"id": 3, "mixed": "x"}'
    said = r"Documents of batch 1 do not fit the table's columns: price, mixed\."
    with pytest.raises(WriteError, match=said) as failed:
        append(spark, *texts, schema_evolution="fail")
    assert failed.value.code == "LAKESINK_SCHEMA_MISMATCH"
    assert "ALTER TABLE demo.events ADD COLUMN price DOUBLE" in str(failed.value)
    assert not rows()


def test_the_error_of_an_append_has_the_differences_as_a_table(spark: Any) -> None:
    records = spark.createDataFrame(
        [('{"id": 1, "mixed": 1}',), ('{"id": 2, "mixed": [], "p": 1.5}',), ('{"mixed": "x"}',)], "value string"
    )
    with pytest.raises(WriteError) as failed:
        lakesink.append(records, TABLE, txn=("load", 1), decode="json", schema_evolution="fail")
    assert [line.split() for line in failed.value.details] == [
        ["column", "in", "the", "table", "in", "the", "query"],
        ["p", "-", "DOUBLE"],
        ["mixed:", "no", "type", "holds", "all", "of", "its", "values"],
    ]


def test_a_key_without_a_type_fails_or_is_rescued_or_put_aside(spark: Any) -> None:
    texts = '{"id": 1, "mixed": 1, "new": 1}', '{"id": 2, "mixed": "x"}', '{"id": 3, "new": 2}', '{"id": 4}'
    with pytest.raises(WriteError, match=r"Documents of batch 1 have keys that cannot become columns: mixed\."):
        append(spark, *texts)
    append(spark, *texts, on_malformed="quarantine")
    assert rows() == [{"id": 3, "new": 2}, {"id": 4}]
    letters = load_table(connect(create=False), f"{TABLE}__dead_letters").scan().to_arrow().to_pylist()
    found = sorted((one["payload"], one["reason"], one["column_name"]) for one in letters)
    assert found == [(text, "SCHEMA_MISMATCH", "mixed") for text in texts[:2]]


def test_what_cannot_become_a_column_is_rescued_and_the_rest_becomes_columns(spark: Any) -> None:
    texts = '{"id": 1, "mixed": 1, "NAME": "A", "new": {"a": 1, "b": [1, "x"]}}', '{"id": 2, "mixed": "x"}', '{"id": 3}'
    append(spark, *texts, rescue_column="_rescued")
    assert rows() == [
        {"id": 1, "new": {"a": 1}, "_rescued": '{"unknown":{"NAME":"A","mixed":1,"new.b":[1,"x"]}}'},
        {"id": 2, "_rescued": '{"unknown":{"mixed":"x"}}'},
        {"id": 3},
    ]
    append(spark, '{"id": 4, "mixed": 3, "NAME": "B"}', version=2, rescue_column="_rescued")
    assert rows()[3]["_rescued" if "_rescued" in rows()[3] else "mixed"] is not None


def test_a_batch_adds_at_most_so_many_columns_and_names_the_first_in_order(spark: Any) -> None:
    many = json.dumps({"id": 1} | {f"k{number:03d}": number for number in range(20)})
    append(spark, many, rescue_column="_rescued", max_new_columns=5)
    assert [name for name in columns() if name.startswith("k")] == [f"k{number:03d}" for number in range(5)]
    [row] = rows()
    assert len(json.loads(row["_rescued"])["unknown"]) == 15


def test_an_append_of_documents_follows_them_too(spark: Any) -> None:
    records = spark.createDataFrame([('{"id": 1, "new": 1}',), ('{"id": 2}',)], "value string").repartition(3)
    lakesink.append(records, TABLE, txn=("load", 1), decode="json", schema_evolution="add")
    assert rows() == [{"id": 1, "new": 1}, {"id": 2}]


@pytest.mark.parametrize(
    "options",
    [
        {"schema_evolution": "ignore", "max_new_columns": 5},
        {"max_new_columns": 0},
        {"max_new_columns": 1001},
    ],
)
def test_options_that_contradict_each_other_are_refused_before_the_start(
    spark: Any, tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(SettingsError, match=r"schema_evolution|max_new_columns"):
        lakesink.stream(documents(spark, tmp_path / "in", '{"id": 1}'), TABLE, **(OPTIONS | options))


def test_another_writer_adds_the_column_meanwhile_and_the_documents_take_it(spark: Any) -> None:
    records = spark.createDataFrame([('{"id": 1, "new": 1}',)], "value string")
    with load_table(connect(create=False), TABLE).update_schema() as update:
        update.add_column("new", IntegerType())
    lakesink.append(records, TABLE, txn=("load", 1), decode="json", schema_evolution="add")
    assert rows() == [{"id": 1, "new": 1}]
    assert columns()["new"] == "int"


def test_a_batch_whose_documents_are_all_malformed_still_fails(spark: Any) -> None:
    records = spark.createDataFrame([("{",), ("[]",)], "value string")
    with pytest.raises(WriteError, match="malformed"):
        lakesink.append(records, TABLE, txn=("load", 1), decode="json", schema_evolution="widen")


def test_many_keys_that_are_null_hide_no_kind_of_another_key(spark: Any) -> None:
    nulls = {f"a{number:03d}": None for number in range(150)}
    append(spark, '{"id": 1, "z": 0.5}', json.dumps({"id": 2, **nulls, "z": 2**53 + 1}), rescue_column="_rescued")
    assert rows() == [
        {"id": 1, "_rescued": '{"unknown":{"z":0.5}}'},
        {"id": 2, "_rescued": '{"unknown":{"z":9007199254740993}}'},
    ]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ('{"id": 1, "a.b": 1, "a": {"b": 2}}', "a"),
        ('{"id": 1, "tags.element": 1, "tags": [2]}', "tags"),
        ('{"id": 1, "id_bucket": 5}', ""),
    ],
)
def test_a_key_whose_name_the_table_cannot_have_is_rescued_beside_the_others(
    spark: Any, text: str, column: str
) -> None:
    with load_table(connect(create=False), TABLE).update_spec() as update:
        update.add_field("id", BucketTransform(4), "id_bucket")
    append(spark, text, '{"id": 2, "ok": 1}', rescue_column="_rescued")
    wanted = [column] if column else []
    assert [name for name in columns() if name not in ("id", "name", "size", "ok", "_rescued")] == wanted
    assert [row["id"] for row in rows()] == [1, 2]
    assert "unknown" in rows()[0]["_rescued"]


def test_a_document_that_goes_aside_for_its_values_changes_no_column(spark: Any) -> None:
    options: dict[str, Any] = {"on_malformed": "quarantine", "schema_evolution": "widen", "max_dead_letter_ratio": 1}
    append(spark, '{"id": "x", "new": 1}', '{"id": "y", "size": 3000000000}', '{"id": 1}', **options)
    assert columns() == {"id": "long", "name": "string", "size": "int"}
    assert rows() == [{"id": 1}]


def test_a_key_with_the_name_of_a_column_of_kafka_is_named(spark: Any) -> None:
    with load_table(connect(create=False), TABLE).update_schema() as update:
        update.add_column("_kafka_offset", LongType())
    records = spark.createDataFrame([('{"id": 1, "_kafka_offset": 7}', 3)], "value string, offset long")
    for policy in ("add", "fail"):
        with pytest.raises(WriteError, match="_kafka_offset"):
            lakesink.append(records, TABLE, txn=("load", 1), decode="json", schema_evolution=policy)


def test_the_source_of_a_partition_does_not_become_wider(spark: Any) -> None:
    with load_table(connect(create=False), TABLE).update_spec() as update:
        update.add_identity("size")
    append(spark, '{"id": 1, "size": 3000000000, "new": 1}', '{"id": 2}', schema_evolution="widen", rescue_column="r")
    assert columns()["size"] == "int"
    assert rows() == [{"id": 1, "new": 1, "r": '{"unfit":{"size":{"expected":"INT","value":3000000000}}}'}, {"id": 2}]
