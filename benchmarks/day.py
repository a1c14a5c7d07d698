"""W20: a day of ten-second batches on a simulated clock, with maintenance between them and without.

Three sinks take turns at the slots of the day: `SINKS`. Each has two tables, which get the same batches one after the
other; only one of them is maintained. The batches are those of a stream without Spark: sink, task writer and commit
are the product's. Milliseconds of a batch are those of the whole of it without the pause behind it, in which it is
maintained. Nothing expires. In the last hour, a new table of each kind takes the batches of the first hour in turn
with it: both hours are measured on the same machine at the same time.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.oracle import WrongRows
from benchmarks.result import Cell, Goal, Result
from benchmarks.session import CATALOG, catalog_properties
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.upkeep.maintenance import Maintenance
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.identity import SinkKey, stream_batch
from lakesink_protocol.votes import Vote, Votes, receipts_of

DAY = 8_640
"""Batches of a day; fewer are spread over it, so that an hour has fewer of them."""
SHORT = 2_160
HOURS = 24
ROWS, KEYS = 100, 20_000
"""Rows of a batch, and keys of the table of upserts, which has all of them before the day begins."""
LATE, DAYS = 0.1, 7
"""Of the rows of a day's partitions, so many belong to one of the days before."""
TARGET_BYTES = 4 * 2**20
APPEND, BY_DAY, UPSERT = "append", "append by day", "upsert"
SINKS: Mapping[str, Mapping[str, Any]] = {APPEND: {}, BY_DAY: {}, UPSERT: {"mode": "upsert", "keys": ["id"]}}
ON, OFF = "on", "off"
FLAT = 1.2
"""How many times as long a batch of the last hour may take as one of the first."""
MOST_SMALL, MOST_MANIFESTS, MOST_DELETED = 64, 128, 0.3
"""At each hour: small files of a partition, manifests, and the share of deleted rows."""
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
_COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("day", pa.date32()),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("batch", pa.int64()),
    ]
)
_PROPERTIES = {
    "write.target-file-size-bytes": str(TARGET_BYTES),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_NEWEST = "SELECT id, arg_max(amount, batch) AS amount, max(batch) AS batch FROM given GROUP BY id"
_DIGEST = "SELECT count(*), sum(hash(id, amount, batch)::HUGEINT) FROM ({rows})"


@dataclass(frozen=True, slots=True)
class Hour:
    """A table at the end of an hour, and medians of the hour's batches, in milliseconds of wall and processor."""

    hour: int
    files: int
    small_files: int
    delete_files: int
    deleted_share: float
    manifests: int
    metadata_bytes: int
    batch_ms: float
    batch_cpu_ms: float


@dataclass(slots=True)
class Stream:
    """One sink, its table and what was measured.

    Attributes:
        batches: Wall and processor milliseconds of each.
        pauses: Those of the pause behind each.
        again: A new table, which takes the first hour's batches in the last hour.
        seen: Batches before the present hour.
    """

    kind: str
    maintenance: str
    sink: IcebergSink
    batches: list[tuple[float, float]] = field(default_factory=list)
    pauses: list[tuple[float, float]] = field(default_factory=list)
    hours: list[Hour] = field(default_factory=list)
    seen: int = 0
    again: "Stream | None" = None

    @classmethod
    def make(cls, folder: Path, kind: str, maintenance: str, now_ms: Callable[[], int], suffix: str = "") -> "Stream":
        """A sink of a table that is there."""
        catalog = connect(CATALOG, catalog_properties(folder))
        name = f"bench.{kind.replace(' ', '_')}_{maintenance}{suffix}"
        keys = SINKS[kind].get("keys", ())
        create_table(catalog, name, _COLUMNS, "day" if kind == BY_DAY else None, _PROPERTIES, keys)
        given = {"sink_id": "bench", "checkpoint": "/nowhere", "maintenance": maintenance, **SINKS[kind]}
        effects = Effects(now_ms=now_ms, storage_time_ms=lambda _io, _path: None)
        settings = Settings.parse(given)
        sink = IcebergSink(name, SinkKey("bench"), lambda: catalog, settings, _COLUMNS, effects=effects)
        return cls(kind, maintenance, sink)

    def run(self, number: int, rows: pa.Table) -> None:
        """One batch, and the pause behind it."""
        batch = stream_batch(number, "bench", start=[number] if number else None, end=[number + 1])

        def write(writers: Mapping[str, Any]) -> Votes:
            [(name, writer)] = writers.items()
            return Votes(1, [Vote(0, receipts_of(name, writer, writer.write(0, iter(rows.to_batches()))))])

        self.batches.append(_timed(lambda: run_batch(batch, [self.sink], write)))
        self.pauses.append(_timed(self.sink.maintain))

    def look(self, hour: int) -> None:
        """What an hour left."""
        health = Maintenance(self.sink.target.load).look().health
        wall, cpu = (statistics.median(each) for each in zip(*self.batches[self.seen :], strict=True))
        self.seen = len(self.batches)
        of_table = {name: getattr(health, name) for name in Hour.__dataclass_fields__ if hasattr(health, name)}
        self.hours.append(Hour(hour=hour, batch_ms=wall, batch_cpu_ms=cpu, **of_table))
        if self.again:
            self.again.look(hour)

    def check(self, given: pa.Table) -> None:
        """The table has the rows that it was given, the newest of each key."""
        found = self.sink.target.load().scan(selected_fields=("id", "amount", "batch")).to_arrow()
        with duckdb.connect() as database:
            database.register("given", given)
            database.register("found", found)
            wanted, there = (
                database.execute(_DIGEST.format(rows=rows)).fetchone()
                for rows in (_NEWEST if self.kind == UPSERT else "FROM given", "FROM found")
            )
        if wanted != there:
            raise WrongRows(f"{self.kind}, maintenance {self.maintenance}: {there} rows, expected {wanted}")


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    began, of_processor = time.perf_counter(), time.process_time()
    call()
    return (time.perf_counter() - began) * 1000, (time.process_time() - of_processor) * 1000


def rows_of(kind: str, number: int, today: date) -> pa.Table:
    """The rows of a batch; the first one of upserts has all keys."""
    chance = random.Random(f"{kind} {number}")  # noqa: S311 - the same in every run
    ids: Sequence[int] = range(number * ROWS, (number + 1) * ROWS)
    if kind == UPSERT:
        ids = chance.sample(range(KEYS), ROWS) if number else range(KEYS)
    late = (chance.randrange(1, DAYS) if chance.random() < LATE else 0 for _ in ids)
    columns = {
        "id": list(ids),
        "day": [today - timedelta(days=one) for one in late],
        "customer": [f"{chance.getrandbits(128):032x}" for _ in ids],
        "amount": [chance.random() for _ in ids],
        "batch": [number] * len(ids),
    }
    return pa.table(columns, _COLUMNS)


def measure(folder: Path, say: Callable[[str], None], batches: int = SHORT) -> Result:
    """So many batches, in turn."""
    (folder / "warehouse").mkdir(parents=True)
    clock = [int(BEGIN.timestamp() * 1000)]
    pairs = {kind: [Stream.make(folder, kind, one, lambda: clock[0]) for one in (OFF, ON)] for kind in SINKS}
    streams = [one for pair in pairs.values() for one in pair]
    given: dict[str, list[pa.Table]] = {kind: [] for kind in SINKS}
    each = batches // len(SINKS)
    last = each - max(1, each // HOURS)  # the first batch of the last hour
    for number in range(each):
        if number == last:
            for one in streams:
                one.again = Stream.make(folder, one.kind, one.maintenance, lambda: clock[0], "_again")
        for kind, pair in pairs.items():
            clock[0] += HOURS * 3_600_000 // batches
            given[kind].append(rows_of(kind, number, BEGIN.date()))
            for stream in pair if number % 2 else reversed(pair):
                turns = [(stream, number), *([(stream.again, number - last)] if stream.again else ())]
                for one, at in turns if number // 2 % 2 else reversed(turns):  # the second one finds warm caches
                    one.run(at, given[kind][at])
        hour = (number + 1) * HOURS // each
        if hour > number * HOURS // each:
            for stream in streams:
                stream.look(hour)
            say(f"W20, hour {hour}: {', '.join(f'{one.hours[-1].files} files' for one in streams)}")
    for stream in streams:
        stream.check(pa.concat_tables(given[stream.kind]))
    return report(streams, batches)


def report(streams: Sequence[Stream], batches: int) -> Result:
    """What each day ended with, and the bars of the maintained ones."""
    heads = (
        *("sink", "maintenance", "files", "small", "delete files", "rows deleted", "manifests", "metadata MiB"),
        *("first hour ms", "last hour ms", "times as long", "processor ms", "of the pause"),
    )
    goals = [goal for one in streams if one.maintenance == ON for goal in _goals(one)]
    raw = {
        kind: {one.maintenance: list(map(asdict, one.hours)) for one in streams if one.kind == kind} for kind in SINKS
    }
    title = f"a day of {batches:,} batches of {ROWS} rows on a simulated clock"
    return Result("W20", title, heads, tuple(map(_line, streams)), tuple(goals), raw=raw, rounds=1)


def _line(stream: Stream) -> tuple[Cell, ...]:
    first, last = _first_and_last(stream)
    processor, of_pause = (statistics.fmean(cpu for _, cpu in each) for each in (stream.batches, stream.pauses))
    return (
        *(stream.kind, stream.maintenance, last.files, last.small_files, last.delete_files),
        *(f"{last.deleted_share:.0%}", last.manifests, round(last.metadata_bytes / 2**20, 2)),
        *(round(first.batch_ms, 1), round(last.batch_ms, 1), round(last.batch_ms / first.batch_ms, 2)),
        *(round(processor, 1), round(of_pause, 1)),
    )


def _first_and_last(stream: Stream) -> tuple[Hour, Hour]:
    """The first hour, as the new table had it beside the last one."""
    assert stream.again is not None, "the day has ended"
    return stream.again.hours[0], stream.hours[-1]


def _goals(stream: Stream) -> Iterator[Goal]:
    (first, last), hours = _first_and_last(stream), stream.hours
    partitions = DAYS if stream.kind == BY_DAY else 1
    for what, bound, measured in (
        ("a batch of the last hour over one of the first", FLAT, last.batch_ms / first.batch_ms),
        ("the same in processor time", FLAT, last.batch_cpu_ms / first.batch_cpu_ms),
    ):
        yield Goal(f"W20, {stream.kind}: {what}", bound, measured, at_least=False)
    for what, most, values in (
        ("small files of a partition", MOST_SMALL, [one.small_files / partitions for one in hours]),
        ("manifests", MOST_MANIFESTS, [one.manifests for one in hours]),
        ("share of deleted rows", MOST_DELETED, [one.deleted_share for one in hours]),
    ):
        yield Goal(f"W20, {stream.kind}: most {what} at an hour", most, max(values), at_least=False, unit="")
