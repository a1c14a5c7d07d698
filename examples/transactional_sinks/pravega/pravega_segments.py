"""Pravega's segment store over its wire protocol: how long a segment is, and conditional changes of a table's entry.

The Python client offers neither. A message is its type and its length, both of 4 bytes, and its fields.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pravega_controller import PravegaFailed, SegmentPlace

HELLO, VERSION, OLDEST_VERSION = -127, 15, 5
KEEP_ALIVE, NO_SUCH_SEGMENT = 100, 53
GET_SEGMENT_INFO, SEGMENT_INFO = 11, 12
UPDATE_ENTRIES, ENTRIES_UPDATED, NO_SUCH_KEY, BAD_VERSION = 74, 75, 81, 82
READ_ENTRIES, ENTRIES_READ = 78, 79
NOT_THERE = -1
"""Version of a key that is not in its table."""
ANY_VERSION, ANY_OFFSET = -(2**63), -1
_HEADER = struct.Struct(">ii")
_REQUEST_ID = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Entry:
    """Value of a key, and the version by which a change names what it replaces."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection to a segment store. Use `connected`."""

    place: SegmentPlace
    socket: socket.socket

    def length(self) -> int | None:
        """Bytes of the segment that are durable; None if there is no such segment, because it was merged or dropped."""
        kind, fields = self.ask(GET_SEGMENT_INFO, text(self.place.name), text(""))
        if kind == NO_SUCH_SEGMENT:
            return None
        self._expect(SEGMENT_INFO, kind, fields)
        after_name = 2 + int.from_bytes(fields[:2])
        _, _, _, _, written, _ = struct.unpack_from(">???qqq", fields, after_name)
        return int(written)

    def read(self, key: bytes) -> Entry | None:
        """The entry of a key in a table segment; None if there is no such table. A missing key is `NOT_THERE`."""
        kind, fields = self.ask(READ_ENTRIES, text(self.place.name), text(""), _count(1), _key(key, ANY_VERSION))
        if kind == NO_SUCH_SEGMENT:
            return None
        self._expect(ENTRIES_READ, kind, fields)
        after_key = 2 + int.from_bytes(fields[:2]) + 4 + 4 + 4 + len(key)
        version, _, size = struct.unpack_from(">qii", fields, after_key)
        start = after_key + 8 + 4 + 4
        return Entry(fields[start : start + size], version)

    def swap(self, key: bytes, version: int, value: bytes) -> bool:
        """Give a key this value if its version is still this one; False if it is not. One atomic step of the server."""
        entry = _key(key, version) + struct.pack(">ii", 4 + len(value), len(value)) + value
        offset = struct.pack(">q", ANY_OFFSET)
        kind, fields = self.ask(UPDATE_ENTRIES, text(self.place.name), text(""), _count(1), entry, offset)
        if kind in (BAD_VERSION, NO_SUCH_KEY):
            return False
        self._expect(ENTRIES_UPDATED, kind, fields)
        return True

    def ask(self, kind: int, *fields: bytes) -> tuple[int, bytes]:
        """Send a request whose first field is its number, and return type and further fields of the answer."""
        self.send(kind, _REQUEST_ID.pack(1), *fields)
        answer, body = self.receive()
        return answer, body[_REQUEST_ID.size :]

    def send(self, kind: int, *fields: bytes) -> None:
        """Send one message."""
        body = b"".join(fields)
        self.socket.sendall(_HEADER.pack(kind, len(body)) + body)

    def receive(self) -> tuple[int, bytes]:
        """The next message that says something."""
        kind = KEEP_ALIVE
        while kind == KEEP_ALIVE:
            kind, size = _HEADER.unpack(self._exactly(_HEADER.size))
            body = self._exactly(size)
        return kind, body

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self.socket.recv(size - len(received))
            if not part:
                raise ConnectionError("the segment store closed the connection")
            received += part
        return bytes(received)

    def _expect(self, wanted: int, kind: int, fields: bytes) -> None:
        if kind != wanted:
            raise PravegaFailed(f"the segment store answered {kind} about {self.place.name}: {fields[:200]!r}")


@contextmanager
def connected(place: SegmentPlace, patience_seconds: float) -> Iterator[Connection]:
    """A connection to the server of a segment, for some requests.

    Raises:
        PravegaFailed: The server does not answer.
    """
    try:
        with socket.create_connection((place.host, place.port), patience_seconds) as opened:
            connection = Connection(place, opened)
            connection.send(HELLO, _HEADER.pack(VERSION, OLDEST_VERSION))
            connection.receive()
            yield connection
    except OSError as error:
        raise PravegaFailed(f"segment store {place.host}:{place.port}: {error}") from None


def text(value: str) -> bytes:
    """A text as a field: its length in 2 bytes, then UTF-8."""
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded


def _count(number: int) -> bytes:
    return struct.pack(">i", number)


def _key(key: bytes, version: int) -> bytes:
    return struct.pack(">ii", 4 + len(key) + 8, len(key)) + key + struct.pack(">q", version)
