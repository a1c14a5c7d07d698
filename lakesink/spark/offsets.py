"""The texts of Spark's checkpoint, parsed: offset logs, initial offsets and file-source logs. Pure, no I/O.

Offsets are compared as parsed values, so that the same offsets spelled otherwise stay the same; what is not JSON is
kept as the raw text.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lakesink_catalog.errors import QueryError

LOG_VERSION = "v1"
NO_OFFSET = "-"
TAIL_BYTES = 256 * 1024
NOTHING_WRITTEN = "Nothing of this batch was written or committed."

ReadRange = Callable[[int, int], bytes]
"""Reads a file: offset and length in bytes -> exactly these bytes."""


def parse_offset_log(text: str) -> tuple[Any, ...]:
    """Offsets of one batch, one value a source in Spark's order; None for a source that has none yet.

    Args:
        text: Content of ``<checkpoint>/offsets/<n>``: the version, a line of metadata, then a line a source.

    Raises:
        QueryError: The log has another version, or is cut.
    """
    lines = _content(text)
    if not lines:
        raise unreadable("an offset log ends after its version line")
    return tuple(_offset(line) for line in lines[1:])


def parse_query_id(text: str) -> str:
    """Query id in ``<checkpoint>/metadata``.

    Raises:
        QueryError: It holds no id.
    """
    try:
        return str(json.loads(text)["id"])
    except (ValueError, TypeError, KeyError):
        raise unreadable("its metadata file holds no query id") from None


def parse_initial_offset(content: bytes) -> dict[str, Any] | None:
    """Start of a Kafka source: topic -> partition -> offset. None for any other source's file.

    Args:
        content: ``<checkpoint>/sources/<i>/0``: a zero byte, the version, then JSON.
    """
    head, _, body = content.partition(b"\n")
    if head != b"\0v1":
        return None
    try:
        offsets = json.loads(body)
    except ValueError:
        return None
    partitions = list(offsets.values()) if isinstance(offsets, dict) else []
    return offsets if partitions and all(isinstance(value, dict) for value in partitions) else None


def log_offset(value: Any) -> int | None:
    """Position of a file source in its own log; None if the value is not a file source's offset."""
    if isinstance(value, dict) and value.keys() == {"logOffset"} and isinstance(value["logOffset"], int):
        return value["logOffset"]
    return None


def source_log_lines(text: str, after: int, upto: int) -> list[str]:
    """Lines of a file-source log for log offsets above `after` and up to `upto`, in the log's order.

    Raises:
        QueryError: The log has another version, or a line that is not an entry.
    """
    return [line for line in _content(text) if after < _entry_offset(line) <= upto]


def source_log_tail(read_range: ReadRange, size_bytes: int, after: int, upto: int) -> list[str]:
    """`source_log_lines` of a log that holds all earlier entries too, reading no more of its end than is needed.

    Args:
        read_range: Reads part of the log.
        size_bytes: Its size.
        after: Log offset that the batch starts after.
        upto: Log offset that the batch ends at.
    """
    found: list[str] = []
    for line in _lines_backwards(read_range, size_bytes):
        if line == LOG_VERSION:
            break
        position = _entry_offset(line)
        if position <= after:
            break
        if position <= upto:
            found.append(line)
    return found[::-1]


def unreadable(why: str) -> QueryError:
    """The checkpoint does not tell what the batch reads, so the batch cannot be recognised later."""
    return QueryError(
        "CHECKPOINT_UNREADABLE",
        f"The checkpoint does not tell what this batch reads: {why}.",
        data=NOTHING_WRITTEN,
        action="Restore the checkpoint as a whole, or start the query on a new one with the same sink id: "
        "lakesink then says where the table stands.",
    )


def _content(text: str) -> list[str]:
    version, *lines = text.replace("\r\n", "\n").split("\n")
    if version.strip() != LOG_VERSION:
        raise QueryError(
            "CHECKPOINT_VERSION",
            f"The checkpoint has a log of version {version.strip()[:20]!r}; this lakesink reads {LOG_VERSION!r}.",
            data=NOTHING_WRITTEN,
            action="Use a lakesink that knows this version of Spark, or the Spark that wrote the checkpoint.",
        )
    return lines[:-1] if lines and not lines[-1] else lines


def _offset(line: str) -> Any:
    text = line.strip()
    if text == NO_OFFSET:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _entry_offset(line: str) -> int:
    try:
        return int(json.loads(line)["batchId"])
    except (ValueError, TypeError, KeyError):
        raise unreadable("a file source's log has a line that is not an entry") from None


def _lines_backwards(read_range: ReadRange, size_bytes: int) -> Iterator[str]:
    """Lines from the last to the first; only whole lines are decoded, for a chunk may cut a character in two."""
    rest, end = b"", size_bytes
    while end > 0:
        start = max(0, end - TAIL_BYTES)
        rest, *whole = (read_range(start, end - start) + rest).split(b"\n")
        yield from _decoded(reversed(whole))
        end = start
    yield from _decoded([rest])


def _decoded(lines: Iterable[bytes]) -> Iterator[str]:
    return (line.decode().strip() for line in lines if line.strip())
