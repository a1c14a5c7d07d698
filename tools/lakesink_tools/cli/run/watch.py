"""The command ``watch``: the batches of a table as they come, whoever writes them, and when its health changes."""

from datetime import UTC, datetime, timedelta

from pyiceberg.table import Table

from lakesink.observe.metrics import LAST_LOOK, Numbers, Stream
from lakesink.read.hold import readers
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import SinkState
from lakesink_catalog.words import counted
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.measures import TOLD, Tally
from lakesink_protocol.outcome import Committed
from lakesink_protocol.quality import Quality
from lakesink_protocol.redact import redact
from lakesink_tools.cli.output import Report
from lakesink_tools.cli.sink_health import Health, health_in, worst
from lakesink_tools.cli.until_stopped import say, served, stopped_by_signals
from lakesink_tools.past.lean import load_to_read
from lakesink_tools.past.records import Record, history, key_of, outcome_in_words

_SHOWN_FIRST = 3


def watch(table: str, catalog: str | None, max_age: timedelta | None, every: float, metrics: str | None) -> Report:
    """Look until interrupted; each batch and each change of health is a line on standard error."""
    stopped = stopped_by_signals()
    opened = connect(catalog, create=False)
    watched = Watched(table, max_age, served(metrics))
    watched.look(load_to_read(opened, table))
    while not stopped.wait(every):
        try:
            watched.look(load_to_read(opened, table))
        except CatalogError as error:  # a catalog that is away may come back
            watched.tell(f"[{error.code}] {redact(error.what)}")
    return Report(
        document={"table": table, "health": watched.word, "batches": watched.batches},
        title=f"{table}: {watched.word}, {counted(watched.batches, 'batch')} seen",
    )


class Watched:
    """A table, and what was seen of it.

    Attributes:
        batches: How many batches came since the first look.
    """

    def __init__(self, name: str, max_age: timedelta | None, numbers: Numbers) -> None:
        self.name, self.batches, self.word = name, 0, Health.OK
        self._max_age, self._numbers, self._told = max_age, numbers, ""
        self._seen: set[int] | None = None

    def look(self, table: Table) -> None:
        """Tell what is new; at the first look, the last batches."""
        records, is_first = history(table), self._seen is None
        new = [record for record in records if record.snapshot_id not in (self._seen or ())]
        self._seen = {record.snapshot_id for record in records}
        for record in new[-_SHOWN_FIRST:] if is_first else new:
            key, rows = key_of(record), counted(record.rows, "row")
            sink = key.label if key.branch == MAIN_BRANCH else f"{key.label} on {key.branch}"
            say(f"{sink}  batch {record.batch_id}  {rows}  {outcome_in_words(record)}")
        self.batches += 0 if is_first else len(new)
        now = datetime.now(UTC)
        found = list(health_in(table, self._max_age, now))
        for state, _, _ in found:
            self._stream(state).tell(LAST_LOOK, now.timestamp())
        self._count(table, new, is_first=is_first)
        self.word = worst(word for _, _, word in found)
        self.tell(f"{self.name}: {self.word}")

    def tell(self, standing: str) -> None:
        """Tell how the table stands, if that is new."""
        if standing != self._told:
            say(standing)
        self._told = standing

    def _stream(self, of: Record | SinkState) -> Stream:
        return self._numbers.stream(self.name, key_of(of).label, of.branch)

    def _count(self, table: Table, new: list[Record], *, is_first: bool) -> None:
        """Counters begin at 0 with the first look; the last batch is known from it."""
        for record in new:
            stream, counts = self._stream(record), (record.snapshot_id, record.rows, record.files, record.bytes)
            if not is_first:
                quality = Quality(Tally({one: getattr(record, one.name) for one in TOLD}), unmet=record.unmet)
                recovered = record.outcome == "recovered"
                stream.committed(Committed(*counts, recovered=recovered, quality=quality, changes=record.changes))
            stream.last(record.batch_id, record.committed_at.timestamp())
        for reader, key, batch_id in readers(table):
            self._numbers.consumed(self.name, key.label, key.branch, reader, batch_id)
