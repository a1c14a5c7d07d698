"""Three tables, each of which is read into the next: every batch is a real commit. No Spark."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lakesink.read.begin import followed
from lakesink.read.follow import newest_position
from lakesink_protocol.identity import Batch, stream_batch
from testkit.builders import Lake, Stream

BRONZE, SILVER, GOLD = "demo.bronze", "demo.silver", "demo.gold"
TOPIC = "orders"


@dataclass(slots=True)
class Hand:
    """The query that writes one of the tables.

    Attributes:
        ends: Offsets of its source at the end of each batch.
        first: Offsets before the first batch; None if its source does not record them.
    """

    stream: Stream
    first: list[Any] | None = None
    ends: list[list[Any]] = field(default_factory=list)

    def batch(self, batch_id: int, end: list[Any]) -> Batch:
        start = self.ends[batch_id - 1] if batch_id else self.first
        self.ends[batch_id:] = [end]
        return stream_batch(batch_id, self.stream.query, start=start, end=end)

    def run(self, *end: Any, batch_id: int | None = None, rows: int = 3) -> Batch:
        """Commit the next batch, or write one again."""
        batch = self.batch(len(self.ends) if batch_id is None else batch_id, list(end))
        self.stream.run(batch, rows=rows)
        return batch


@dataclass(slots=True)
class Chain:
    """Kafka, bronze, silver, gold."""

    lake: Lake
    bronze: Hand
    silver: Hand
    gold: Hand

    @classmethod
    def make(cls, folder: Path) -> "Chain":
        lake = Lake.make(folder)
        hands = [cls.hand(lake, name) for name in (BRONZE, SILVER, GOLD)]
        hands[0].first = [offsets(0, 0)]
        return cls(lake, *hands)

    @staticmethod
    def hand(lake: Lake, name: str) -> Hand:
        own, sink = replace(lake, name=name), name.partition(".")[2]
        own.create()
        return Hand(Stream(own, sink, query=f"query-of-{sink}"))

    def position(self, of: Hand) -> dict[str, Any]:
        """What a reader's offset is behind the newest batch of a table."""
        lake = of.stream.lake
        return newest_position(lake.table(), lake.name, followed(lake.table(), lake.name, "", "main")).to_offset()


def offsets(first: int, second: int, topic: str = TOPIC) -> Mapping[str, Any]:
    """Kafka's end offsets of a topic with two partitions."""
    return {topic: {"0": first, "1": second}}
