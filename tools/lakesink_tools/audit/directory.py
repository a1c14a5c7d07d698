"""Audits a directory by its markers and part files. Only reads.

Each marker is read and compared with the previous one; one listing gives the sizes of all parts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from lakesink.sinks.directory.directory_errors import directory_failures
from lakesink.sinks.directory.layout import Layout, batch_of_part, batch_of_record
from lakesink.sinks.directory.marker import Marker, MarkerDamaged
from lakesink.sinks.directory.marker_ledger import find_markers, marker_sizes, undamaged_history
from lakesink.sinks.staged.part_receipt import Part
from lakesink.sinks.storage import Storage
from lakesink_catalog.words import counted
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.ledger import Mark, mark_of
from lakesink_tools.audit.checkpoint import Done, compare, present
from lakesink_tools.audit.continuity import Chain, breaks
from lakesink_tools.audit.finding import Code, Finding, Note, listed
from lakesink_tools.past.committed_files import opened_sinks

Said = Finding | Note


@dataclass(frozen=True, slots=True)
class SinkInDirectory:
    """One sink of a directory."""

    layout: Layout
    markers: tuple[Marker, ...]  # its commits, up to the first damaged marker
    damage: str  # what is wrong with the next commit; else empty

    @property
    def name(self) -> str:
        """The sink id."""
        return self.layout.sink_id


@dataclass(frozen=True, slots=True)
class DirectoryProof:
    """Result of an audit of a directory."""

    sinks: tuple[SinkInDirectory, ...]
    findings: tuple[Finding, ...]
    notes: tuple[Note, ...]


def sinks_in(directory: str, sink: str | None) -> tuple[Storage, tuple[SinkInDirectory, ...]]:
    """The sinks of a directory with their commits; only one sink if it is named."""
    with opened_sinks(directory, sink) as (storage, layouts):
        return storage, tuple(_sink(storage, layout) for layout in layouts)


def audit_directory(directory: str, *, sink: str | None = None, done: Done | None = None) -> DirectoryProof:
    """Prove what can be proved of a directory, and of what a checkpoint records, read before the directory."""
    storage, sinks = sinks_in(directory, sink)
    with directory_failures(sinks[0].layout.directory):
        said = [one for found in sinks for one in (*_of_commits(found, sinks), *_of_parts(storage, found))]
    if done is not None:
        said += compare(done, (present(one.name, done.query_id, _marks(one.markers), None) for one in sinks))
    return DirectoryProof(
        sinks=sinks,
        findings=tuple(one for one in said if isinstance(one, Finding)),
        notes=tuple(one for one in said if isinstance(one, Note)),
    )


def committed_at(marker: Marker) -> datetime | None:
    """Commit time by the driver's clock; None if the marker states no time."""
    try:
        when = datetime.fromisoformat(marker.committed_at)
    except ValueError:
        return None
    return None if when.tzinfo is None else when


def _sink(storage: Storage, layout: Layout) -> SinkInDirectory:
    lost = ""
    try:
        count = len(find_markers(storage, layout)[0])
    except MarkerDamaged as damage:
        lost = str(damage)
        count = max(marker_sizes(storage, layout), default=-1) + 1
    markers, damage_found = undamaged_history(storage, layout, count)
    return SinkInDirectory(layout, tuple(markers), damage_found or lost)


def _of_commits(found: SinkInDirectory, sinks: Sequence[SinkInDirectory]) -> Iterator[Finding]:
    if found.damage:
        text = f"A commit is damaged: {found.damage}. Sound commits before it: {len(found.markers):,}."
        yield Finding(Code.LEDGER_DAMAGED, found.name, text)
    every = sorted((marker for sink in sinks for marker in sink.markers), key=lambda marker: marker.committed_at)
    yield from breaks(
        Chain(found.name, SinkKey(found.name), _marks(found.markers), complete=True, others=_marks(every))
    )


def _marks(markers: Sequence[Marker]) -> list[Mark]:
    return [mark for marker in markers if (mark := mark_of(marker.summary)) is not None]


def _of_parts(storage: Storage, found: SinkInDirectory) -> Iterator[Said]:
    named: dict[str, Part] = {}
    twice = []
    for marker in found.markers:
        twice += [part.name for part in marker.parts if part.name in named]
        named |= {part.name: part for part in marker.parts}
    if twice:
        text = f"{counted(len(twice), 'file')} in more than one commit: {listed(twice)}."
        yield Finding(Code.FILE_ADDED_TWICE, found.name, text, tuple(twice))
    there = storage.listing(found.layout.parts)
    unlisted = sorted(named.keys() - there.keys())  # a listing is not atomic
    sizes = storage.sizes([f"{found.layout.parts}/{name}" for name in unlisted])
    there |= {name: size for name, size in zip(unlisted, sizes, strict=True) if size is not None}
    yield from _of_sizes(found.name, named, there)
    others = [name for name in there if name not in named and batch_of_part(name, found.name) is not None]
    if others:
        text = f"{counted(len(others), 'file')} that no commit names: of a running batch, or left by a crash or retry."
        yield Note("pending", found.name, text)
    waiting = waiting_in(storage, found)
    if waiting:
        listed_ids = ", ".join(map(str, waiting))
        yield Note("prepared", found.name, f"Prepared, and committed by a restart: {listed_ids}.")


def waiting_in(storage: Storage, found: SinkInDirectory) -> list[int]:
    """Prepared batches that no driver has committed yet, oldest first."""
    committed = {marker.batch.batch_id for marker in found.markers}
    records = map(batch_of_record, storage.names(found.layout.prepared))
    return sorted(batch for batch in records if batch is not None and batch not in committed)


def _of_sizes(sink: str, named: dict[str, Part], there: dict[str, int]) -> Iterator[Finding]:
    missing = sorted(named.keys() - there.keys())
    if missing:
        text = f"{counted(len(missing), 'file')} not there: {listed(missing)}."
        yield Finding(Code.FILE_MISSING, sink, text, tuple(missing))
    other = [
        f"{name} ({counted(there[name], 'byte')} instead of {part.size_bytes:,})"
        for name, part in sorted(named.items())
        if there.get(name, part.size_bytes) != part.size_bytes
    ]
    if other:
        text = f"{counted(len(other), 'file')} of another size: {listed(other)}."
        yield Finding(Code.FILE_SIZE, sink, text, tuple(other))
