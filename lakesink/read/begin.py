"""Whose batches a consumer reads, and from where on, if it has no position yet."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from itertools import takewhile

from pyiceberg.table import Table

from lakesink.read.follow import past_of
from lakesink.read.position import Position
from lakesink.read.reading_errors import batch_unknown, sink_unknown
from lakesink.read.steps import Follows, SinkBatches, behind, owner_of_changelog, position_of
from lakesink_catalog.read.history import keys_of_ledger
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.identity import SinkKey, SinkKind
from lakesink_protocol.ledger import mark_of

_FORMAT_VERSION = 2


class Begin(Enum):
    """A beginning that needs no number."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtBatch:
    """Begin with the newest batch of this id."""

    batch_id: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """Begin with the first batch that was committed at this time or later, in milliseconds since 1970."""

    time_ms: int


Beginning = Begin | AtBatch | AtTime


def followed(table: Table, name: str, sink_id: str, branch: str) -> SinkBatches:
    """The batches to read: of the named sink, or of the only one of the branch.

    Raises:
        CatalogError: UNSUPPORTED for a table of another format version.
        SettingsError: SINK_UNKNOWN or SINK_AMBIGUOUS.
    """
    if table.metadata.format_version != _FORMAT_VERSION:
        raise CatalogError.of("UNSUPPORTED.to_read", table=name, version=table.metadata.format_version)
    marks = (mark_of(snapshot.summary) for snapshot in table.metadata.snapshots)
    keys = {mark.key for mark in marks if mark is not None} | set(keys_of_ledger(table))
    found = sorted(set(_follows(keys, branch)), key=lambda one: (one.sink, one.follows.value))
    chosen = [one for one in found if sink_id in ("", one.sink)]
    if not chosen:
        raise sink_unknown(name, branch, sink_id, [one.sink for one in found])
    if len(chosen) > 1:
        raise SettingsError.of(
            "SINK_AMBIGUOUS", branch=branch, table=name, sinks=", ".join([one.sink for one in chosen])[:100]
        )
    return chosen[0]


def beginning(table: Table, name: str, sink: SinkBatches, begin: Beginning) -> Position:
    """The position before the first batch that a new consumer reads."""
    first = sink.beginning(name, str(table.metadata.table_uuid))
    if begin is Begin.EARLIEST:
        return first
    past = past_of(table, name, sink, None)
    taken = [commit for commit in past.commits if sink.take(commit)]
    match begin:
        case AtBatch(batch_id=batch_id):
            batches = sink.of(past)
            of_id = [batch for batch in batches if batch.batch_id == batch_id]
            if not of_id:
                raise batch_unknown(past, sink, batch_id, batches)
            before = behind(past, first, taken[: taken.index(of_id[-1])])
            return replace(position_of(past, of_id[-1]).before(), replays=before.replays)
        case AtTime(time_ms=time_ms):
            return behind(past, first, list(takewhile(lambda one: one.snapshot.timestamp_ms < time_ms, taken)))
    return behind(past, first, taken)


def _follows(keys: Iterable[SinkKey], branch: str) -> Iterable[SinkBatches]:
    """Every sink whose batches, or whose changelog, the branch has or had."""
    for key in keys:
        if key.branch != branch:
            continue
        if key.kind is SinkKind.STREAM:
            yield SinkBatches(key.name, branch)
        elif owner_of_changelog(key.name):
            yield SinkBatches(owner_of_changelog(key.name), branch, Follows.CHANGELOG)
