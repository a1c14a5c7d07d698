"""The snapshots of a table by their ids or branches: a commit does not read thousands of them to find one."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

_KNOWN: OrderedDict[int, tuple[Sequence[Snapshot], Mapping[int, Snapshot]]] = OrderedDict()
"""Of each table's newest state, by the UUID's number: threads need keys that C compares. No list is changed."""
_MOST_TABLES = 64


def head_of(table: Table, branch: str) -> int | None:
    """The newest snapshot of a branch; None if there is none."""
    ref = table.metadata.refs.get(branch)
    return ref.snapshot_id if ref is not None and ref.snapshot_ref_type is SnapshotRefType.BRANCH else None


def snapshots_by_id(metadata: TableMetadata) -> Mapping[int, Snapshot]:
    """All snapshots by id. A commit does not read them all for the next state of the table, see `with_added`."""
    of, found = _KNOWN.get(metadata.table_uuid.int, (None, {}))
    if of is not metadata.snapshots:
        found = {one.snapshot_id: one for one in metadata.snapshots}
        _remember(metadata, metadata.snapshots, found)
    return found


def with_added(base: TableMetadata, added: Sequence[Snapshot]) -> list[Snapshot]:
    """The snapshots of the next state of the table."""
    snapshots = [*base.snapshots, *added]
    _remember(base, snapshots, {**snapshots_by_id(base), **{one.snapshot_id: one for one in added}})
    return snapshots


def _remember(of: TableMetadata, snapshots: Sequence[Snapshot], found: Mapping[int, Snapshot]) -> None:
    _KNOWN.pop(of.table_uuid.int, None)
    _KNOWN[of.table_uuid.int] = (snapshots, found)
    if len(_KNOWN) > _MOST_TABLES:
        _KNOWN.popitem(last=False)
