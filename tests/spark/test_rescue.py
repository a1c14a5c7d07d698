"""The rescue column of streams and appends: it is added with the first batch, and the table keeps its counts."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField, StringType

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.errors import LakesinkError, SettingsError
from lakesink_protocol.measures import RESCUED_ROWS, Tally
from lakesink_protocol.quality import Quality
from lakesink_tools.cli.main import main
from tests.spark.adapters import ADAPTERS
from tests.spark.streams import failure, run

TABLE = "demo.events"
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
OPTIONS: dict[str, Any] = {"sink_id": "events", "checkpoint": "ck", "decode": "json", "rescue_column": "_rescued"}


@pytest.fixture(autouse=True)
def table(home: Path) -> None:  # noqa: ARG001 - where the embedded catalog is
    create_table(connect(), TABLE, COLUMNS)


def documents(spark: Any, folder: Path, *texts: str) -> Any:
    folder.mkdir(exist_ok=True)
    (folder / f"{len(list(folder.iterdir()))}.txt").write_text("\n".join(texts) + "\n")
    return spark.readStream.format("text").load(str(folder))


def append(spark: Any, table: str, *texts: str) -> None:
    """Batch 0, without a query."""
    found = spark.createDataFrame([(text,) for text in texts], "value STRING")
    lakesink.append(found, table, txn=("events", 0), decode="json", rescue_column="_rescued")


def rows() -> list[tuple[Any, ...]]:
    found = load_table(connect(create=False), TABLE).scan().to_arrow().to_pylist()
    return sorted(map(tuple, map(dict.values, found)), key=str)


def summaries() -> list[dict[str, str]]:
    table = load_table(connect(create=False), TABLE)
    found = [snapshot.summary.additional_properties for snapshot in table.snapshots() if snapshot.summary]
    return [{key: one[key] for key in one if key.startswith(("lakesink.resc", "lakesink.schema"))} for one in found]


def test_the_column_comes_with_the_first_batch_and_keeps_what_does_not_fit(spark: Any, tmp_path: Path) -> None:
    first = '{"id": 1, "name": "a", "price": 1.10, "_rescued": "mine"}', '{"id": "one", "name": "b"}', '{"id": 3}'
    run(lakesink.stream(documents(spark, tmp_path / "in", *first), TABLE, **OPTIONS))
    run(lakesink.stream(documents(spark, tmp_path / "in", '{"id": 4}'), TABLE, **OPTIONS))
    assert rows() == [
        (1, "a", '{"unknown":{"_rescued":"mine","price":1.10}}'),
        (3, None, None),
        (4, None, None),
        (None, "b", '{"unfit":{"id":{"expected":"BIGINT","value":"one"}}}'),
    ]
    counts = {"_rescued: no column": 1, "id: not BIGINT": 1, "price: no column": 1}
    [one, other] = summaries()
    assert json.loads(one.pop("lakesink.rescued")) == counts
    assert one == {"lakesink.rescued-rows": "2", "lakesink.schema-change": "added _rescued"}
    assert other == {}
    [of_one, of_other] = lakesink.history(TABLE)
    assert (of_one.rescued_rows, of_one.rescued, of_one.unknown_keys) == (2, counts, 0)
    assert (of_other.rescued_rows, of_other.rescued) == (0, {})
    [field] = [field for field in load_table(connect(create=False), TABLE).schema().fields if field.field_id == 3]
    assert (field.name, field.field_type, field.required) == ("_rescued", StringType(), False)


def test_a_crash_before_the_commit_loses_neither_column_nor_texts(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = documents(spark, tmp_path / "in", '{"id": 1, "new": [1.50]}')
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "after-prepared@0=raise")
    failure(lakesink.stream(query, TABLE, **OPTIONS))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    assert len(load_table(connect(create=False), TABLE).schema().fields) == 2
    run(lakesink.stream(query, TABLE, **OPTIONS))
    assert rows() == [(1, None, '{"unknown":{"new":[1.50]}}')]
    [record] = lakesink.history(TABLE)
    assert (record.outcome, record.rescued, record.schema_change) == (
        "recovered",
        {"new: no column": 1},
        "added _rescued",
    )


def test_an_append_keeps_them_too_and_commands_show_their_number(spark: Any) -> None:
    records = spark.createDataFrame([('{"id": 1, "new": 1}',), ('{"id": 2}',)], "value string")
    options = {name: OPTIONS[name] for name in ("decode", "rescue_column")}
    outcome = lakesink.append(records, TABLE, txn=("load", 1), **options)
    assert isinstance(outcome, lakesink.Committed)
    assert outcome.quality == Quality(Tally({RESCUED_ROWS: 1}), rescued={"new: no column": 1})
    shown = {name: CliRunner().invoke(main, [name, TABLE]).output for name in ("log", "status", "audit", "quality")}
    assert "1 rescued" in shown["log"]
    assert "1 of 2 rows have a text in the rescue column" in shown["status"]
    assert "1 of 2 rows have a text in the rescue column" in shown["audit"]
    [line] = [line.split() for line in shown["quality"].splitlines() if "rescued rows" in line]
    assert line[-5:-1] == ["1", "50.00", "%", "1"]


def test_a_misfit_in_a_required_column_is_still_malformed(spark: Any) -> None:
    stern = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
    connect().create_table("demo.stern", stern)
    with pytest.raises(LakesinkError, match="2 malformed documents in batch 0") as refused:
        append(spark, "demo.stern", '{"id": "x", "new": 1}', '{"id": 1, "name": "a", "new": 1}', "[]")
    assert "column id: BIGINT expected, found text of 1 character" in str(refused.value)
    assert len(load_table(connect(create=False), "demo.stern").schema().fields) == 2


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (("_rescued", BinaryType()), "is BINARY in the table, and must be STRING"),
        (("_Rescued", StringType()), "differs only in case from '_Rescued'"),
    ],
)
def test_another_column_of_this_name_is_refused_before_the_start(
    spark: Any, tmp_path: Path, field: Any, said: str
) -> None:
    with load_table(connect(create=False), TABLE).update_schema() as update:
        update.add_column(*field)
    with pytest.raises(LakesinkError, match=said):
        lakesink.stream(documents(spark, tmp_path / "in", '{"id": 1}'), TABLE, **OPTIONS)
    assert said in failure(ADAPTERS["format"](documents(spark, tmp_path / "in", '{"id": 1}'), TABLE, **OPTIONS))


def test_only_documents_have_a_rescue_column(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="The option rescue_column needs decode"):
        lakesink.stream(documents(spark, tmp_path / "in", '{"id": 1}'), TABLE, **(OPTIONS | {"decode": None}))


@pytest.mark.parametrize("name", ["_kafka_key", "_KAFKA_x", "", " a", "a" * 256, "a\nb", 7])
def test_a_name_that_no_rescue_column_can_have_is_refused(spark: Any, tmp_path: Path, name: Any) -> None:
    with pytest.raises(SettingsError, match="The option rescue_column is"):
        lakesink.stream(documents(spark, tmp_path / "in", '{"id": 1}'), TABLE, **(OPTIONS | {"rescue_column": name}))
