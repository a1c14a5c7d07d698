"""What is counted of the streams of a process: a listener of events that only adds numbers up.

It sends nothing. Clients read the numbers in threads of their own, when a collector asks for them or when they push, so
a collector that is away, slow or refuses never meets a batch. A client is an extra, loaded only if a user asks for it.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from functools import lru_cache, partial
from typing import Any, NamedTuple

from lakesink_protocol import events
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.measures import MEASURES
from lakesink_protocol.outcome import Committed, word_of
from lakesink_protocol.quality import OTHERS
from lakesink_protocol.redact import redact, shown
from lakesink_protocol.row_changes import ChangeCounts

OPENTELEMETRY, PROMETHEUS = "otel", "prometheus"
LABELS = ("table", "sink", "branch")
MOST_STREAMS, MOST_VALUES, LONGEST_LABEL = 200, 100, 200
"""Streams of a process, and values of a metric's own label; more share `OTHERS`, as if each append has a new name."""


class MetricKind(Enum):
    """How a number changes."""

    COUNTER = "each number is added to a sum, which begins at 0 with the process"
    GAUGE = "the last number"
    AGE = "seconds since the number was last 0"


class Metric(NamedTuple):
    """One number of each stream.

    Attributes:
        name: Without prefix, unit and suffix.
        unit: A base unit as Prometheus spells it; empty of what is counted.
        label: One more label; empty if there is none.
        known: Its values that are there from the start, so that a rate sees the first one.
    """

    name: str
    help: str
    kind: MetricKind = MetricKind.COUNTER
    unit: str = ""
    label: str = ""
    known: tuple[str, ...] = ()

    @property
    def prometheus(self) -> str:
        """The name in Prometheus, as OpenTelemetry's own rules translate that of `opentelemetry`."""
        return "_".join(filter(None, ("lakesink", self.name, self.unit, "total" * (self.kind is MetricKind.COUNTER))))

    @property
    def opentelemetry(self) -> str:
        """The name in OpenTelemetry, where the unit stands beside it."""
        return f"lakesink.{self.name}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its labels."""
        return (*LABELS, *filter(None, [self.label]))


BATCHES = Metric(
    "batches",
    "Batches by outcome: already-committed is a replay that was skipped, recovered one that an earlier run prepared.",
    label="outcome",
    known=("committed", "empty", "recovered", "already-committed", "failed", "refused", "interrupted"),
)
FAILURES = Metric("failures", "Batches that failed or were refused, by the code of the error.", label="code")
ATTEMPTS = Metric(
    "commit_attempts",
    "Attempts to commit by their answer: the table shows the batch, does not show it, or nobody knows yet.",
    label="outcome",
    known=("shown", "not-shown", "unknown"),
)
ROWS = Metric("committed_rows", "Rows of committed batches.")
FILES = Metric("committed_files", "Data files of committed batches.")
BYTES = Metric("committed", "Size of the data files of committed batches.", unit="bytes")
UNMET = Metric("expectation_unmet_rows", "Rows that did not meet an expectation, by its name.", label="expectation")
COMPACTIONS = Metric(
    "compactions",
    "Groups of files that maintenance rewrote: done, lost to another writer, or failed.",
    label="outcome",
    known=("done", "lost", "failed"),
)
OF_MEASURES = {one: Metric(one.name, f"The measure {one.name} of committed batches.") for one in MEASURES}
OF_CHANGES = {
    one.name: Metric(f"changes_{one.name}", f"Changes by key of committed batches: {one.name}.")
    for one in fields(ChangeCounts)
}
DURATION = Metric("last_commit_duration", "From the start of the last batch to its end.", MetricKind.GAUGE, "seconds")
WRITE_DURATION = Metric("last_write_duration", "The job over the rows of the last batch.", MetricKind.GAUGE, "seconds")
LAST_COMMIT = Metric("last_commit_timestamp", "When the last batch was committed.", MetricKind.GAUGE, "seconds")
LAST_BATCH = Metric("last_committed_batch", "Id of the last batch, or version of the last append.", MetricKind.GAUGE)
LAST_LOOK = Metric("last_look_timestamp", "When lakesink watch last read the table.", MetricKind.GAUGE, "seconds")
RUNNING = Metric("query_running", "1 while the query runs, 0 after its end.", MetricKind.GAUGE)
UNCOMMITTED = Metric("uncommitted_offsets", "Offsets that Spark has read and the table lacks.", MetricKind.GAUGE)
UNCOMMITTED_AGE = Metric("uncommitted_age", "How long rows have been read, not committed.", MetricKind.AGE, "seconds")
UNREAD = Metric("unread_offsets", "Offsets that the sources have and Spark has not read.", MetricKind.GAUGE)
UNREAD_AGE = Metric("unread_age", "How long the sources have had more than Spark has read.", MetricKind.AGE, "seconds")
CONSUMED = Metric(
    "consumed_batch",
    "Newest batch that a consumer of the sink is behind: the sink id of a stream, a reader-id or an outbox.",
    MetricKind.GAUGE,
    label="consumer",
)
METRICS = (
    *(BATCHES, FAILURES, ATTEMPTS, ROWS, FILES, BYTES, UNMET, COMPACTIONS),
    *OF_MEASURES.values(),
    *OF_CHANGES.values(),
    *(DURATION, WRITE_DURATION, LAST_COMMIT, LAST_BATCH, LAST_LOOK, RUNNING),
    *(UNCOMMITTED, UNCOMMITTED_AGE, UNREAD, UNREAD_AGE, CONSUMED),
)
_COUNTED: dict[type[events.Event], tuple[Metric, str]] = {
    events.BatchInterrupted: (BATCHES, "interrupted"),
    events.CommitShown: (ATTEMPTS, "shown"),
    events.CommitNotShown: (ATTEMPTS, "not-shown"),
    events.CommitUnknown: (ATTEMPTS, "unknown"),
    events.GroupReplaced: (COMPACTIONS, "done"),
    events.GroupLost: (COMPACTIONS, "lost"),
    events.GroupFailed: (COMPACTIONS, "failed"),
}
_UCUM = {"seconds": "s", "bytes": "By", "": ""}
Labels = tuple[str, ...]


class Numbers:
    """The numbers of all streams of a process."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.now = now
        self._found: dict[Metric, dict[Labels, float]] = {one: {} for one in METRICS}
        self._streams, self._values = set[Labels](), {one: set[Labels]() for one in METRICS}
        self._lock = threading.RLock()

    def stream(self, table: str, sink: str, branch: str) -> "Stream":
        """A listener for one stream, whose counters go on where an earlier run in this process stopped."""
        found = Stream(self, self._labels((table, sink, branch), self._streams, MOST_STREAMS))
        for metric in METRICS:
            known = metric.known if metric.label else [""]
            for value in known if metric.kind is MetricKind.COUNTER else ():
                found.tell(metric, 0, value)
        return found

    def consumed(self, table: str, sink: str, branch: str, consumer: str, batch_id: int) -> None:
        """Tell which batch of a sink a consumer is behind."""
        self.tell(CONSUMED, self._labels((table, sink, branch), self._streams, MOST_STREAMS), batch_id, consumer)

    def tell(self, metric: Metric, stream: Labels, number: float, value: str = "") -> None:
        """Tell a number, which means what the kind of its metric says; `value` is that of the metric's own label."""
        with self._lock:
            own = self._labels([value], self._values[metric], MOST_VALUES) if metric.label else ()
            found, labels = self._found[metric], (*stream, *own)
            if metric.kind is MetricKind.COUNTER:
                number += found.get(labels, 0)
            elif metric.kind is MetricKind.AGE and number:
                number = found.get(labels, 0) or self.now()
            found[labels] = number

    def read(self, metric: Metric) -> Iterator[tuple[Labels, float]]:
        """The labels and the number of each stream, now."""
        with self._lock:
            found = dict(self._found[metric])
        for labels, number in found.items():
            yield labels, max(self.now() - number, 0) if number and metric.kind is MetricKind.AGE else number

    def collect(self) -> Iterator[Any]:
        """Each metric with its numbers, as a registry of the Prometheus client asks its collectors."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - an extra

        for metric in METRICS:
            make = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
            family = make(metric.prometheus, metric.help, labels=metric.labels)
            for labels, number in self.read(metric):
                family.add_metric(labels, number)
            yield family

    def to_opentelemetry(self, provider: Any = None) -> None:
        """Give the numbers to the program's meter provider. Without a provider, they are not exported."""
        from opentelemetry.metrics import CallbackOptions, Observation, get_meter  # noqa: PLC0415 - an extra

        def observed(metric: Metric, _: CallbackOptions) -> Iterable[Observation]:
            for labels, number in self.read(metric):
                yield Observation(number, dict(zip(metric.labels, labels, strict=True)))

        meter = get_meter("lakesink", meter_provider=provider)
        for metric in METRICS:
            counts = metric.kind is MetricKind.COUNTER
            create = meter.create_observable_counter if counts else meter.create_observable_gauge
            create(metric.opentelemetry, [partial(observed, metric)], _UCUM[metric.unit], metric.help)

    def _labels(self, texts: Iterable[str], known: set[Labels], most: int) -> Labels:
        """Names that others chose, as labels: without secrets, not too long, and not too many."""
        labels = tuple(shown(redact(text), LONGEST_LABEL) for text in texts)
        with self._lock:
            if labels not in known and len(known) >= most:
                return (OTHERS,) * len(labels)
            known.add(labels)
        return labels


@dataclass(slots=True)
class Stream:
    """Counts the events of one stream, or of the appends of one application."""

    numbers: Numbers
    labels: Labels
    _counts_offsets: bool = field(default=False, init=False)

    def __call__(self, event: events.Event) -> None:
        """Count an event."""
        if counted := _COUNTED.get(type(event)):
            self.tell(counted[0], 1, counted[1])
        match event:
            case events.QueryStarted() | events.QueryEnded():
                self.tell(RUNNING, int(isinstance(event, events.QueryStarted)))
            case events.QueryProgressed():
                self.tell(UNREAD, event.unread)
                self.tell(UNREAD_AGE, event.unread)
            case events.BatchesRead():
                self.numbers.consumed(event.table, event.sink, event.branch, self.labels[1], event.batch_id)
            case events.BatchStarted():
                self.tell(UNCOMMITTED_AGE, 1)
            case events.OffsetsRead(count=int(count)):
                self._counts_offsets = True
                self.tell(UNCOMMITTED, count)
            case events.BatchFinished():
                self._finished(event)
            case events.BatchFailed():
                self.tell(BATCHES, 1, event.word)
                self.tell(FAILURES, 1, event.code)

    def tell(self, metric: Metric, number: float, value: str = "") -> None:
        """Tell a number of this stream, see `Numbers.tell`."""
        self.numbers.tell(metric, self.labels, number, value)

    def _finished(self, event: events.BatchFinished) -> None:
        if self._counts_offsets:
            self.tell(UNCOMMITTED, 0)
        self.tell(UNCOMMITTED_AGE, 0)
        if not isinstance(event.outcome, Committed):
            self.tell(BATCHES, 1, event.word)
            return
        self.committed(event.outcome)
        self.last(event.batch_id, self.numbers.now())
        self.tell(DURATION, event.seconds)
        self.tell(WRITE_DURATION, event.write_seconds)

    def last(self, batch_id: int, at: float) -> None:
        """Tell which batch was committed last, and when."""
        self.tell(LAST_BATCH, batch_id)
        self.tell(LAST_COMMIT, at)

    def committed(self, outcome: Committed) -> None:
        """Count a batch that was committed, by whatever process."""
        quality = outcome.quality
        self.tell(BATCHES, 1, word_of(outcome))
        self.tell(ROWS, outcome.rows)
        self.tell(FILES, outcome.files)
        self.tell(BYTES, outcome.bytes)
        for measure, metric in OF_MEASURES.items():
            self.tell(metric, quality.counts[measure])
        for expectation, count in quality.unmet.items():
            self.tell(UNMET, count, expectation)
        for name, count in (asdict(outcome.changes) if outcome.changes else {}).items():
            self.tell(OF_CHANGES[name], count)


NUMBERS = Numbers()
_ONE_AT_A_TIME = threading.Lock()


def counting(way: str) -> Numbers:
    """The numbers of this process, which are read this way from now on.

    Raises:
        SettingsError: The client is not installed.
        OSError: The port cannot be opened.
    """
    try:
        with _ONE_AT_A_TIME:
            _offer(way)
    except ModuleNotFoundError as error:
        raise SettingsError.of("METRICS_CLIENT_MISSING", way=way, library=error.name) from None
    return NUMBERS


@lru_cache
def _offer(way: str) -> None:
    """Let a client read the numbers, once in a process; a port serves the registry of the Prometheus client."""
    if way == OPENTELEMETRY:
        NUMBERS.to_opentelemetry()
        return
    from prometheus_client import REGISTRY, start_http_server  # noqa: PLC0415 - an extra

    if way == PROMETHEUS:
        REGISTRY.register(NUMBERS)
    else:
        _offer(PROMETHEUS)
        host, _, port = way.rpartition(":")
        start_http_server(int(port), host.strip("[]"))
