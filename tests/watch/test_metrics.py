"""Numbers of a running stream, for whoever asks: the listener counts, and no collector can stop or slow a batch."""

import math
import re
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry.sdk")

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExportResult, PeriodicExportingMetricReader
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

import lakesink
from lakesink.observe.exports import VARIABLE, measured, prometheus_collector, to_opentelemetry
from lakesink.observe.metrics import METRICS, MOST_STREAMS, MetricKind, Numbers, Stream
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol import events
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.measures import DEAD_LETTERS, MEASURES, Tally
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.quality import OTHERS, Quality
from lakesink_protocol.row_changes import ChangeCounts
from tests.spark.streams import file_stream, run, write_files

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


def failed(*, is_refused: bool) -> events.BatchFailed:
    return events.BatchFailed(3, *STREAM, 1.5, 1.0, is_refused, "LAKESINK_GAP", "it is", ())


def scraped(numbers: Numbers) -> dict[str, float]:
    """What Prometheus reads: names with the labels that are not the stream's, and numbers."""
    registry = CollectorRegistry()
    registry.register(prometheus_collector(numbers))
    return samples_of(generate_latest(registry).decode())


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


def test_what_spark_has_not_read_has_a_number_and_an_age(numbers: Numbers, stream: Stream, clock: Clock) -> None:
    stream(events.QueryProgressed(7))
    clock.now += 60
    stream(events.QueryProgressed(9))
    found = scraped(numbers)
    assert (found["lakesink_unread_offsets"], found["lakesink_unread_age_seconds"]) == (9, 60)
    stream(events.QueryProgressed(0))
    assert scraped(numbers)["lakesink_unread_age_seconds"] == 0


def test_a_source_that_does_not_tell_its_newest_offsets_has_no_lag_instead_of_a_wrong_one(
    numbers: Numbers, stream: Stream
) -> None:
    stream(events.QueryProgressed(None))
    assert "lakesink_unread_offsets" not in scraped(numbers)


def test_opentelemetrys_own_translation_gives_prometheus_the_same_names_and_numbers(
    numbers: Numbers, stream: Stream
) -> None:
    quality = Quality(Tally({DEAD_LETTERS: 4}), unmet={"valid_age": 3})
    for event in (finished(replace(COMMITTED, quality=quality)), failed(is_refused=True), events.QueryProgressed(3)):
        stream(event)
    reader = PrometheusMetricReader()
    provider = MeterProvider([reader])
    to_opentelemetry(numbers, provider)
    text = generate_latest(reader._collector).decode()  # noqa: SLF001 - the registry of the process has other numbers
    provider.shutdown()
    text = re.sub(r'otel_scope_\w+="[^"]*",?', "", text)
    found = {name: number for name, number in samples_of(text).items() if name.startswith("lakesink")}
    assert found == pytest.approx(scraped(numbers))


def test_labels_are_bounded_and_have_no_secret(numbers: Numbers) -> None:
    numbers.stream("https://user:geheim@host/table", "events", "main")
    for number in range(MOST_STREAMS + 10):
        numbers.stream("demo.events", f"app-{number}", "main")
    collected = CollectorRegistry()
    collected.register(prometheus_collector(numbers))
    text = generate_latest(collected).decode()
    sinks = set(re.findall(r'sink="([^"]*)"', text))
    assert len(sinks) == MOST_STREAMS + 1
    assert OTHERS in sinks
    assert "geheim" not in text


def test_names_follow_the_rules_of_prometheus() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"lakesink(_[a-z]+)+", metric.prometheus)
        assert metric.prometheus.endswith("_total") == (metric.kind is MetricKind.COUNTER)
        assert metric.help.endswith(".")
    assert len({metric.prometheus for metric in METRICS}) == len(METRICS)


@pytest.mark.parametrize("behaviour", ["away", "slow", "refuses"])
def test_batches_go_on_while_a_collector_is_away_or_slow_or_refuses(
    numbers: Numbers, stream: Stream, behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, may_end, exporter = threading.Event(), threading.Event(), ConsoleMetricExporter()

    def export(*_: Any, **__: Any) -> MetricExportResult:
        reached.set()
        if behaviour == "away":
            raise ConnectionRefusedError
        if behaviour == "slow":
            may_end.wait()
        return MetricExportResult.FAILURE

    monkeypatch.setattr(exporter, "export", export)
    provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=1)])
    try:
        to_opentelemetry(numbers, provider)
        assert reached.wait(60)
        emit = LISTENERS.also(stream)
        for batch_id in range(100):  # a slow collector has not answered yet, and does not until all are counted
            emit(finished(batch_id=batch_id))
        assert scraped(numbers)["lakesink_batches_total committed"] == 100
    finally:
        may_end.set()
        provider.shutdown()


def test_a_reader_that_connects_and_says_nothing_keeps_nobody_else_from_reading(
    numbers: Numbers, stream: Stream
) -> None:
    registry = CollectorRegistry()
    registry.register(prometheus_collector(numbers))
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
    monkeypatch.delenv(VARIABLE, raising=False)
    assert measured(LISTENERS, *STREAM) is LISTENERS
    monkeypatch.setenv(VARIABLE, "otel")
    assert isinstance(measured(LISTENERS, *STREAM).others[0], Stream)


def test_a_variable_of_another_form_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "graphite")
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


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


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
