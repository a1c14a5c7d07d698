"""The state of a sink in a table: the ledger entry, the batch marks, and the branch with its snapshots. Pure.

One atomic commit records every batch in three places. The *entry* is a table property that survives expiry and
rollback. The *mark* in the summary of the batch's own snapshot is for audits. The *tag* at the newest own snapshot
proves a rollback. `TableView` contains all three.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from lakesink_protocol.identity import Batch, SinkKey, SinkKind, canonical

LEDGER_VERSION = 1
MAX_ENTRY_BYTES = 1024
LONGEST_READ = 16 * MAX_ENTRY_BYTES
"""Leaves room for entries of a later lakesink, to report their version."""
MAX_MARK_OFFSETS_BYTES = 4096
LARGEST_NUMBER = 2**63 - 1
LARGEST_FIELD_ID = 2**31 - 1
MOST_KEYS = 32
"""Key columns of one sink, so that their ids fit into an entry."""
FORGOTTEN = "lakesink.forgotten"
"""Summary property of the snapshot that removed a sink; its value is the name of the ledger property."""
RESTORED = "lakesink.restored"
"""Summary property of the snapshot that restored a ledger entry; its value is the name of the ledger property."""
COMPACTED = "lakesink.compacted"
"""Summary property of a snapshot that compacted files; its value is the ledger property of the sink that did, or the
name of another process that did."""
MAINTENANCE = "lakesink.maintenance"
"""Summary property of such a snapshot: what was done and proved, as JSON."""
_DIGITS = re.compile(r"[0-9]{1,19}")
_KINDS = {"": SinkKind.STREAM} | {kind.value: kind for kind in SinkKind}
"""By the kind in a summary, which leaves out the usual one."""


class EntryUnreadable(ValueError):
    """The ledger property exists, but is not an entry of a version that this code knows."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The newest batch of one sink, from the table property.

    Attributes:
        batch_id: Highest batch of the query that is in the table.
        end: Digest of its end offsets.
        snapshot_id: The sink's newest snapshot.
        table_uuid: The table that the entry was written for: a clone has the property but another UUID.
        offsets: End offsets for operators; empty if they do not fit.
        keys: Ids of the key columns by which the batch replaced or deleted rows; empty if it only appended.
    """

    batch_id: int
    query_id: str
    fingerprint: str
    end: str
    snapshot_id: int
    sequence_number: int
    table_uuid: str
    offsets: str = ""
    keys: tuple[int, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        """The fields as JSON has them; keys are left out if there are none."""
        fields = asdict(self)
        return fields | {"keys": list(self.keys)} if fields.pop("keys") else fields

    def to_json(self) -> str:
        """At most `MAX_ENTRY_BYTES`: offsets that do not fit are left out, their digest stays."""
        text = canonical({"version": LEDGER_VERSION, **self.document})
        if len(text.encode()) > MAX_ENTRY_BYTES:
            text = canonical({"version": LEDGER_VERSION, **replace(self, offsets="").document})
        return text


def parse_entry(text: str) -> LedgerEntry:
    """The entry in a table property; raises `EntryUnreadable`, also for an entry of a newer version."""
    if len(text) > LONGEST_READ:
        raise EntryUnreadable(f"it has {len(text)} characters; an entry has at most {MAX_ENTRY_BYTES}")
    try:
        document = json.loads(text, object_pairs_hook=each_once)
        version = document.pop("version")
        if type(version) is not int or version != LEDGER_VERSION:
            raise EntryUnreadable(f"ledger version {str(version)[:20]!r}, this lakesink reads {LEDGER_VERSION}")
        return typed_entry(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, EntryUnreadable):
            raise
        raise EntryUnreadable("not a ledger entry") from error


def typed_entry(document: Mapping[str, Any]) -> LedgerEntry:
    """The entry with these fields. A wrong type raises `EntryUnreadable`, a missing or unknown field TypeError."""
    entry = LedgerEntry(**{**document, "keys": typed_keys(document.get("keys", []))})
    numbers = (entry.batch_id, entry.snapshot_id, entry.sequence_number)
    texts = (entry.query_id, entry.fingerprint, entry.end, entry.table_uuid, entry.offsets)
    if not all(type(number) is int and 0 <= number <= LARGEST_NUMBER for number in numbers) or not all(
        isinstance(value, str) for value in texts
    ):
        raise EntryUnreadable("a field has the wrong type")
    return entry


def typed_keys(document: Any) -> tuple[int, ...]:
    """The field ids in a JSON list, each once; raises `EntryUnreadable`."""
    known = isinstance(document, list) and len(document) <= MOST_KEYS and len(set(map(str, document))) == len(document)
    if not known or not all(type(number) is int and 0 < number <= LARGEST_FIELD_ID for number in document):
        raise EntryUnreadable("the ids of key columns have the wrong type")
    return tuple(document)


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object without duplicate keys, of which readers count different ones; raises `EntryUnreadable`."""
    document = dict(pairs)
    if len(document) != len(pairs):
        raise EntryUnreadable("a field occurs twice")
    return document


@dataclass(frozen=True, slots=True)
class Mark:
    """The batch mark: the facts about a batch in the summary of its own snapshot.

    Attributes:
        outcome: ``committed``, ``recovered`` or ``accepted``.
        accepted: The accept as the user wrote it; empty if none.
        ledger_batch_id: Batch in the ledger after this commit; above `batch_id` only if an operator replayed an old
            batch.
        offsets: End offsets for operators; empty if they do not fit.
        missing_inputs: Number of missing input files that an operator accepted.
    """

    key: SinkKey
    batch_id: int
    query_id: str
    fingerprint: str
    end: str
    outcome: str
    accepted: str
    ledger_batch_id: int
    offsets: str = ""
    missing_inputs: int = 0

    @property
    def adds_rows(self) -> bool:
        """False if an operator skipped the batch: it is in the ledger and has no rows."""
        return not self.accepted.endswith(":skip")

    def to_summary(self) -> dict[str, str]:
        """Summary properties under ``lakesink.``; usual values are left out, because a table keeps all summaries."""
        fields = {
            "kind": "" if self.key.kind is SinkKind.STREAM else self.key.kind.value,
            "sink-id": self.key.name,
            "branch": self.key.branch,
            "batch-id": str(self.batch_id),
            "query-id": self.query_id,
            "fingerprint": self.fingerprint,
            "end": self.end,
            "outcome": self.outcome,
            "accepted": self.accepted,
            "ledger-batch-id": "" if self.ledger_batch_id == self.batch_id else str(self.ledger_batch_id),
            "offsets": self.offsets if len(self.offsets) <= MAX_MARK_OFFSETS_BYTES else "",
            "missing-inputs": str(self.missing_inputs or ""),
        }
        # A driver holds the summaries of all snapshots, so they share their keys.
        return {"lakesink.version": str(LEDGER_VERSION)} | {
            sys.intern(f"lakesink.{name}"): value for name, value in fields.items() if value
        }


def mark_of(summary: Mapping[str, Any] | None) -> Mark | None:
    """The mark in a snapshot summary; None if there is none that this version can read."""
    if summary is None or summary.get("lakesink.version") != str(LEDGER_VERSION):
        return None

    def text(name: str) -> str:
        return str(summary.get(name) or "")

    batch_id = stated(summary, "lakesink.batch-id")
    ledger_batch_id = stated(summary, "lakesink.ledger-batch-id") if text("lakesink.ledger-batch-id") else batch_id
    kind = _KINDS.get(text("lakesink.kind"))
    if kind is None or batch_id is None or ledger_batch_id is None:
        return None
    return Mark(
        key=_shared_key(text("lakesink.sink-id"), text("lakesink.branch"), kind),
        batch_id=batch_id,
        query_id=sys.intern(text("lakesink.query-id")),
        fingerprint=text("lakesink.fingerprint"),
        end=text("lakesink.end"),
        outcome=sys.intern(text("lakesink.outcome")),
        accepted=text("lakesink.accepted"),
        ledger_batch_id=ledger_batch_id,
        offsets=text("lakesink.offsets"),
        missing_inputs=stated(summary, "lakesink.missing-inputs") or 0,
    )


_shared_key = lru_cache(maxsize=64)(SinkKey)
"""One object for all marks of a sink: a history has many thousands."""


def unread_version(summary: Mapping[str, Any] | None, key: SinkKey) -> str | None:
    """Version of a mark of this sink that a newer lakesink wrote and this code cannot read; None for any other mark."""
    version = None if summary is None else summary.get("lakesink.version")
    if summary is None or version in (None, str(LEDGER_VERSION)):
        return None
    kind = summary.get("lakesink.kind") or SinkKind.STREAM.value
    named = (summary.get("lakesink.sink-id"), summary.get("lakesink.branch"), kind)
    return str(version) if named == (key.name, key.branch, key.kind.value) else None


def stated(summary: Mapping[str, Any] | None, name: str) -> int | None:
    """A whole number in a snapshot's summary; None if it is missing, or if Iceberg's readers cannot hold it."""
    text = summary.get(name) if summary is not None else None
    if not text or not _DIGITS.fullmatch(digits := str(text)):
        return None
    number = int(digits)
    return number if number <= LARGEST_NUMBER else None


class SnapshotLike(Protocol):
    """The snapshot fields that the ledger needs; PyIceberg's own class has them."""

    @property
    def snapshot_id(self) -> int:
        """Id."""

    @property
    def parent_snapshot_id(self) -> int | None:
        """Id of the parent; None for a first snapshot, or if expiry removed the parent."""

    @property
    def sequence_number(self) -> int | None:
        """Sequence number."""

    @property
    def summary(self) -> Any:
        """A mapping of strings, or None."""


Snapshots = TypeVar("Snapshots", bound=SnapshotLike)


def ancestry(snapshots: Mapping[int, Snapshots], snapshot_id: int | None) -> Iterator[Snapshots]:
    """A snapshot and its ancestors, newest first, up to the first missing parent, each at most once."""
    passed: set[int] = set()
    while snapshot_id is not None and snapshot_id in snapshots and snapshot_id not in passed:
        yield snapshots[snapshot_id]
        passed.add(snapshot_id)
        snapshot_id = snapshots[snapshot_id].parent_snapshot_id


@dataclass(frozen=True, slots=True)
class TableView:
    """The state of one sink in one version of a table.

    Attributes:
        branch_exists: False if the target branch is missing; ``main`` always exists.
        head: The branch's snapshot; None on an empty branch.
        entry: The sink's ledger entry, None if there is none.
        entry_damage: Why the ledger property cannot be read; empty if it can, or if there is none.
        snapshots: Every snapshot in the metadata, by id.
        tag_snapshot_id: Snapshot of the sink's ledger tag, None if there is no tag.
        last_sequence_number: The table's last sequence number.
        branch_contains: True if there is proof that a snapshot is under the head. Called only if expiry cut the
            ancestry between them; may read files.
        elsewhere: Ledger entries of the same sink for other branches, by branch; None for an unreadable one.
    """

    table_uuid: str
    format_version: int
    branch_exists: bool
    head: int | None
    entry: LedgerEntry | None
    entry_damage: str
    snapshots: Mapping[int, SnapshotLike]
    tag_snapshot_id: int | None
    last_sequence_number: int
    branch_contains: Callable[[int], bool]
    elsewhere: Mapping[str, LedgerEntry | None] = field(default_factory=dict)

    def ancestry(self) -> Iterator[SnapshotLike]:
        """The branch's ancestry: snapshots from the head to the first missing parent, each at most once."""
        return ancestry(self.snapshots, self.head)


def next_entry(
    batch: Batch | Mark, *, snapshot_id: int, sequence_number: int, table_uuid: str, keys: tuple[int, ...] = ()
) -> LedgerEntry:
    """The ledger entry after a commit of `batch`, or after the commit with this mark."""
    return LedgerEntry(
        snapshot_id=snapshot_id, sequence_number=sequence_number, table_uuid=table_uuid, keys=keys, **stated_of(batch)
    )


def stated_of(batch: Batch | Mark) -> dict[str, Any]:
    """What a mark and an entry state of a batch."""
    return {name: getattr(batch, name) for name in ("batch_id", "query_id", "fingerprint", "end", "offsets")}
