"""A stream of Pravega, read as bytes from its segments, and the sink that writes into it."""

import json
import struct
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pravega_client
import pyarrow as pa
from pravega_controller import Controller, SegmentPlace, messages
from pravega_segments import Connection, connected, text
from pravega_sink import PravegaSink
from pravega_staging import EVENTS

SCOPE = "tests"
PATIENCE_SECONDS = 60
READ, SEGMENT_READ = 9, 10
_EVENT = struct.Struct(">ii")


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
        return [_events(_bytes_of(segment)) for segment in self._segments()]

    def _segments(self) -> list[SegmentPlace]:
        control = self.control
        found: dict[int, SegmentPlace] = {}
        info = messages.StreamInfo(scope=SCOPE, stream=self.stream)
        for epoch in range(self.epochs):
            request = messages.GetEpochSegmentsRequest(streamInfo=info, epoch=epoch)
            ranges = control._ask("getEpochSegments", request).segmentRanges  # noqa: SLF001 - a reader's own question
            found |= {segment.segmentId.segmentId: control.place(segment.segmentId) for segment in ranges}
        return list(found.values())

    def rows(self) -> list[tuple[int, int]]:
        """(batch, position) of the suite's rows."""
        return [(row["batch"], row["position"]) for row in map(json.loads, self.events())]


def _bytes_of(segment: SegmentPlace) -> bytes:
    with connected(segment, PATIENCE_SECONDS) as connection:
        end = connection.length() or 0
        found = b""
        while len(found) < end:
            found += _read(connection, len(found), end - len(found))
    return found


def _read(connection: Connection, offset: int, most: int) -> bytes:
    name = text(connection.place.name)
    connection.send(READ, name, struct.pack(">qi", offset, most), text(""), struct.pack(">q", 1))
    kind, fields = connection.receive()
    assert kind == SEGMENT_READ, fields
    start = len(name) + 8 + 2
    size = int.from_bytes(fields[start : start + 4])
    return fields[start + 4 : start + 4 + size]


def _events(data: bytes) -> list[bytes]:
    events = []
    while data:
        _, size = _EVENT.unpack_from(data)
        events.append(data[_EVENT.size : _EVENT.size + size])
        data = data[_EVENT.size + size :]
    return events
