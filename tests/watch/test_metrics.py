"""Numbers of a running stream, for whoever asks: the listener counts, and no collector can stop or slow a batch."""

import math
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

import lakesink
from lakesink.observe.metrics import (
    BATCHES,
    CONSUMED,
    FAILURES,
    LONGEST_LABEL,
    METRICS,
    MOST_STREAMS,
    MOST_VALUES,
    OPENTELEMETRY,
    RUNNING,
    UNCOMMITTED,
    MetricKind,
    Numbers,
    Stream,
    counting,
)
from lakesink.spark.report import measured
from lakesink.spark.source.data_source import LakesinkDataSource
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol import events
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.measures import DEAD_LETTERS, MEASURES, Tally
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.quality import OTHERS, Quality
from lakesink_protocol.row_changes import ChangeCounts
from servers.ports import free_port
from tests.spark.adapters import embedded_catalog
from tests.spark.streams import counter_stream, file_stream, run, run_batches, write_files
from tests.watch.collectors import COLLECTORS, PATIENCE_SECONDS, answering

STREAM = ("demo.events", "events")
COMMITTED = Committed(snapshot_id=7, rows=10, files=2, bytes=300)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def numbers(clock: Clock) -> Numbers:
    return Numbers(clock)


@pytest.fixture
def stream(numbers: Numbers) -> Stream:
    return numbers.stream(*STREAM, "main")


def finished(outcome: Outcome = COMMITTED, batch_id: int = 3) -> events.BatchFinished:
    return events.BatchFinished(batch_id, *STREAM, 1.5, 1.0, outcome)


def failed(*, is_refused: bool, code: str = "LAKESINK_GAP") -> events.BatchFailed:
    return events.BatchFailed(3, *STREAM, 1.5, 1.0, is_refused, code, "it is", ())


def scraped(numbers: Numbers) -> dict[str, float]:
    """What Prometheus reads: names with the labels that are not the stream's, and numbers."""
    return samples_of(exposed(numbers))


def exposed(numbers: Numbers) -> str:
    registry = CollectorRegistry()
    registry.register(numbers)
    return str(generate_latest(registry), "utf-8")


def samples_of(text: str) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            more = [value for name, value in sample.labels.items() if name not in ("table", "sink", "branch")]
            found[" ".join([sample.name, *more])] = sample.value
    return found


def test_a_committed_batch_is_counted_with_its_rows_and_times(numbers: Numbers, stream: Stream) -> None:
    stream(finished())
    stream(finished(batch_id=4))
    found = scraped(numbers)
    assert found["lakesink_batches_total committed"] == 2
    assert found["lakesink_committed_rows_total"] == 20
    assert found["lakesink_committed_files_total"] == 4
    assert found["lakesink_committed_bytes_total"] == 600
    assert found["lakesink_last_committed_batch"] == 4
    assert found["lakesink_last_commit_duration_seconds"] == 1.5
    assert found["lakesink_last_write_duration_seconds"] == 1.0
    assert found["lakesink_last_commit_timestamp_seconds"] == 1000


def test_every_outcome_of_a_batch_has_its_own_count(numbers: Numbers, stream: Stream) -> None:
    stream(finished(replace(COMMITTED, rows=0)))
    stream(finished(replace(COMMITTED, recovered=True)))
    stream(finished(AlreadyCommitted(7)))
    stream(failed(is_refused=True))
    stream(failed(is_refused=False))
    stream(events.BatchInterrupted(3, *STREAM, 1.5, 1.0))
    found = {name: count for name, count in scraped(numbers).items() if name.startswith("lakesink_batches_total")}
    words = ("already-committed", "empty", "failed", "interrupted", "recovered", "refused")
    assert found == {"lakesink_batches_total committed": 0} | {f"lakesink_batches_total {word}": 1 for word in words}


def test_refusals_and_failures_are_counted_by_their_code(numbers: Numbers, stream: Stream) -> None:
    stream(failed(is_refused=True))
    assert scraped(numbers)["lakesink_failures_total LAKESINK_GAP"] == 1


def test_attempts_are_counted_by_their_answer(numbers: Numbers, stream: Stream) -> None:
    for event in (events.CommitNotShown(3, 1), events.CommitUnknown(3, 2, "timeout"), events.CommitShown(3)):
        stream(event)
    found = scraped(numbers)
    assert [found[f"lakesink_commit_attempts_total {answer}"] for answer in ("shown", "not-shown", "unknown")] == [
        1
    ] * 3


def test_every_declared_measure_and_every_count_of_changes_is_a_metric(numbers: Numbers, stream: Stream) -> None:
    quality = Quality(Tally({DEAD_LETTERS: 4}), unmet={"valid_age": 3})
    stream(finished(replace(COMMITTED, quality=quality, changes=ChangeCounts(upserts=5, updated=5))))
    found = scraped(numbers)
    assert {f"lakesink_{measure.name}_total" for measure in MEASURES} <= found.keys()
    assert found["lakesink_dead_letters_total"] == 4
    assert found["lakesink_expectation_unmet_rows_total valid_age"] == 3
    assert (found["lakesink_changes_upserts_total"], found["lakesink_changes_deleted_total"]) == (5, 0)


def test_rows_that_spark_has_read_grow_older_until_they_are_committed(
    numbers: Numbers, stream: Stream, clock: Clock
) -> None:
    stream(events.BatchStarted(3))
    clock.now += 60
    stream(failed(is_refused=False))
    stream(events.BatchStarted(3))
    clock.now += 5
    assert scraped(numbers)["lakesink_uncommitted_age_seconds"] == 65
    stream(finished())
    clock.now += 5
    assert scraped(numbers)["lakesink_uncommitted_age_seconds"] == 0


def test_an_age_goes_on_when_a_failed_query_is_started_again(numbers: Numbers, stream: Stream, clock: Clock) -> None:
    stream(events.BatchStarted(3))
    stream(failed(is_refused=False))
    clock.now += 60
    numbers.stream(*STREAM, "main")(events.BatchStarted(3))
    assert scraped(numbers)["lakesink_uncommitted_age_seconds"] == 60


def test_what_spark_has_not_read_has_a_number_and_an_age(numbers: Numbers, stream: Stream, clock: Clock) -> None:
    stream(events.QueryProgressed(7))
    clock.now += 60
    stream(events.QueryProgressed(9))
    found = scraped(numbers)
    assert (found["lakesink_unread_offsets"], found["lakesink_unread_age_seconds"]) == (9, 60)
    stream(events.QueryProgressed(0))
    assert scraped(numbers)["lakesink_unread_age_seconds"] == 0


def test_offsets_that_spark_has_read_wait_until_their_batch_is_in_the_table(numbers: Numbers, stream: Stream) -> None:
    stream(events.BatchStarted(3))
    stream(events.OffsetsRead(3, None, [], 40))
    stream(failed(is_refused=False))
    assert scraped(numbers)["lakesink_uncommitted_offsets"] == 40
    stream(finished())
    assert scraped(numbers)["lakesink_uncommitted_offsets"] == 0


def test_a_source_that_does_not_count_its_offsets_has_no_lag_instead_of_a_wrong_one(
    numbers: Numbers, stream: Stream
) -> None:
    stream(events.BatchStarted(3))
    stream(events.OffsetsRead(3, None, [], None))
    stream(finished())
    assert not {"lakesink_unread_offsets", "lakesink_uncommitted_offsets"} & scraped(numbers).keys()


def test_a_stream_over_another_sink_is_a_consumer_of_that_one(numbers: Numbers, stream: Stream) -> None:
    stream(events.BatchesRead(7, "shop.orders", "orders", "main"))
    assert dict(numbers.read(CONSUMED)) == {("shop.orders", "orders", "main", "events"): 7}


def test_opentelemetrys_own_translation_gives_prometheus_the_same_names_and_numbers(
    numbers: Numbers, stream: Stream
) -> None:
    quality = Quality(Tally({DEAD_LETTERS: 4}), unmet={"valid_age": 3})
    for event in (finished(replace(COMMITTED, quality=quality)), failed(is_refused=True), events.QueryProgressed(3)):
        stream(event)
    reader = PrometheusMetricReader()
    provider = MeterProvider([reader])
    numbers.to_opentelemetry(provider)
    text = generate_latest(reader._collector).decode()  # noqa: SLF001 - the registry of the process has other numbers
    provider.shutdown()
    text = re.sub(r'otel_scope_\w+="[^"]*",?', "", text)
    found = {name: number for name, number in samples_of(text).items() if name.startswith("lakesink")}
    assert found == pytest.approx(scraped(numbers))


def test_labels_are_bounded_and_have_no_secret(numbers: Numbers) -> None:
    numbers.stream("https://user:geheim@host/table", "events", "main")
    for number in range(MOST_STREAMS + 10):
        numbers.stream("demo.events", f"app-{number}", "main")
    text = exposed(numbers)
    sinks = set(re.findall(r'sink="([^"]*)"', text))
    assert len(sinks) == MOST_STREAMS + 1
    assert OTHERS in sinks
    assert "geheim" not in text


@pytest.mark.parametrize(
    "secret", ["s3://key:geheim@lake/t", "jdbc:x?password=geheim", "token=geheim", "Bearer geheim00"]
)
def test_no_label_shows_a_secret(numbers: Numbers, secret: str) -> None:
    numbers.stream(secret, secret, secret)(failed(is_refused=False, code=secret))
    numbers.consumed(secret, secret, secret, secret, 1)
    assert "geheim" not in exposed(numbers)


def test_values_of_a_metrics_own_label_are_bounded_in_number_and_length(numbers: Numbers, stream: Stream) -> None:
    for number in range(MOST_VALUES + 10):
        stream(failed(is_refused=False, code=f"E{number}" + "x" * 1_000))
    found = dict(numbers.read(FAILURES))
    assert len(found) == MOST_VALUES + 1
    assert found[(*STREAM, "main", OTHERS)] == 10
    assert max(len(label) for labels in found for label in labels) == LONGEST_LABEL


def test_names_follow_the_rules_of_prometheus() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"lakesink(_[a-z]+)+", metric.prometheus)
        assert metric.prometheus.endswith("_total") == (metric.kind is MetricKind.COUNTER)
        assert metric.help.endswith(".")
    assert len({metric.prometheus for metric in METRICS}) == len(METRICS)


@contextmanager
def pushed(port: int, numbers: Numbers) -> Iterator[None]:
    """The numbers are pushed a hundred times a second to a collector, or as often as it answers."""
    exporter = OTLPMetricExporter(f"http://127.0.0.1:{port}/v1/metrics", timeout=1)
    provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=10)])
    numbers.to_opentelemetry(provider)
    try:
        yield
    finally:
        provider.shutdown(timeout_millis=1_000)


def test_a_collector_gets_every_number_that_prometheus_reads(numbers: Numbers, stream: Stream) -> None:
    for event in (events.BatchesRead(7, *STREAM, "main"), events.QueryEnded(), events.QueryProgressed(3), finished()):
        stream(event)
    with answering(200) as (port, reached, bodies), pushed(port, numbers):
        assert reached.wait(PATIENCE_SECONDS)
    [resource] = ExportMetricsServiceRequest.FromString(bodies[0]).resource_metrics
    found = {metric.name for scope in resource.scope_metrics for metric in scope.metrics}
    assert found == {metric.opentelemetry for metric in METRICS if dict(numbers.read(metric))}


@pytest.mark.parametrize("collector", COLLECTORS, ids=lambda one: one.__name__)
def test_events_are_counted_while_a_collector_is_away_or_slow_or_refuses(
    numbers: Numbers, stream: Stream, collector: Callable[[], AbstractContextManager[tuple[int, threading.Event]]]
) -> None:
    emit = LISTENERS.also(stream)
    with collector() as (port, reached), pushed(port, numbers):
        assert reached.wait(PATIENCE_SECONDS)
        for batch_id in range(100):  # a slow collector has not answered yet, and does not until all are counted
            emit(finished(batch_id=batch_id))
        assert scraped(numbers)["lakesink_batches_total committed"] == 100


def test_a_reader_that_connects_and_says_nothing_keeps_nobody_else_from_reading(
    numbers: Numbers, stream: Stream
) -> None:
    registry = CollectorRegistry()
    registry.register(numbers)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        with socket.create_connection(("127.0.0.1", server.server_port)):
            LISTENERS.also(stream)(finished())
            with urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=60) as answer:
                assert samples_of(answer.read().decode())["lakesink_batches_total committed"] == 1
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_nobody_counts_unless_an_option_or_the_variable_names_who_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKESINK_METRICS", raising=False)
    assert measured(LISTENERS, *STREAM) is LISTENERS
    monkeypatch.setenv("LAKESINK_METRICS", "otel")
    assert isinstance(measured(LISTENERS, *STREAM).others[0], Stream)


def test_a_variable_of_another_form_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESINK_METRICS", "graphite")
    with pytest.raises(SettingsError, match="The variable LAKESINK_METRICS is 'graphite': expected 'otel'"):
        measured(LISTENERS, *STREAM)


def test_a_port_that_is_taken_is_a_line_in_the_log_and_the_stream_runs(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        assert measured(LISTENERS, *STREAM, metrics=place) is LISTENERS
    assert f"lakesink.metrics.not-served place={place} error=OSError" in caplog.text


def test_a_missing_client_is_an_error_at_the_start_and_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(SettingsError, match="METRICS_CLIENT_MISSING") as caught:
        measured(LISTENERS, *STREAM, metrics="127.0.0.1:1")
    assert 'pip install "lakesink[metrics]"' in str(caught.value)


@pytest.mark.usefixtures("home")
def test_a_running_stream_is_scraped(spark: SparkSession, tmp_path: Path) -> None:
    port = free_port()
    write_files(tmp_path / "in", 3)
    rows = file_stream(spark, tmp_path / "in")
    writer = lakesink.stream(
        rows, "demo.scraped", sink_id="s", checkpoint=tmp_path / "c", create_table=True, metrics=port
    )
    run(writer)
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        found = samples_of(answer.read().decode())
    assert found["lakesink_batches_total committed"] == 3
    assert found["lakesink_committed_rows_total"] == 30
    assert found["lakesink_commit_attempts_total shown"] == 3
    assert math.isfinite(found["lakesink_last_commit_duration_seconds"])


@pytest.mark.usefixtures("home")
def test_a_stream_goes_on_while_all_its_collectors_are_away_or_slow_or_refuse(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers = counting(OPENTELEMETRY)
    numbers.stream("demo.pushed", "pushed", "main")  # without any number, nothing is pushed
    with ExitStack() as stack:
        for collector in COLLECTORS:
            port, reached = stack.enter_context(collector())
            stack.enter_context(pushed(port, numbers))
            assert reached.wait(PATIENCE_SECONDS)
        writer = lakesink.stream(
            counter_stream(spark),
            "demo.pushed",
            sink_id="pushed",
            checkpoint=tmp_path / "c",
            create_table=True,
            metrics=OPENTELEMETRY,
        )
        run_batches(writer, 3)
    [committed] = [number for labels, number in numbers.read(BATCHES) if labels[1::2] == ("pushed", "committed")]
    assert committed >= 4
    assert ("demo.pushed", "pushed", "main") in dict(numbers.read(UNCOMMITTED))


@pytest.mark.usefixtures("home")
def test_a_stream_over_another_table_tells_how_far_it_has_read(spark: SparkSession, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 3)
    rows = file_stream(spark, tmp_path / "in")
    run(lakesink.stream(rows, "demo.raw", sink_id="raw", checkpoint=tmp_path / "raw", create_table=True))
    spark.dataSource.register(LakesinkDataSource)
    raw = spark.readStream.format("lakesink").options(**(embedded_catalog() | {"table": "demo.raw"})).load()
    numbers = counting(OPENTELEMETRY)
    run(
        lakesink.stream(
            raw,
            "demo.silver",
            sink_id="silver",
            checkpoint=tmp_path / "silver",
            create_table=True,
            metrics=OPENTELEMETRY,
        )
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while ("demo.silver", "silver", "main") not in {labels for labels, runs in numbers.read(RUNNING) if not runs}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert dict(numbers.read(CONSUMED))["demo.raw", "raw", "main", "silver"] == 2
