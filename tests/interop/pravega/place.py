"""A stream of Pravega, read as bytes from its segments, and the sink that writes into it."""

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pravega_client
import pyarrow as pa
from pravega_controller import Controller, SegmentPlace
from pravega_sink import PravegaSink
from pravega_staging import EVENTS

from testkit.pravega_events import events_of, segments_of

SCOPE = "tests"
PATIENCE_SECONDS = 60


def rows_as_json(rows: pa.RecordBatch) -> pa.RecordBatch:
    events = [json.dumps(row).encode() for row in rows.to_pylist()]
    return pa.record_batch([pa.nulls(len(events), pa.string()), pa.array(events, pa.large_binary())], schema=EVENTS)


@dataclass(frozen=True)
class Place:
    """A stream that exists, and a folder beside it: plain data, so that it travels to other processes."""

    controller: str
    stream: str
    folder: Path
    epochs: int = 1

    @classmethod
    def make(cls, controller: str, folder: Path, segments: int = 1) -> "Place":
        place = cls(controller, f"s-{uuid.uuid4()}", folder)
        place.create(segments)
        return place

    def create(self, segments: int = 1) -> None:
        manager = pravega_client.StreamManager(f"tcp://{self.controller}")
        manager.create_scope(SCOPE)
        assert manager.create_stream(SCOPE, self.stream, segments)

    def sink(self, kind: type[PravegaSink] = PravegaSink, **more: Any) -> PravegaSink:
        more = {"encode": rows_as_json} | more
        return kind(self.control, sink_id="rows", staging=self.folder / "staging", **more)

    @property
    def control(self) -> Controller:
        return Controller(self.controller, SCOPE, self.stream, PATIENCE_SECONDS)

    def events(self) -> list[bytes]:
        """Every event that a reader sees now."""
        return [event for events in self.by_segment() for event in events]

    def by_segment(self) -> list[list[bytes]]:
        """The events of each segment that the stream ever had."""
        return [events_of(segment) for segment in self._segments()]

    def _segments(self) -> list[SegmentPlace]:
        control = self.control
        found: dict[int, SegmentPlace] = {}
        for epoch in range(self.epochs):
            found |= segments_of(control, epoch)
        return list(found.values())

    def rows(self) -> list[tuple[int, int]]:
        """(batch, position) of the suite's rows."""
        return [(row["batch"], row["position"]) for row in map(json.loads, self.events())]
