"""How far a consumer has read a sink's batches: the offset of a stream over them. Pure.

A position names a batch, never a snapshot alone: compaction and expiry take snapshots away, and a batch that is written
again after a rollback is in another one. Batch ids begin again with a new query, so the position has the query too, and
the fingerprint tells a batch that was written again from other data under the same id. After a rollback, Spark may read
the same input in other batches; a batch that ends at the same offsets of the same query then is at the same place.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import QueryError
from lakesink_protocol.identity import MAIN_BRANCH

VERSION = 1
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

    @property
    def is_before_all(self) -> bool:
        """True if every batch of the sink comes after it."""
        return self.batch_id == BEFORE_ALL

    def before(self) -> "Position":
        """The place in front of the same batch."""
        return replace(self, is_read=False)

    def is_at(self, other: "Position") -> bool:
        """True if both are the same place of the same history; a ledger entry does not tell `end`."""
        return replace(self, end="", table="") == replace(other, end="", table="")

    def to_offset(self) -> dict[str, Any]:
        """The offset as Spark stores it; usual values are left out, because the ledger of the next sink has 1 KiB."""
        fields = {_NAMES[name]: value for name, value in asdict(self).items()}
        usual: dict[str, Any] = {"branch": MAIN_BRANCH, "read": True, "snapshot": 0, "sequence": 0}
        usual |= dict.fromkeys(("query", "fingerprint", "end"), "")
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
        position = Position(**({"branch": MAIN_BRANCH} | found))
    except TypeError:
        raise _unreadable("a field is missing") from None
    texts = [position.table, position.table_uuid, position.branch, position.sink]
    texts += [position.query_id, position.fingerprint, position.end]
    numbers = position.batch_id, position.snapshot_id, position.sequence_number
    if not all(isinstance(text, str) for text in texts) or type(position.is_read) is not bool:
        raise _unreadable("a field has the wrong type")
    if not all(type(number) is int and BEFORE_ALL <= number <= LARGEST for number in numbers):
        raise _unreadable("a field has the wrong type")
    return position


def _unreadable(why: str) -> QueryError:
    return QueryError(
        "READ_OFFSET_UNREADABLE",
        f"The checkpoint has an offset of format('lakesink') that cannot be read: {why}.",
        data=DataState.UNCHANGED,
        action="Use the lakesink that wrote the checkpoint, or a newer one; or restore the whole checkpoint.",
    )
