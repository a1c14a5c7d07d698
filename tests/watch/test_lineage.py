"""Events for OpenLineage: valid by its published schemas, the same for a replay, and never in the way of a batch."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

pytest.importorskip("openlineage.client")

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import RunEvent
from openlineage.client.serde import Serde
from pyspark.sql import SparkSession

import lakesink
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.spark import open_lineage
from lakesink.spark.open_lineage import Lineage, Sender, name_at, name_in, sender
from lakesink.spark.report import traced
from lakesink.spark.source.data_source import LakesinkDataSource
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.connect.catalog import FoundCatalog
from lakesink_catalog.failpoints import VARIABLE as FAILPOINTS
from lakesink_catalog.failpoints import FailpointReached
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol import events
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import Batch, stream_batch
from lakesink_protocol.outcome import Committed
from testkit import letters
from testkit.builders import ROWS, Lake, Stream
from testkit.http_servers import Answer, Request, http_server
from tests.spark.adapters import embedded_catalog
from tests.spark.streams import file_stream, run, write_files

Json = dict[str, Any]
SPEC = Path(__file__).parent / "openlineage_spec"
RUN_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
SERVERS = "PLAINTEXT://broker-1:9092,broker-2:9092"


@cache
def published() -> Registry[Any]:
    found = [json.loads(path.read_text()) for path in SPEC.glob("*.json")]
    return Registry().with_resources((one["$id"], Resource.from_contents(one)) for one in found)


def check(value: Any, schema: str) -> None:
    Draft202012Validator({"$ref": schema}, registry=published(), format_checker=FormatChecker()).validate(value)


def check_published(event: Json) -> None:
    """The event is valid, and each facet by the schema that it names, also in the place that the schema has for it."""
    check(event, RUN_EVENT)
    assert event["schemaURL"] == RUN_EVENT
    for holder in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
        for group in ("facets", "inputFacets", "outputFacets"):
            for name, facet in holder.get(group, {}).items():
                check(facet, facet["_schemaURL"])
                check({name: facet}, facet["_schemaURL"].partition("#")[0])


class Collected:
    """Keeps what a collector would get."""

    def __init__(self) -> None:
        self.events: list[Json] = []

    def __call__(self, event: RunEvent) -> None:
        self.events.append(json.loads(Serde.to_json(event)))
        check_published(self.events[-1])

    @property
    def ends(self) -> list[Json]:
        return [event for event in self.events if event["eventType"] == "COMPLETE"]


@pytest.fixture
def collected() -> Collected:
    return Collected()


@pytest.fixture
def stream(lake: Lake, collected: Collected) -> Stream:
    return Stream(lake, listeners=LISTENERS.also(traces(lake, collected)))


def traces(lake: Lake, collected: Collected) -> Lineage:
    return Lineage(collected, uri_of(lake), places=[SERVERS])


def uri_of(lake: Lake) -> str:
    return FoundCatalog("lake", lake.catalog.properties).uri


def ended(stream: Stream, batch: Batch, start: Any = None) -> None:
    """Run a batch that begins at these offsets and report its end, as the batch function of a query does."""
    stream.listeners(events.OffsetsRead(batch.batch_id, start, json.loads(batch.offsets), None))
    outcome = stream.run(batch)
    stream.listeners(events.BatchFinished(batch.batch_id, stream.lake.name, stream.sink_id, 2.0, 1.0, outcome))


def of_kafka(stream: Stream, *ends: int) -> list[tuple[Batch, Any]]:
    """Batches that begin at 0 and end at these offsets, and where each begins."""
    ranges = enumerate(pairwise((0, *ends)))
    return [(stream.of_kafka(number, start, end), [{"orders": {"0": start}}]) for number, (start, end) in ranges]


def test_each_of_three_batches_is_a_run_of_one_job(stream: Stream, collected: Collected) -> None:
    for batch in of_kafka(stream, 3, 7, 12):
        ended(stream, *batch)
    assert [event["eventType"] for event in collected.events] == ["START", "COMPLETE"] * 3
    runs = [event["run"]["runId"] for event in collected.events]
    assert runs[::2] == runs[1::2]
    assert len(set(runs)) == 3
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in collected.events} == {
        ("lakesink", "demo.events.events")
    }
    assert collected.ends[2]["run"]["facets"]["tags"]["tags"] == [
        {"key": "batch_id", "value": "2", "source": "lakesink"},
        {"key": "query_id", "value": "query-1", "source": "lakesink"},
    ]


def test_an_output_is_the_table_with_its_snapshot_and_what_came_into_it(stream: Stream, collected: Collected) -> None:
    ended(stream, stream.batch(0))
    table = stream.lake.table()
    [output] = collected.ends[0]["outputs"]
    assert (output["namespace"], output["name"]) == ("file", table.location().removeprefix("file://"))
    [link] = output["facets"]["symlinks"]["identifiers"]
    assert link == {"namespace": f"sqlite:///{stream.lake.folder}/catalog.db", "name": "demo.events", "type": "TABLE"}
    assert output["facets"]["version"]["datasetVersion"] == str(stream.snapshot_of(0))
    assert [(one["name"], one["type"]) for one in output["facets"]["schema"]["fields"]] == [
        (name, "long") for name in ROWS.names
    ]
    counts, added = output["outputFacets"]["outputStatistics"], stream.lake.head().summary
    assert added is not None
    assert (counts["rowCount"], counts["fileCount"]) == (3, 1)
    assert counts["size"] == int(added["added-files-size"] or 0)


def test_offsets_are_the_subset_of_the_input(stream: Stream, collected: Collected) -> None:
    for batch in of_kafka(stream, 3, 7):
        ended(stream, *batch)
    for end, (start, to) in zip(collected.ends, [(0, 3), (3, 7)], strict=True):
        [read] = end["inputs"]
        assert (read["namespace"], read["name"]) == ("kafka://broker-1:9092", "orders")
        condition = read["inputFacets"]["subset"]["inputCondition"]
        assert condition["partitions"] == [{"identifier": "0", "dimensions": {"startOffset": start, "endOffset": to}}]


def test_a_start_that_the_checkpoint_does_not_tell_is_left_out(stream: Stream, collected: Collected) -> None:
    ended(stream, stream.of_kafka(0, 5, 7))
    condition = collected.ends[0]["inputs"][0]["inputFacets"]["subset"]["inputCondition"]
    assert condition["partitions"] == [{"identifier": "0", "dimensions": {"endOffset": 7}}]


def test_files_and_tables_are_inputs_if_it_is_known_where_they_are(lake: Lake, collected: Collected) -> None:
    after = [
        {"logOffset": 4},
        {"lakesink": 1, "table": "silver.orders", "batch": 9, "snapshot": 77},
        {"orders": {"0": 3}},
    ]
    batch = stream_batch(0, "query-1", start=None, end=after)
    for places in (["s3a://in/orders", "prod", SERVERS], ["s3a://in/orders", "other", ""]):
        stream = Stream(lake, listeners=LISTENERS.also(Lineage(collected, uri_of(lake), ["prod", ""], places)))
        ended(stream, batch)
    names = [_names(end) for end in collected.ends]
    files, kafka = ("s3://in", "orders"), ("kafka://broker-1:9092", "orders")
    assert names == [[files, (f"sqlite:///{lake.folder}/catalog.db", "silver.orders"), kafka], [files]]
    assert collected.ends[0]["inputs"][1]["facets"]["version"]["datasetVersion"] == "77"


def test_a_replay_that_is_skipped_repeats_the_end_of_the_same_run(stream: Stream, collected: Collected) -> None:
    first, second = of_kafka(stream, 3, 7)
    ended(stream, *first)
    ended(stream, *second)
    ended(Stream(stream.lake, listeners=LISTENERS.also(traces(stream.lake, collected))), *second)
    assert [event["eventType"] for event in collected.events] == ["START", "COMPLETE", "START", "COMPLETE", "COMPLETE"]
    assert collected.events[-1] == collected.events[-2]


def test_a_driver_that_died_after_its_commit_is_made_up_for_by_the_replay(
    stream: Stream, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    [batch] = of_kafka(stream, 3)
    monkeypatch.setenv(FAILPOINTS, "after-commit@0=raise")
    with pytest.raises(FailpointReached):
        ended(stream, *batch)
    monkeypatch.delenv(FAILPOINTS)
    assert collected.events == []
    ended(stream, *batch)
    [end] = collected.events
    assert end["outputs"][0]["facets"]["version"]["datasetVersion"] == str(stream.snapshot_of(0))


def test_a_commit_whose_answer_was_lost_is_told_once(stream: Stream, collected: Collected) -> None:
    stream.lake.catalog.faults = [lambda apply: (apply(), stream.lake.catalog.arrives_late(apply))[1]]
    ended(stream, stream.batch(0))
    assert [event["eventType"] for event in collected.events] == ["START", "COMPLETE"]


@pytest.mark.usefixtures("home")
def test_dead_letters_are_an_output_of_the_batch_that_wrote_them(
    collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit = LISTENERS.also(Lineage(collected, "sqlite:///catalog.db"))
    monkeypatch.setattr(letters, "IcebergSink", partial(IcebergSink, effects=Effects(emit=emit)))
    for version, people in enumerate([((1, 30), (2, 999)), ((3, 40),)]):
        letters.load(version, *people)
        emit(events.BatchFinished(version, letters.TABLE, "load", 1.0, 1.0, Committed(snapshot_id=1, rows=1)))
    assert [_linked(end) for end in collected.ends] == [[letters.LETTERS, letters.TABLE], [letters.TABLE]]
    assert [end["job"]["name"] for end in collected.ends] == ["demo.people.load (txn)"] * 2
    assert collected.ends[0]["job"]["facets"]["jobType"]["processingType"] == "BATCH"


def _linked(end: Json) -> list[str]:
    return [one["facets"]["symlinks"]["identifiers"][0]["name"] for one in end["outputs"]]


def test_no_secret_is_in_an_event(lake: Lake, collected: Collected) -> None:
    uri = FoundCatalog("lake", {"uri": "postgresql://user:geheim@host:5432/catalog?sslpassword=geheim"}).uri
    lineage = Lineage(collected, uri, places=["SASL_SSL://user:geheim@broker:9092"])
    stream = Stream(lake, listeners=LISTENERS.also(lineage))
    for batch in of_kafka(stream, 3, 7):
        ended(stream, *batch)
    assert "geheim" not in str(collected.events)
    assert collected.ends[1]["inputs"][0]["namespace"] == "kafka://broker:9092"
    [link] = collected.ends[1]["outputs"][0]["facets"]["symlinks"]["identifiers"]
    assert link["namespace"] == "postgresql://host:5432/catalog"


def test_a_branch_is_part_of_the_job_and_shows_no_secret(lake: Lake, collected: Collected) -> None:
    ended(stream := Stream(lake), stream.batch(0))
    lake.table().manage_snapshots().create_branch(lake.head().snapshot_id, "token=geheim").commit()
    listeners = LISTENERS.also(Lineage(collected))
    ended(late := Stream(lake, sink_id="late", branch="token=geheim", listeners=listeners), late.batch(0))
    assert collected.ends[0]["job"]["name"] == "demo.events.late@token=***"


def test_no_secret_is_in_a_name() -> None:
    assert name_at("s3a://key:geheim@bucket/warehouse/orders/") == ("s3://bucket", "warehouse/orders")
    assert name_at("abfss://container@account.dfs.core.windows.net/a/b?sig=geheim") == (
        "abfss://container@account.dfs.core.windows.net",
        "a/b",
    )
    assert name_at("s3://bucket/part#1/orders") == ("s3://bucket", "part#1/orders")
    assert name_at("hdfs://namenode:8020/a") == ("hdfs://namenode:8020", "/a")
    assert name_in("postgresql+psycopg2://user:geheim@host:5432/catalog?password=geheim", "a.b") == (
        "postgresql+psycopg2://host:5432/catalog",
        "a.b",
    )
    assert name_in("thrift://metastore:9083", "a.b") == ("hive://metastore:9083", "a.b")


def client_of(url: str) -> OpenLineageClient:
    """The official client, which sends to this collector and tries it once."""
    transport = {"type": "http", "url": url, "timeout": 60, "retry": {"total": 0}}
    return OpenLineageClient(config={"transport": transport})


@contextmanager
def collector(behaviour: str, requests: list[Request], may_answer: threading.Event) -> Iterator[str]:
    def answer(request: Request) -> Answer:
        requests.append(request)
        if behaviour == "slow":
            may_answer.wait(60)
        return (503, {}) if behaviour == "refuses" else (201, {})

    with http_server(answer) as url:
        if behaviour != "away":
            yield url
    if behaviour == "away":
        yield url


@pytest.mark.parametrize("behaviour", ["away", "slow", "refuses"])
def test_batches_go_on_while_a_collector_is_away_or_slow_or_refuses(
    lake: Lake, behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_lineage, "MOST_WAITING", 2)
    requests, told, may_answer = list[Request](), list[events.Event](), threading.Event()
    with collector(behaviour, requests, may_answer) as url:
        sends = Sender(client_of(url).emit, told.append)
        stream = Stream(lake, listeners=LISTENERS.also(Lineage(sends)))
        for batch_id in range(3):  # a slow collector answers nothing until all are committed
            ended(stream, stream.batch(batch_id))
        assert [mark.batch_id for mark in stream.marks()] == [0, 1, 2]
        may_answer.set()
        sends.close()
    [first] = [event for event in told if isinstance(event, events.LineageNotSent)]
    assert first.error


def test_lost_events_are_told_once_and_counted_when_the_collector_is_back() -> None:
    told, answers = list[events.Event](), iter([OSError("away"), OSError("away"), None, OSError("away again")])

    def emit(_: Any) -> None:
        error = next(answers)
        if error is not None:
            raise error

    sends: Any = Sender(emit, told.append)
    for _ in range(4):
        sends("event")
    sends.close()
    assert told == [
        events.LineageNotSent("OSError: away"),
        events.LineageSentAgain(2),
        events.LineageNotSent("OSError: away again"),
    ]


def test_an_error_of_the_client_is_told_without_a_secret() -> None:
    told = list[events.Event]()

    def emit(_: Any) -> None:
        raise OSError("503 for https://user:geheim@collector/api/v1/lineage")

    sends: Any = Sender(emit, told.append)
    sends("event")
    sends.close()
    assert "geheim" not in str(told)
    assert "collector" in str(told)


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The environment for the client of the process, which is made anew."""
    monkeypatch.delenv("LAKESINK_OPENLINEAGE", raising=False)
    sender.cache_clear()
    yield monkeypatch
    sender.cache_clear()


def test_nothing_is_told_unless_the_option_or_the_variable_asks_for_it(configured: pytest.MonkeyPatch) -> None:
    configured.setenv("OPENLINEAGE__TRANSPORT__TYPE", "noop")
    assert traced(LISTENERS) is LISTENERS
    assert len(traced(LISTENERS, openlineage=True).others) == 1
    configured.setenv("LAKESINK_OPENLINEAGE", "1")
    assert len(traced(LISTENERS).others) == 1
    assert traced(LISTENERS, openlineage=False) is LISTENERS


def test_a_missing_client_is_an_error_at_the_start_and_says_how_to_get_it(configured: pytest.MonkeyPatch) -> None:
    configured.delitem(sys.modules, "lakesink.spark.open_lineage")
    configured.setitem(sys.modules, "openlineage.client", None)
    with pytest.raises(SettingsError, match="OPENLINEAGE_CLIENT") as caught:
        traced(LISTENERS, openlineage=True)
    assert 'pip install "lakesink[openlineage]"' in str(caught.value)


def test_a_client_that_cannot_be_made_is_an_error_at_the_start(configured: pytest.MonkeyPatch) -> None:
    configured.setenv("OPENLINEAGE__TRANSPORT__TYPE", "pigeon")
    with pytest.raises(SettingsError, match="OPENLINEAGE_CLIENT") as caught:
        traced(LISTENERS, openlineage=True)
    assert "Correct OPENLINEAGE_URL" in str(caught.value)


@pytest.mark.usefixtures("home")
def test_a_running_stream_and_an_append_tell_a_collector(
    spark: SparkSession, tmp_path: Path, configured: pytest.MonkeyPatch
) -> None:
    requests = list[Request]()
    with collector("answers", requests, threading.Event()) as url:
        configured.setenv("OPENLINEAGE__TRANSPORT__TYPE", "http")
        configured.setenv("OPENLINEAGE__TRANSPORT__URL", url)
        write_files(tmp_path / "in", 3)
        rows = file_stream(spark, tmp_path / "in")
        told: dict[str, Any] = {"create_table": True, "openlineage": True}
        run(lakesink.stream(rows, "demo.traced", sink_id="s", checkpoint=tmp_path / "c", **told))
        spark.dataSource.register(LakesinkDataSource)
        written = spark.readStream.format("lakesink").options(**embedded_catalog(), table="demo.traced").load()
        run(lakesink.stream(written, "demo.copied", sink_id="s", checkpoint=tmp_path / "c2", **told))
        lakesink.append(spark.range(3), "demo.appended", txn=("app", 1), **told)
        sender().close()
    found = [json.loads(request.body) for request in requests]
    for event in found:
        check_published(event)
    *ends, copied, appended = [event for event in found if event["eventType"] == "COMPLETE"]
    assert [end["job"]["name"] for end in ends] == ["demo.traced.s"] * 3
    assert [_rows(end) for end in (*ends, copied, appended)] == [10, 10, 10, 30, 3]
    assert [_names(end) for end in ends] == [[("file", str(tmp_path / "in"))]] * 3
    link = ends[-1]["outputs"][0]["facets"]["symlinks"]["identifiers"][0]
    assert _names(copied) == [(link["namespace"], "demo.traced")]
    assert copied["inputs"][0]["facets"]["version"] == ends[-1]["outputs"][0]["facets"]["version"]
    assert appended["job"]["name"] == "demo.appended.app (txn)"
    assert "sourceCodeLocation" not in str(found)


def _rows(end: Json) -> int:
    rows: int = end["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"]
    return rows


def _names(end: Json) -> list[tuple[str, str]]:
    return [(one["namespace"], one["name"]) for one in end["inputs"]]
