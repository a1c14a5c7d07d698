"""What a batch read of each source: from its offsets before the batch, and at its end. Pure.

Offsets are other people's input: they come from snapshot summaries, and their form depends on the source.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakesink.checkpoint.offsets import (
    Ends,
    by_key,
    is_kafka_offset,
    is_reader_offset,
    log_offset,
    moved,
    moved_partitions,
)
from lakesink.read.position import Position, parse_offset
from lakesink_protocol.errors import QueryError
from lakesink_protocol.identity import digest, stream_batch
from lakesink_protocol.ledger import MAX_MARK_OFFSETS_BYTES, Mark


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


def offsets_in(mark: Mark) -> Ends | None:
    """The end offsets in a summary; None if they are not there, or not those of which it has the digest."""
    try:
        found = json.loads(mark.offsets[:MAX_MARK_OFFSETS_BYTES])  # longer ones are not ours
        return found if isinstance(found, list | dict) and digest(found) == mark.end else None
    except (ValueError, RecursionError):
        return None


def is_whole_input(mark: Mark, start: Ends | None, end: Ends) -> bool:
    """True if the fingerprint of a batch is that of exactly these offsets, and of no files."""
    return stream_batch(mark.batch_id, mark.query_id, start=start, end=end).fingerprint == mark.fingerprint


def zeros(end: Ends) -> Ends | None:
    """Offsets 0 for every partition, where many first batches begin; None unless every source is Kafka."""
    values = list(by_key(end).values())
    if not values or not all(map(is_kafka_offset, values)):
        return None
    begun = [{topic: dict.fromkeys(of, 0) for topic, of in value.items()} for value in values]
    return dict(zip(end, begun, strict=True)) if isinstance(end, dict) else begun


def has_files(end: Ends) -> bool:
    """True if a source reads files, which a fingerprint covers and a summary does not list."""
    return any(log_offset(value) is not None for value in by_key(end).values())


def read_between(
    start: Ends | None, end: Ends, paths: Mapping[str, Sequence[str]]
) -> tuple[list[SourceRange], list[str]]:
    """What each source gave to one batch, and what its offsets leave open, each as a part of a sentence.

    Sources that gave nothing are left out; `paths` are files by source.
    """
    found = [
        one
        for source, before, after in moved(start, end)
        for one in _read(source, before, after, paths.get(source, ()))
    ]
    return [one for one in found if not isinstance(one, str)], [one for one in found if isinstance(one, str)]


def joined(ranges: Iterable[SourceRange]) -> list[SourceRange]:
    """The ranges of batches that follow each other: of each source, those that meet are one."""
    found, kafka, last = list[SourceRange](), list[KafkaRange](), dict[str, int]()
    for one in ranges:
        if isinstance(one, KafkaRange):
            kafka.append(one)
            continue
        whole = _meet(found[last[one.source]], one) if one.source in last else None
        if whole is not None:
            found[last[one.source]] = whole
        else:
            last[one.source] = len(found)
            found.append(one)
    return [*found, *merged(kafka)]


def merged(ranges: Iterable[KafkaRange]) -> list[KafkaRange]:
    """Kafka's ranges by topic and partition; ranges that meet or overlap are one."""
    found: list[KafkaRange] = []
    for one in sorted(ranges, key=lambda one: (one.topic, one.partition, -1 if one.start is None else one.start)):
        last = found[-1] if found and (found[-1].topic, found[-1].partition) == (one.topic, one.partition) else None
        if last is not None and (one.start is None or one.start <= last.end):
            found[-1] = replace(last, end=max(last.end, one.end))
        else:
            found.append(one)
    return found


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


def _read(source: str, before: Any, after: Any, paths: Sequence[str]) -> Iterator[SourceRange | str]:
    number = log_offset(after)
    if before is None and number is None:  # files begin at nothing, other sources can have begun somewhere else
        yield "where it began is not recorded by its source, so it read at most everything up to its end"
    if number is not None:
        yield FilesRange(source, log_offset(before), number, tuple(paths))
    elif is_reader_offset(after):
        start, to = _position(before), _position(after)
        yield from (f"an offset of format('lakesink') cannot be read: {one}" for one in (to, start) if type(one) is str)
        if isinstance(to, Position):
            yield BatchesRange(source, start if isinstance(start, Position) else None, to)
    elif is_kafka_offset(after):
        ranges = [KafkaRange(topic, int(one), first, end) for topic, one, first, end in moved_partitions(before, after)]
        went_back = [one for one in ranges if one.start is not None and one.start > one.end]
        for one in went_back[:1]:
            yield (
                f"the offsets of {one.topic}, partition {one.partition} went back from {one.start} to {one.end}: the"
                " topic was created again, or records were lost"
            )
        yield from (replace(one, start=None) if one in went_back else one for one in ranges)
    else:
        yield OtherRange(source, before, after)


def _position(offset: Any) -> Position | str | None:
    """The position in an offset; why it cannot be read; None if there is none."""
    if offset is None:
        return None
    try:
        return parse_offset(offset) if isinstance(offset, dict) else "it is no offset of this format"
    except QueryError as error:
        return error.what.partition("cannot be read: ")[2] or error.what
