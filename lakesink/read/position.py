"""How far a consumer has read a sink's batches: the offset of a stream over them. Pure.

A position names a batch, never a snapshot alone: compaction and expiry take snapshots away, and a batch that is written
again after a rollback is in another one. Batch ids begin again with a new query, so the position has the query too, and
the fingerprint tells a batch that was written again from other data under the same id. After a rollback, Spark may read
the same input in other batches; a batch that ends at the same offsets of the same query then is at the same place.

Replays of the sink's dead letters come between its batches, at any time. They have numbers of their own, so a position
also names those that were read: after a rollback, they may be replayed again, before or behind the batch.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from lakesink_protocol.errors import QueryError
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.quality import REPLAY

VERSION = 1
MOST_ENDS, END = 8, 12
"""Newest replays whose ends a position has, and hex digits of each: the ledger entry of the next sink has 1 KiB."""
Replays = tuple[tuple[str, int, tuple[str, ...]], ...]
BEFORE_ALL = -1
"""Stands for the batch id of a position before the first batch of all."""
LARGEST = 2**63 - 1
_NAMES = {
    "table": "table",
    "table_uuid": "uuid",
    "branch": "branch",
    "sink": "sink",
    "query_id": "query",
    "batch_id": "batch",
    "fingerprint": "fingerprint",
    "end": "end",
    "snapshot_id": "snapshot",
    "sequence_number": "sequence",
    "is_read": "read",
    "replays": "replays",
}
"""Fields by their names in an offset."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two batches of one sink.

    Attributes:
        table: Identifier of the table, for people; its UUID decides.
        sink: Sink id of a stream, or application id of one that writes a changelog.
        query_id: Id of the query that wrote the batch; empty for a changelog, whose application names its query.
        batch_id: The batch; `BEFORE_ALL` before the first one.
        fingerprint: Of the batch.
        end: Digest of the source's offsets at the end of the batch; empty if other batches may end there too, or if the
            offsets do not name their data.
        snapshot_id: In which the batch was seen.
        sequence_number: Of that snapshot.
        is_read: True after the batch, False before it.
        replays: The newest replay of dead letters that was read, by the application that replays: its number, and how
            the ends in its mark and in those before it begin. Replays before the batch need not be among them.
    """

    table: str
    table_uuid: str
    branch: str
    sink: str
    query_id: str = ""
    batch_id: int = BEFORE_ALL
    fingerprint: str = ""
    end: str = ""
    snapshot_id: int = 0
    sequence_number: int = 0
    is_read: bool = True
    replays: Replays = ()

    @property
    def is_before_all(self) -> bool:
        """True if every batch of the sink comes after it."""
        return self.batch_id == BEFORE_ALL

    @property
    def is_behind_one(self) -> bool:
        """True if its batch was read."""
        return self.is_read and not self.is_before_all

    def before(self) -> "Position":
        """The place in front of the same batch."""
        return replace(self, is_read=False)

    def newest_replay(self, application: str) -> int:
        """Number of the newest replay of an application that was read; 0 if none is known."""
        return self._replays_of(application)[0]

    def replay_end(self, application: str, number: int) -> str:
        """How the end of a replay that was read begins; empty if it is unknown."""
        newest, ends = self._replays_of(application)
        return ends[newest - number] if 0 <= newest - number < len(ends) else ""

    def behind_replay(self, application: str, number: int, end: str) -> "Position":
        """The place behind the same batch, and behind this replay."""
        newest, before = self._replays_of(application)
        if number <= newest:
            return self
        ends = (end[:END], *(before if number == newest + 1 else ()))[:MOST_ENDS]
        others = (one for one in self.replays if one[0] != application)
        return replace(self, replays=tuple(sorted((*others, (application, number, ends)))))

    def _replays_of(self, application: str) -> tuple[int, tuple[str, ...]]:
        return next(((number, ends) for name, number, ends in self.replays if name == application), (0, ()))

    def is_at(self, other: "Position") -> bool:
        """True if both are the same place of the same history; a ledger entry does not tell `end`."""
        return replace(self, end="", table="") == replace(other, end="", table="")

    def to_offset(self) -> dict[str, Any]:
        """The offset as Spark stores it; usual values are left out, because the ledger of the next sink has 1 KiB."""
        fields = {_NAMES[name]: value for name, value in asdict(self).items()}
        usual: dict[str, Any] = {"branch": MAIN_BRANCH, "read": True, "snapshot": 0, "sequence": 0}
        usual |= dict.fromkeys(("query", "fingerprint", "end"), "") | {"replays": {}}
        fields["replays"] = {name.removeprefix(REPLAY): [number, "".join(ends)] for name, number, ends in self.replays}
        return {"lakesink": VERSION} | {name: value for name, value in fields.items() if value != usual.get(name)}


def parse_offset(offset: Mapping[str, Any]) -> Position:
    """The position in an offset; raises QueryError if it is not one of this version."""
    version = offset.get("lakesink")
    if type(version) is not int or version != VERSION:
        raise _unreadable(f"its version is {str(version)[:20]!r}, this lakesink reads {VERSION}")
    found = {name: offset[key] for name, key in _NAMES.items() if key in offset}
    if len(found) + 1 != len(offset):
        raise _unreadable("it has unknown fields")
    try:
        replays = _replays(found.pop("replays", {}))
        position = Position(**({"branch": MAIN_BRANCH} | found), replays=replays)
    except TypeError:
        raise _unreadable("a field is missing") from None
    texts = [position.table, position.table_uuid, position.branch, position.sink]
    texts += [position.query_id, position.fingerprint, position.end]
    numbers = position.batch_id, position.snapshot_id, position.sequence_number
    are_counts = all(type(number) is int and BEFORE_ALL <= number <= LARGEST for number in numbers)
    if not are_counts or not all(isinstance(text, str) for text in texts) or type(position.is_read) is not bool:
        raise _unreadable("a field has the wrong type")
    return position


def _replays(document: Any) -> Replays:
    is_known = isinstance(document, Mapping) and all(
        isinstance(told, list) and [type(one) for one in told] == [int, str] and 0 < told[0] <= LARGEST
        for told in document.values()
    )
    if not is_known:
        raise _unreadable("a field has the wrong type")
    return tuple(
        sorted(
            (REPLAY + name, number, tuple(ends[at : at + END] for at in range(0, len(ends), END)))
            for name, (number, ends) in document.items()
        )
    )


def _unreadable(why: str) -> QueryError:
    return QueryError.of("READ_OFFSET_UNREADABLE", why=why)
