"""What a batch read of each source: from its offsets before the batch, and at its end. Pure.

Offsets are other people's input: they come from snapshot summaries, and their form depends on the source.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
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
        return None if self.start is None else self.end - self.start


@dataclass(frozen=True, slots=True)
class BatchesRange:
    """Batches of a table that ``format("lakesink")`` read: those behind `start`, up to and including `end`.

    Attributes:
        source: Key of the source in the query, its position or its name; the same below.
        start: None if it is unknown.
    """

    source: str
    start: Position | None
    end: Position


@dataclass(frozen=True, slots=True)
class FilesRange:
    """Files of a folder, by their numbers in the log of Spark's file source.

    Attributes:
        start: The newest number before; None if there is none, or if it is unknown.
        paths: Their URIs; empty if only the checkpoint has them.
    """

    source: str
    start: int | None
    end: int
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherRange:
    """Two offsets of a source of another kind, as it wrote them; `start` is None if it is unknown."""

    source: str
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
    values = list(_by_key(end).values())
    if not values or not all(is_kafka_offset(value) for value in values):
        return None
    begun = [{topic: dict.fromkeys(parts, 0) for topic, parts in value.items()} for value in values]
    return dict(zip(end, begun, strict=True)) if isinstance(end, dict) else begun


def has_files(end: Offsets) -> bool:
    """True if a source reads files, which a fingerprint covers and a summary does not list."""
    return any(log_offset(value) is not None for value in _by_key(end).values())


def read_between(start: Offsets | None, end: Offsets, paths: Mapping[str, Sequence[str]]) -> list[SourceRange]:
    """What each source gave to one batch, without sources that gave nothing; `paths` are files by source."""
    return [
        found
        for source, before, after in _by_source(start, end)
        for found in _ranges(source, before, after, paths.get(source, ()))
    ]


def not_told(start: Offsets | None, end: Offsets) -> list[str]:
    """What the offsets of one batch leave open, each as a part of a sentence."""
    return [reason for _, before, after in _by_source(start, end) for reason in _not_told(before, after)]


def joined(ranges: Iterable[SourceRange]) -> list[SourceRange]:
    """The ranges of batches that follow each other: of each source, those that meet are one."""
    found: list[SourceRange] = []
    kafka: list[KafkaRange] = []
    last: dict[str, int] = {}
    for one in ranges:
        if isinstance(one, KafkaRange):
            kafka.append(one)
            continue
        place = last.get(one.source)
        whole = None if place is None else _meet(found[place], one)
        if place is not None and whole is not None:
            found[place] = whole
        else:
            last[one.source] = len(found)
            found.append(one)
    return [*found, *merged(kafka)]


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


def _meet(one: SourceRange, other: SourceRange) -> SourceRange | None:
    """Both as one range, if the second begins where the first ends."""
    match one, other:
        case FilesRange(), FilesRange() if other.start == one.end:
            return replace(one, end=other.end, paths=tuple(dict.fromkeys((*one.paths, *other.paths))))
        case BatchesRange(), BatchesRange() if other.start is not None and other.start.is_at(one.end):
            return replace(one, end=other.end)
        case OtherRange(), OtherRange() if other.start is not None and other.start == one.end:
            return replace(one, end=other.end)
    return None


def _by_source(start: Offsets | None, end: Offsets) -> list[tuple[str, Any, Any]]:
    """Key, offset before and after of each source that gave something.

    A single source has no name, and may get one later.
    """
    ends, before = _by_key(end), {}
    if start is not None and len(start) == len(end) == 1:
        before = dict.fromkeys(ends, *_by_key(start).values())
    elif isinstance(start, type(end)):
        before = _by_key(start)
    moved = ((source, before.get(source), after) for source, after in ends.items())
    return [one for one in moved if one[2] is not None and one[1] != one[2]]


def _by_key(offsets: Offsets) -> dict[str, Any]:
    """Offsets by the names of the sources, or by their positions."""
    return offsets if isinstance(offsets, dict) else {str(place): value for place, value in enumerate(offsets)}


def _ranges(source: str, before: Any, after: Any, paths: Sequence[str]) -> Iterator[SourceRange]:
    number = log_offset(after)
    if number is not None:
        yield FilesRange(source, log_offset(before), number, tuple(paths))
    elif is_reader_offset(after):
        end, start = _position(after), _position(before)
        if isinstance(end, Position):
            yield BatchesRange(source, start if isinstance(start, Position) else None, end)
    elif is_kafka_offset(after):
        for one in _places(before if is_kafka_offset(before) else {}, after):
            # Of a partition whose offsets went back, only the end is known.
            yield replace(one, start=None) if one.start is not None and one.start > one.end else one
    else:
        yield OtherRange(source, before, after)


def _not_told(before: Any, after: Any) -> Iterator[str]:
    """Files begin at nothing, so only other sources can have begun somewhere else."""
    if is_reader_offset(after):
        for offset in (after, before):
            found = _position(offset)
            if isinstance(found, str):
                yield f"an offset of format('lakesink') cannot be read: {found}"
    if before is None and log_offset(after) is None:
        yield "where it began is not recorded by its source, so it read at most everything up to its end"
    elif is_kafka_offset(before) and is_kafka_offset(after):
        went_back = (place for place in _places(before, after) if place.start is not None and place.start > place.end)
        for one in islice(went_back, 1):
            yield (
                f"the offsets of {one.topic}, partition {one.partition} went back from {one.start} to {one.end}: the"
                " topic was created again, or records were lost"
            )


def _position(offset: Any) -> Position | str | None:
    """The position in an offset; why it cannot be read; None if there is none."""
    if offset is None:
        return None
    try:
        return parse_offset(offset) if isinstance(offset, dict) else "it is no offset of this format"
    except QueryError as error:
        return error.what.partition("cannot be read: ")[2] or error.what


def _places(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[KafkaRange]:
    """Each partition whose offset changed."""
    for topic, partitions in after.items():
        for partition, end in partitions.items():
            start = before.get(topic, {}).get(partition)
            if start != end:
                yield KafkaRange(topic, int(partition), start, end)
