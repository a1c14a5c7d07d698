"""What a batch read of each source: from its offsets before the batch, and at its end. Pure.

Offsets are other people's input: they come from snapshot summaries, and their form depends on the source.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from lakesink.checkpoint.offsets import is_kafka_offset, is_reader_offset, log_offset
from lakesink.read.position import Position, parse_offset
from lakesink_protocol.errors import QueryError
from lakesink_protocol.identity import digest, stream_batch
from lakesink_protocol.ledger import MAX_MARK_OFFSETS_BYTES, Mark

Offsets = list[Any] | dict[str, Any]
"""Of each source, in order or by name, as a ledger stores them; None for a source without an offset yet."""


@dataclass(frozen=True, slots=True)
class KafkaRange:
    """Records of one partition of a topic.

    Attributes:
        start: Offset of the first; None if it is unknown, or if the partition was read from its beginning.
        end: Offset behind the last.
    """

    topic: str
    partition: int
    start: int | None
    end: int

    @property
    def offsets(self) -> int | None:
        """How many offsets it has: records, and the markers of transactions between them."""
        return None if self.start is None or self.start > self.end else self.end - self.start


@dataclass(frozen=True, slots=True)
class BatchesRange:
    """Batches of a table that ``format("lakesink")`` read: those behind `start`, up to and including `end`."""

    start: Position | None
    end: Position


@dataclass(frozen=True, slots=True)
class FilesRange:
    """Files of a folder, by their numbers in the log of Spark's file source.

    Attributes:
        start: The newest number before; None if it is unknown.
        paths: Their URIs; empty if only the checkpoint has them.
    """

    start: int | None
    end: int
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherRange:
    """Two offsets of a source of another kind, as it wrote them; `start` is None if it is unknown."""

    start: Any
    end: Any


FirstRange = KafkaRange | FilesRange | OtherRange
"""Of a source that is no table of lakesink: behind it, nothing is known."""
SourceRange = FirstRange | BatchesRange


def offsets_in(mark: Mark) -> Offsets | None:
    """The end offsets in a summary; None if they are not there, or not those of which it has the digest."""
    if not mark.offsets or len(mark.offsets) > MAX_MARK_OFFSETS_BYTES:
        return None
    try:
        found = json.loads(mark.offsets)
        return found if isinstance(found, list | dict) and digest(found) == mark.end else None
    except (ValueError, RecursionError):
        return None


def is_whole_input(mark: Mark, start: Offsets | None, end: Offsets) -> bool:
    """True if the fingerprint of a batch is that of exactly these offsets, and of no files."""
    return stream_batch(mark.batch_id, mark.query_id, start=start, end=end).fingerprint == mark.fingerprint


def zeros(end: Offsets) -> Offsets | None:
    """Offsets 0 for every partition, where many first batches begin; None unless every source is Kafka."""
    values = list(end.values()) if isinstance(end, dict) else end
    if not values or not all(is_kafka_offset(value) for value in values):
        return None
    begun = [{topic: dict.fromkeys(parts, 0) for topic, parts in value.items()} for value in values]
    return dict(zip(end, begun, strict=True)) if isinstance(end, dict) else begun


def has_files(end: Offsets) -> bool:
    """True if a source reads files, which a fingerprint covers and a summary does not list."""
    values = list(end.values()) if isinstance(end, dict) else end
    return any(log_offset(value) is not None for value in values)


def read_between(start: Offsets | None, end: Offsets, paths: Sequence[str] = ()) -> list[SourceRange]:
    """What each source gave, without sources that gave nothing."""
    found: list[SourceRange] = []
    for before, after in _by_source(start, end):
        if after is not None and before != after:
            found += _ranges(before, after, paths)
    return found


def merged(ranges: Iterable[KafkaRange]) -> list[KafkaRange]:
    """Kafka's ranges by topic and partition; ranges that meet or overlap are one."""
    ordered = sorted(ranges, key=lambda one: (one.topic, one.partition, -1 if one.start is None else one.start))
    return [one for _, group in groupby(ordered, key=lambda one: (one.topic, one.partition)) for one in _joined(group)]


def _joined(ranges: Iterable[KafkaRange]) -> Iterator[KafkaRange]:
    last: KafkaRange | None = None
    for one in ranges:
        if last is not None and (one.start is None or one.start <= last.end):
            last = replace(last, end=max(last.end, one.end))
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last


def _by_source(start: Offsets | None, end: Offsets) -> Iterator[tuple[Any, Any]]:
    """Offsets before and after, source by source. A single source has no name, and may get one later."""
    if start is not None and len(start) == len(end) == 1:
        yield from zip(_values(start), _values(end), strict=True)
    elif isinstance(end, dict):
        before = start if isinstance(start, dict) else {}
        yield from ((before.get(name), value) for name, value in end.items())
    else:
        firsts = start if isinstance(start, list) else []
        yield from ((firsts[place] if place < len(firsts) else None, value) for place, value in enumerate(end))


def _values(offsets: Offsets) -> list[Any]:
    return list(offsets.values()) if isinstance(offsets, dict) else offsets


def _ranges(before: Any, after: Any, paths: Sequence[str]) -> Iterator[SourceRange]:
    number = log_offset(after)
    if number is not None:
        yield FilesRange(log_offset(before), number, tuple(paths))
    elif is_reader_offset(after):
        yield _batches(before, after)
    elif is_kafka_offset(after):
        yield from _of_kafka(before if is_kafka_offset(before) else {}, after)
    else:
        yield OtherRange(before, after)


def _batches(before: Any, after: Any) -> BatchesRange | OtherRange:
    try:
        return BatchesRange(parse_offset(before) if isinstance(before, dict) else None, parse_offset(after))
    except QueryError:
        return OtherRange(before, after)


def _of_kafka(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[KafkaRange]:
    for topic, partitions in after.items():
        for partition, end in partitions.items():
            start = before.get(topic, {}).get(partition)
            if start != end:
                yield KafkaRange(topic, int(partition), start, end)
