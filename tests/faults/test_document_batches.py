"""Batches of JSON documents that change the table: a FLOAT column becomes DOUBLE, or a key has a former name."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, IcebergType, ListType, LongType, MapType, NestedField, StringType
from pyiceberg.types import StructType as Struct

from lakesink.decode.news import News
from lakesink.settings.option_types import SchemaEvolution
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import BatchWrite
from lakesink.sinks.iceberg.document_evolution import Followed, follow_documents, possible
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink_catalog.commit.evolution import ChangeImpossible
from lakesink_protocol.change import ColumnType, SchemaChange
from lakesink_protocol.errors import WriteError
from lakesink_protocol.outcome import AlreadyCommitted
from lakesink_protocol.receipt import Receipt, decode, encode
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Vote, Votes, receipts_of
from testkit.builders import TABLE, Lake, Stream
from testkit.letters import one_task

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakesink.rows.plan import WritePlan

Documents = Sequence[Sequence[Mapping[str, Any]]]


@dataclass(slots=True)
class OfDocuments(Stream):
    """A stream of JSON documents, with those of each task."""

    tasks: Documents = ()
    options: dict[str, Any] = field(default_factory=lambda: {"decode": "json", "schema_evolution": "widen"})

    def sink(self, **options: Any) -> IcebergSink:
        sink = Stream.sink(self, **options)
        sink.schema = pa.schema([("value", pa.binary())])
        return sink

    def job(self, writers: Mapping[str, TaskWriter]) -> Votes:
        self.writes += 1
        values = [[json.dumps(one).encode() for one in task] for task in self.tasks]
        batches = [pa.record_batch({"value": pa.array(task, pa.binary())}) for task in values]
        [(name, it)] = writers.items()
        votes = [Vote(task, receipts_of(name, it, it.write(task, iter([rows])))) for task, rows in enumerate(batches)]
        return Votes(len(votes), votes)


PLACES: list[tuple[str, IcebergType, Any]] = [
    ("column", FloatType(), lambda number: number),
    ("struct", Struct(NestedField(3, "f", FloatType())), lambda number: {"f": number}),
    ("list", ListType(3, FloatType(), element_required=False), lambda number: [number]),
    ("map", MapType(3, StringType(), 4, FloatType(), value_required=False), lambda number: {"k": number}),
    (
        "list of structs",
        ListType(3, Struct(NestedField(4, "f", FloatType())), element_required=False),
        lambda number: [{"f": number}],
    ),
]


@pytest.mark.parametrize("one_task", [True, False], ids=["one task", "a task each"])
@pytest.mark.parametrize(("kind", "around"), [it[1:] for it in PLACES], ids=[it[0] for it in PLACES])
def test_a_number_is_the_nearest_double_also_beside_the_one_that_widens(
    tmp_path: Path, kind: IcebergType, around: Any, *, one_task: bool
) -> None:
    lake = Lake.make(tmp_path, schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "f", kind)))
    numbers = [0.1, 0.1, 1e300, 0.123456789012345]
    documents = [{"id": at, "f": around(number)} for at, number in enumerate(numbers)]
    documents[1]["new"] = 7
    stream = OfDocuments(lake, tasks=[documents] if one_task else [[one] for one in documents])
    stream.run_with(stream.sink(), 0, job=stream.job)
    rows = sorted(lake.table().scan().to_arrow().to_pylist(maps_as_pydicts="strict"), key=lambda row: row["id"])
    assert [row["f"] for row in rows] == [around(number) for number in numbers]
    assert [row["new"] for row in rows] == [None, 7, None, None]
    assert len(lake.table().snapshots()) == 1


@pytest.mark.parametrize(
    "tasks",
    [[[{"id": 1, "f": 1e300}, {"id": 2, "f": 2e300}]], [[{"id": 1, "f": 0.1}, {"id": 2, "new": 5}]]],
    ids=["no task has written a FLOAT", "no FLOAT is widened"],
)
def test_a_batch_is_written_once_if_no_number_changes(tmp_path: Path, tasks: Documents) -> None:
    lake = Lake.make(tmp_path, schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "f", FloatType())))
    stream = OfDocuments(lake, tasks=tasks)
    stream.run_with(stream.sink(), 0, job=stream.job)
    assert stream.writes == 1


def test_where_the_job_cannot_run_again_the_batch_is_refused_with_the_statement(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "f", FloatType())))
    stream = OfDocuments(lake, tasks=[[{"id": 1, "f": 0.1}, {"id": 2, "f": 1e300}]])
    sink = stream.sink()
    sink.can_write_again = False
    with pytest.raises(WriteError, match=r"need DOUBLE, after others were written as FLOAT: f\.") as refused:
        stream.run_with(sink, 0, job=stream.job)
    assert "ALTER TABLE demo.events ALTER COLUMN f TYPE DOUBLE" in str(refused.value)
    with lake.table().update_schema() as update:
        update.update_column("f", DoubleType())
    stream.run_with(stream.sink(), 0, job=stream.job)
    assert [row["f"] for row in lake.table().scan().to_arrow().to_pylist()] == [0.1, 1e300]


@pytest.mark.parametrize("policy", ["add", "widen"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_key_with_the_former_name_of_a_column_becomes_no_column(tmp_path: Path, policy: str, *, nested: bool) -> None:
    inner = Struct(NestedField(3, "old", LongType()))
    lake = Lake.make(tmp_path, schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "s", inner)))
    if not nested:
        with lake.table().update_schema() as update:
            update.add_column("old", LongType())
    with lake.table().update_schema() as update:
        update.rename_column(("s", "old") if nested else ("old",), "new")
    document = {"id": 1, "s": {"old": 7}} if nested else {"id": 1, "old": 7}
    stream = OfDocuments(lake, tasks=[[document]])
    stream.options["schema_evolution"] = policy
    with pytest.raises(WriteError, match="SCHEMA_MISMATCH") as refused:
        stream.run_with(stream.sink(), 0, job=stream.job)
    assert f"the table's column {'s.new' if nested else 'new'} had this name before it was renamed" in str(
        refused.value
    )
    stream.run_with(stream.sink(rescue_column="_rescued"), 0, job=stream.job)
    [row] = lake.table().scan().to_arrow().to_pylist()
    assert json.loads(row["_rescued"])["unknown"] == ({"s.old": 7} if nested else {"old": 7})


def test_a_key_whose_column_is_renamed_for_a_while_is_put_aside_with_its_document(tmp_path: Path) -> None:
    """The tasks write under the passing name, and the batch lands when the column has its name again."""
    lake = Lake.make(tmp_path, schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "a", LongType())))

    def rename(old: str, new: str) -> None:
        with lake.table().update_schema() as update:
            update.rename_column(old, new)

    def job(writers: Mapping[str, TaskWriter]) -> Votes:
        documents = [b'{"id": 1}', b'{"id": 2, "a": 7}']
        votes = one_task(pa.table({"value": pa.array(documents, pa.binary())}))(writers)
        rename("passing", "a")
        return votes

    rename("a", "passing")
    stream = OfDocuments(lake)
    stream.run_with(stream.sink(on_malformed="quarantine", max_dead_letter_ratio=1), 0, job=job)
    assert lake.table().scan().to_arrow().to_pylist() == [{"id": 1, "a": None}]
    [letter] = lake.catalog.load_table(f"{TABLE}__dead_letters").scan().to_arrow().to_pylist()
    assert (json.loads(letter["payload"]), letter["column_name"]) == ({"id": 2, "a": 7}, "a")


def test_of_the_keys_of_a_batch_those_that_can_become_columns_do(lake: Lake) -> None:
    """The table has got the first one meanwhile, and two have a name that cannot be printed, one of them within."""
    unprintable = {"struct": {"a\n": "whole"}}
    news = News({("batch",): "whole", ("new",): "text", ("s",): unprintable, ("t\n",): "whole", ("z",): "truth"})
    found = follow_documents(
        [Receipt(0, 1, (), news=news.to_json())], lake.table(), Settings(schema_evolution=SchemaEvolution.ADD)
    )
    assert found.change == SchemaChange((ColumnType(("new",), '"string"'), ColumnType(("z",), '"boolean"')))
    assert found.refused == dict.fromkeys([("s",), ("t\n",)], "its name has characters that are not printable")


def test_a_key_that_the_table_cannot_take_is_refused_and_the_others_become_columns() -> None:
    added = tuple(ColumnType((name,), '"long"') for name in ("a", "taken", "z"))
    asked: list[SchemaChange] = []

    def follow(change: SchemaChange) -> BatchWrite:
        asked.append(change)
        if added[1] in change.added:
            raise ChangeImpossible("its name is taken")
        return written

    written = BatchWrite(cast("Table", None), cast("WritePlan", None))  # neither is looked at
    found, write = possible(Followed(SchemaChange(added), {("x",): "no type"}), follow)
    assert (found.change.added, write) == ((added[0], added[2]), written)
    assert found.refused == {
        ("x",): "no type",
        ("taken",): "another column or partition field of the table has its name",
    }
    assert asked[-1] == found.change


@pytest.mark.parametrize("task", [0, 1])
def test_rows_that_another_task_left_are_not_written(lake: Lake, task: int) -> None:
    stream = OfDocuments(lake, tasks=[[{"new": 7}]])
    sink = stream.sink()
    transaction = sink.begin(stream.batch(0))
    assert isinstance(transaction, IcebergTransaction)
    assert transaction.writer is not None
    [vote] = map(decode, stream.job({"it": transaction.writer}).receipts("it"))
    votes = [encode(replace(vote, task=task))]
    if task:
        with pytest.raises(WriteError, match="left has the name of another task, batch or sink"):
            sink.write_rest(transaction, votes)
    else:
        rest = sink.write_rest(transaction, votes)
        assert isinstance(rest, bytes)
        assert decode(rest).rows == 1


def test_a_rival_that_goes_on_before_the_driver_writes_the_rest_has_rolled_nothing_back(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path, schema=Schema(NestedField(1, "id", LongType())))
    documents: Documents = [[{"id": 1, "new": 7}, {"id": "no number"}]]
    aside = {"on_malformed": "quarantine", "max_dead_letter_ratio": 1.0}

    def stream() -> OfDocuments:
        of_rows = OfDocuments(lake, tasks=documents)
        of_rows.options |= aside
        return of_rows

    first, rival = stream(), stream()
    first.run_with(first.sink(), 0, job=first.job)

    def job(writers: Mapping[str, TaskWriter]) -> Votes:
        votes = first.job(writers)
        for batch_id in (1, 2):
            rival.run_with(rival.sink(), batch_id, job=rival.job)
        return votes

    first.tasks = [[{"id": 1, "newer": 7}, {"id": "no number"}]]
    rival.tasks = first.tasks
    assert isinstance(first.run_with(first.sink(), 1, job=job), AlreadyCommitted)
    letters = lake.catalog.load_table("demo.events__dead_letters").scan().to_arrow()
    assert sorted(letters["batch_id"].to_pylist()) == [0, 1, 2]
    assert len(lake.table().scan().to_arrow()) == 3
