"""The departures of 2013 as events, in the order in which they are sent: that of their time, with some disorder."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc

from lakesink_tools.demo import flights

PARTITIONS = 3
PER_TRANSACTION = 1_000
ONE_ABORTED_IN = 8
DISORDER = timedelta(hours=6)
CLOSING = datetime(2014, 3, 1, tzinfo=UTC)
_READ = ["carrier", "flight", "tailnum", "origin", "dest", "dep_delay"]


@dataclass(frozen=True, slots=True)
class Departure:
    """One event.

    Attributes:
        id: Number in the order of departures; negative for a closing event, which is no departure.
        departed_at: Event time.
        carrier: Airline.
        flight: Its number.
        tailnum: The plane.
        origin: Airport of New York; None for a closing event.
        dest: Where to.
        delay: Minutes behind the schedule.
    """

    id: int
    departed_at: datetime
    carrier: str | None = None
    flight: int | None = None
    tailnum: str | None = None
    origin: str | None = None
    dest: str | None = None
    delay: int | None = None

    @property
    def document(self) -> bytes:
        """As it is sent: JSON, its time in UTC."""
        return json.dumps(asdict(self) | {"departed_at": self.departed_at.isoformat()}).encode()


@dataclass(frozen=True, slots=True)
class Transaction:
    """Events that are sent together.

    Attributes:
        events: In order; the n-th goes to partition n modulo `PARTITIONS`.
        aborted: True if it is taken back; the same events then come again.
    """

    events: tuple[Departure, ...]
    aborted: bool = False


def departures(csv: Path, days: int) -> list[Departure]:
    """All flights that left in the first days of the year, by the time at which they did."""
    table = flights.read(csv)
    day = pc.day_of_year(pc.strptime(_dates(table), format="%Y-%m-%d", unit="s"))
    table = table.filter(pc.and_(pc.is_valid(table["dep_time"]), pc.less_equal(day, days)))
    minutes = pc.add(table["minute"], table["dep_delay"])
    at = pc.add(table["time_hour"], pc.multiply(pc.cast(minutes, pa.int64()), 60_000_000).cast(pa.duration("us")))
    columns = [at, *(table[name] for name in _READ)]
    rows = sorted(zip(*(column.to_pylist() for column in columns), strict=True), key=lambda row: row[0])
    return [Departure(number, *row) for number, row in enumerate(rows)]


def transactions(sent: Sequence[Departure], seed: int) -> Iterator[Transaction]:
    """What the producer does: some transactions fail at first, and the last one closes every window.

    A window is written when the watermark has passed its end, and only events move the watermark. So the last
    transaction puts one event that is no departure into each partition, long after all others.
    """
    chance = Random(seed)  # noqa: S311 - a story, not a secret
    late = {event.id: event.departed_at + DISORDER * chance.random() for event in sent}
    ordered = sorted(sent, key=lambda event: late[event.id])
    parts = [tuple(ordered[start : start + PER_TRANSACTION]) for start in range(0, len(ordered), PER_TRANSACTION)]
    failing = set(chance.sample(range(len(parts)), -(-len(parts) // ONE_ABORTED_IN)))
    for number, events in enumerate(parts):
        if number in failing:
            yield Transaction(events, aborted=True)
        yield Transaction(events)
    yield Transaction(tuple(Departure(-1 - partition, CLOSING) for partition in range(PARTITIONS)))


def _dates(table: pa.Table) -> pa.ChunkedArray:
    parts = [pc.cast(table[name], pa.string()) for name in ("year", "month", "day")]
    return pc.binary_join_element_wise(*parts, "-")
