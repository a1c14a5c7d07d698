"""The events in a segment of Pravega, as bytes of the segment store. Its client must be on `sys.path`."""

import struct

from pravega_controller import Controller, SegmentPlace, messages
from pravega_segments import Connection, connected, text

PATIENCE_SECONDS = 60
_READ, _SEGMENT_READ = 9, 10
_EVENT = struct.Struct(">ii")


def segments_of(control: Controller, epoch: int = 0) -> dict[int, SegmentPlace]:
    """The segments that the controller's stream had in an epoch, by their ids."""
    info = messages.StreamInfo(scope=control.scope, stream=control.stream)
    request = messages.GetEpochSegmentsRequest(streamInfo=info, epoch=epoch)
    ranges = control._ask("getEpochSegments", request).segmentRanges  # noqa: SLF001 - a reader's own question
    return {segment.segmentId.segmentId: control.place(segment.segmentId) for segment in ranges}


def events_of(segment: SegmentPlace) -> list[bytes]:
    """Every event that a reader of the segment sees now."""
    return _events(_bytes_of(segment))


def _bytes_of(segment: SegmentPlace) -> bytes:
    with connected(segment, PATIENCE_SECONDS) as connection:
        end = connection.length() or 0
        found = b""
        while len(found) < end:
            found += _read(connection, len(found), end - len(found))
    return found


def _read(connection: Connection, offset: int, most: int) -> bytes:
    name = text(connection.place.name)
    connection.send(_READ, name, struct.pack(">qi", offset, most), text(""), struct.pack(">q", 1))
    kind, fields = connection.receive()
    assert kind == _SEGMENT_READ, fields
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
