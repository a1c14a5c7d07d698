"""What is counted of the streams of a process: a listener of events that only adds numbers up.

It sends nothing. Clients read the numbers in threads of their own, when a collector asks for them or when they push, so
a collector that is away, slow or refuses never meets a batch.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import NamedTuple

from lakesink_protocol import events
from lakesink_protocol.measures import MEASURES
from lakesink_protocol.outcome import Committed, word_of
from lakesink_protocol.quality import OTHERS
from lakesink_protocol.redact import redact, shown
from lakesink_protocol.row_changes import ChangeCounts

LABELS = ("table", "sink", "branch")
MOST_STREAMS, MOST_VALUES, LONGEST_LABEL = 200, 100, 200
"""Streams of a process, and values of a metric's own label; more share `OTHERS`, as if each append has a new name."""


class MetricKind(Enum):
    """How a number changes."""

    COUNTER = "it only grows, from 0 at the start of the process"
    GAUGE = "it is set"
    AGE = "seconds since it was set, 0 if it was cleared"


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
    known: tuple[str, ...] = ("",)

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


_SHOWN, _NOT_SHOWN, _UNKNOWN = ("shown", "not-shown", "unknown")
_INTERRUPTED = "interrupted"
BATCHES = Metric(
    "batches",
    "Batches by outcome: already-committed is a replay that was skipped, recovered one that an earlier run prepared.",
    label="outcome",
    known=("committed", "empty", "recovered", "already-committed", "failed", "refused", _INTERRUPTED),
)
FAILURES = Metric("failures", "Batches that failed or were refused, by the code of the error.", label="code", known=())
ATTEMPTS = Metric(
    "commit_attempts",
    "Attempts to commit by their answer: the table shows the batch, does not show it, or nobody knows yet.",
    label="outcome",
    known=(_SHOWN, _NOT_SHOWN, _UNKNOWN),
)
ROWS = Metric("committed_rows", "Rows of committed batches.")
FILES = Metric("committed_files", "Data files of committed batches.")
BYTES = Metric("committed", "Size of the data files of committed batches.", unit="bytes")
UNMET = Metric(
    "expectation_unmet_rows", "Rows that did not meet an expectation, by its name.", label="expectation", known=()
)
COMPACTIONS = Metric(
    "compactions",
    "Compactions of small files: done, lost to another writer, or failed.",
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
RUNNING = Metric("query_running", "1 while the query runs, 0 after its end.", MetricKind.GAUGE)
UNCOMMITTED = Metric("uncommitted_offsets", "Offsets that Spark has read and the table lacks.", MetricKind.GAUGE)
UNCOMMITTED_AGE = Metric(
    "uncommitted_age", "How long rows have been read and not committed.", MetricKind.AGE, "seconds"
)
UNREAD = Metric("unread_offsets", "Offsets that the sources have and Spark has not read.", MetricKind.GAUGE)
UNREAD_AGE = Metric("unread_age", "How long the sources have had more than Spark has read.", MetricKind.AGE, "seconds")
CONSUMED = Metric(
    "consumed_batch",
    "Newest batch that a consumer of the sink is behind: the sink id of a stream, a reader-id or an outbox.",
    MetricKind.GAUGE,
    label="consumer",
    known=(),
)
METRICS = (
    *(BATCHES, FAILURES, ATTEMPTS, ROWS, FILES, BYTES, UNMET, COMPACTIONS),
    *OF_MEASURES.values(),
    *OF_CHANGES.values(),
    *(DURATION, WRITE_DURATION, LAST_COMMIT, LAST_BATCH, RUNNING),
    *(UNCOMMITTED, UNCOMMITTED_AGE, UNREAD, UNREAD_AGE, CONSUMED),
)
_COUNTED: dict[type[events.Event], tuple[Metric, str]] = {
    events.BatchInterrupted: (BATCHES, _INTERRUPTED),
    events.CommitShown: (ATTEMPTS, _SHOWN),
    events.CommitNotShown: (ATTEMPTS, _NOT_SHOWN),
    events.CommitUnknown: (ATTEMPTS, _UNKNOWN),
    events.FilesCompacted: (COMPACTIONS, "done"),
    events.CompactionLost: (COMPACTIONS, "lost"),
    events.CompactionFailed: (COMPACTIONS, "failed"),
}
Labels = tuple[str, ...]


class Numbers:
    """The numbers of all streams of a process."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.now = now
        self._found: dict[Metric, dict[Labels, float]] = {one: {} for one in METRICS}
        self._streams, self._values = set[Labels](), {one: set[Labels]() for one in METRICS}
        self._lock = threading.Lock()

    def stream(self, table: str, sink: str, branch: str) -> "Stream":
        """A listener for one stream, whose counters go on where an earlier run in this process stopped."""
        found = Stream(self, self._labels(table, sink, branch))
        for metric in METRICS:
            for value in metric.known if metric.kind is MetricKind.COUNTER else ():
                found.add(metric, 0, value)
        return found

    def consumed(self, table: str, sink: str, branch: str, consumer: str, batch_id: int) -> None:
        """Tell which batch of a sink a consumer is behind."""
        self.put(CONSUMED, self._labels(table, sink, branch), batch_id, consumer)

    def add(self, metric: Metric, stream: Labels, count: float, value: str = "") -> None:
        """Add to a counter; `value` is that of the metric's own label."""
        with self._lock:
            found, labels = self._found[metric], (*stream, *self._own(metric, value))
            found[labels] = found.get(labels, 0) + count

    def put(self, metric: Metric, stream: Labels, number: float, value: str = "") -> None:
        """Set a gauge; of an age, when it began, or 0."""
        with self._lock:
            self._found[metric][(*stream, *self._own(metric, value))] = number

    def last(self, metric: Metric, stream: Labels) -> float:
        """What was put last; 0 before."""
        with self._lock:
            return self._found[metric].get(stream, 0)

    def _labels(self, *texts: str) -> Labels:
        with self._lock:
            return _bounded(texts, self._streams, MOST_STREAMS)

    def _own(self, metric: Metric, value: str) -> Labels:
        """The value of the metric's own label, if it has one."""
        return _bounded([value], self._values[metric], MOST_VALUES) if metric.label else ()

    def read(self, metric: Metric) -> Iterator[tuple[Labels, float]]:
        """The labels and the number of each stream, now."""
        with self._lock:
            found = dict(self._found[metric])
        for labels, value in found.items():
            yield labels, max(self.now() - value, 0) if value and metric.kind is MetricKind.AGE else value


def _bounded(texts: Iterable[str], known: set[Labels], most: int) -> Labels:
    """Names that others chose, as labels: without secrets, not too long, and not too many."""
    labels = tuple(shown(redact(text), LONGEST_LABEL) for text in texts)
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
            self.add(counted[0], 1, counted[1])
        match event:
            case events.QueryStarted() | events.QueryEnded():
                self._put(RUNNING, 1 if isinstance(event, events.QueryStarted) else 0)
            case events.QueryProgressed():
                self._put(UNREAD, event.unread)
                self._age(UNREAD_AGE, goes_on=event.unread > 0)
            case events.BatchesRead():
                self.numbers.consumed(event.table, event.sink, event.branch, self.labels[1], event.batch_id)
            case events.BatchStarted():
                self._age(UNCOMMITTED_AGE, goes_on=True)
            case events.OffsetsRead(count=int(count)):
                self._counts_offsets = True
                self._put(UNCOMMITTED, count)
            case events.BatchFinished():
                self._finished(event)
            case events.BatchFailed():
                self.add(BATCHES, 1, event.word)
                self.add(FAILURES, 1, event.code)

    def add(self, metric: Metric, count: float, label: str = "") -> None:
        """Add to a counter; `label` is the value of the metric's own one."""
        self.numbers.add(metric, self.labels, count, label)

    def _finished(self, event: events.BatchFinished) -> None:
        if self._counts_offsets:
            self._put(UNCOMMITTED, 0)
        self._age(UNCOMMITTED_AGE, goes_on=False)
        if not isinstance(event.outcome, Committed):
            self.add(BATCHES, 1, event.word)
            return
        self.committed(event.outcome)
        self.last(event.batch_id, self.numbers.now())
        self._put(DURATION, event.seconds)
        self._put(WRITE_DURATION, event.write_seconds)

    def last(self, batch_id: int, at: float) -> None:
        """Tell which batch was committed last, and when."""
        self._put(LAST_BATCH, batch_id)
        self._put(LAST_COMMIT, at)

    def committed(self, outcome: Committed) -> None:
        """Count a batch that was committed, by whatever process."""
        quality = outcome.quality
        self.add(BATCHES, 1, word_of(outcome))
        self.add(ROWS, outcome.rows)
        self.add(FILES, outcome.files)
        self.add(BYTES, outcome.bytes)
        for measure, metric in OF_MEASURES.items():
            self.add(metric, quality.counts[measure])
        for expectation, count in quality.unmet.items():
            self.add(UNMET, count, expectation)
        for name, count in (asdict(outcome.changes) if outcome.changes else {}).items():
            self.add(OF_CHANGES[name], count)

    def _put(self, metric: Metric, value: float) -> None:
        self.numbers.put(metric, self.labels, value)

    def _age(self, metric: Metric, *, goes_on: bool) -> None:
        """Begin an age, unless it goes on from an earlier event or run of the query, or clear it."""
        self._put(metric, (self.numbers.last(metric, self.labels) or self.numbers.now()) if goes_on else 0)
