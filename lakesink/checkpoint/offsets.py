"""Parses the texts of Spark's checkpoint: offset logs, initial offsets and file-source logs. Pure, no I/O.

Offsets are compared as parsed JSON values, because the spelling may differ. Text that is not JSON is kept as it is.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import unquote

from lakesink_protocol.errors import QueryError

LOG_VERSION = "v1"
BY_KEY = "v2"
OFFSET_LOG_VERSIONS = (LOG_VERSION, BY_KEY)
NO_OFFSET = "-"
NAMES_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""True in an offset log's metadata (since Spark 4.2) if the query names each of its sources."""
TAIL_BYTES = 256 * 1024
READER = "lakesink"
"""The version in an offset of ``format("lakesink")``."""

ReadRange = Callable[[int, int], bytes]
"""Reads a byte range of a file: offset and length -> exactly these bytes."""
Ends = list[Any] | dict[str, Any]
"""Offsets as the ledger stores them, in the order of the sources or by their names; see `Offsets.by_source`."""


class Keys(Enum):
    """How an offset log identifies its sources."""

    POSITIONS = "their positions in the query"
    NAMES = "the names that the query gives them"
    UNKNOWN = "nothing: there is only one, and the log does not name it"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets of one batch, by source; None, or no entry, for a source without an offset yet."""

    ends: Mapping[str, Any]
    keys: Keys = Keys.POSITIONS

    @property
    def by_source(self) -> Ends:
        """Offsets as the ledger stores them: independent of the log version and of the order of named sources.

        A single source is stored without its name, because it may get a name later.
        """
        if self.keys is Keys.POSITIONS:
            last = max(map(int, self.ends), default=-1)
            return [self.ends.get(str(position)) for position in range(last + 1)]
        return list(self.ends.values()) if len(self.ends) <= 1 else dict(sorted(self.ends.items()))

    def sources(self) -> list[str]:
        """Keys of the sources, in the order of `by_source`."""
        return sorted(self.ends, key=int if self.keys is Keys.POSITIONS else None)


def parse_offset_log(text: str) -> Offsets:
    """Parse ``<checkpoint>/offsets/<n>``: a version line, a metadata line, then one line for each source.

    Version 1 lists offsets in the query's order. Version 2 puts a key before each: the source's name, else its
    position. Raises QueryError if the log is truncated, of another version, or ambiguous about its sources.
    """
    version, lines = _content(text, OFFSET_LOG_VERSIONS)
    if not lines:
        raise unreadable("an offset log ends after its version line")
    if version == BY_KEY:
        return _keyed(lines[1:], named=_names_sources(lines[0]))
    ends = {str(position): _offset(line) for position, line in enumerate(lines[1:])}
    if not _names_sources(lines[0]):
        return Offsets(ends)
    if len(ends) > 1:
        raise QueryError.of("SOURCES_BY_POSITION")
    return Offsets(ends, Keys.UNKNOWN)


def parse_query_id(text: str) -> str:
    """The query id in ``<checkpoint>/metadata``."""
    try:
        return str(json.loads(text)["id"])
    except (ValueError, TypeError, KeyError):
        raise unreadable("its metadata file contains no query id") from None


def parse_offsets(offsets: str) -> dict[str, Any]:
    """The offset of each source in a ledger's offsets; none if that is no such text."""
    try:
        found = json.loads(offsets)
    except (ValueError, RecursionError):
        return {}
    return by_key(found) if isinstance(found, list | dict) else {}


def by_key(offsets: Ends) -> dict[str, Any]:
    """Offsets by the names of the sources, or by their positions."""
    return offsets if isinstance(offsets, dict) else {str(place): value for place, value in enumerate(offsets)}


def moved(start: Ends | None, end: Ends) -> list[tuple[str, Any, Any]]:
    """Key, offset before and after of each source that gave something.

    A single source has no name, and may get one later.
    """
    ends, before = by_key(end), {}
    if start is not None and len(start) == len(end) == 1:
        before = dict.fromkeys(ends, *by_key(start).values())
    elif isinstance(start, type(end)):
        before = by_key(start)
    found = ((source, before.get(source), after) for source, after in ends.items())
    return [one for one in found if one[2] is not None and one[1] != one[2]]


def moved_partitions(before: Any, after: Mapping[str, Any]) -> list[tuple[str, str, int | None, int]]:
    """Topic, partition, first offset and end of what was read between two offsets of Kafka; None if it is unknown."""
    starts = partitions(before) if is_kafka_offset(before) else {}
    found = ((*place, starts.get(place), end) for place, end in partitions(after).items())
    return [one for one in found if one[2] != one[3]]


def parse_initial_offset(content: bytes) -> dict[str, Any] | None:
    """Start of a Kafka source by topic and partition (a zero byte, the version, then JSON); None for other sources."""
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


def is_kafka_offset(value: Any) -> bool:
    """True for a document of topics, partitions and offsets, as Kafka's source has it."""
    return isinstance(value, dict) and bool(value) and all(map(_are_partitions, value.values()))


def partitions(offset: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Kafka's offsets by topic and partition."""
    return {(topic, one): number for topic, of in offset.items() for one, number in of.items()}


def is_reader_offset(value: Any) -> bool:
    """True for an offset of ``format("lakesink")``, of any version."""
    return isinstance(value, dict) and READER in value


def name_their_data(offsets: str) -> bool:
    """True if a ledger's offsets identify the data before them, even after the checkpoint was restored.

    Those of Kafka and of lakesink do. A file source's offset is a number in its own log: after the checkpoint was
    restored, the same number can stand for other files.
    """
    known = [value for value in parse_offsets(offsets).values() if value is not None]
    return bool(known) and all(is_kafka_offset(value) or is_reader_offset(value) for value in known)


def pass_by(offsets: str, others: str) -> bool:
    """True if one of a ledger's offsets that only grow in a query is greater than that in the others."""
    found, before = _growing(offsets), _growing(others)
    return any(number > before.get(place, number) for place, number in found.items())


def source_log_lines(text: str, after: int, upto: int) -> list[str]:
    """Lines of a file-source log for log offsets above `after` and up to `upto`, in the log's order."""
    _, lines = _content(text, (LOG_VERSION,))
    return [line for line in lines if after < _entry_offset(line) <= upto]


def source_log_paths(lines: Iterable[str]) -> list[str]:
    """URIs of the files in a file source's log, each once and decoded: Spark stores them URL-encoded."""
    paths = (json.loads(line).get("path") for line in lines)
    return list(dict.fromkeys(unquote(path) for path in paths if isinstance(path, str)))


def source_log_tail(read_range: ReadRange, size_bytes: int, after: int, upto: int) -> list[str]:
    """`source_log_lines` of a compacted log; reads backwards from its end, only as far as needed."""
    found: list[str] = []
    for line_bytes in _lines_backwards(read_range, size_bytes):
        line = line_bytes.decode().strip()
        if not line:
            continue
        if line == LOG_VERSION:
            break
        position = _entry_offset(line)
        if position <= after:
            break
        if position <= upto:
            found.append(line)
    return found[::-1]


def unreadable(why: str) -> QueryError:
    """The error if the checkpoint does not show what a batch reads: a replay could not be recognised."""
    return QueryError.of("CHECKPOINT_UNREADABLE", why=why)


def _growing(offsets: str) -> dict[tuple[Any, ...], int]:
    """The offset of each partition of Kafka, and the sequence number of each table."""
    found: dict[tuple[Any, ...], int] = {}
    for source, value in parse_offsets(offsets).items():
        if is_reader_offset(value) and type(value.get("sequence")) is int:
            found[source, value.get("uuid")] = value["sequence"]
        elif is_kafka_offset(value):
            found |= {(source, *place): number for place, number in partitions(value).items()}
    return found


def _content(text: str, known: Sequence[str]) -> tuple[str, list[str]]:
    head, *lines = text.replace("\r\n", "\n").split("\n")
    version = head.strip()
    if version not in known:
        raise QueryError.of("CHECKPOINT_VERSION", version=version[:20], known=" and ".join(known))
    return version, lines[:-1] if lines and not lines[-1] else lines


def _names_sources(metadata: str) -> bool:
    try:
        conf = json.loads(metadata).get("conf")
    except (ValueError, AttributeError):
        return False
    return isinstance(conf, dict) and conf.get(NAMES_SOURCES) == "true"


def _keyed(lines: Sequence[str], *, named: bool) -> Offsets:
    ends: dict[str, Any] = {}
    for line in lines:
        key, colon, offset = line.partition(":")
        if not colon or key in ends:
            raise unreadable("an offset log has a line without a source, or the same source twice")
        ends[key] = _offset(offset)
    named = named or not all(key.isascii() and key.isdecimal() for key in ends)
    return Offsets(ends, Keys.NAMES if named else Keys.POSITIONS)


def _offset(line: str) -> Any:
    text = line.strip()
    if text == NO_OFFSET:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _are_partitions(value: Any) -> bool:
    return isinstance(value, dict) and all(
        name.isascii() and name.isdecimal() and str(int(name)) == name and type(offset) is int and offset >= 0
        for name, offset in value.items()
    )


def _entry_offset(line: str) -> int:
    try:
        return int(json.loads(line)["batchId"])
    except (ValueError, TypeError, KeyError):
        raise unreadable("a file source's log has a line that is not an entry") from None


def _lines_backwards(read_range: ReadRange, size_bytes: int) -> Iterator[bytes]:
    """Whole lines from last to first, not decoded: a chunk may split a character."""
    rest, end = b"", size_bytes
    while end > 0:
        start = max(0, end - TAIL_BYTES)
        rest, *whole = (read_range(start, end - start) + rest).split(b"\n")
        yield from reversed(whole)
        end = start
    yield rest
