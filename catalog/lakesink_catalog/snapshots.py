"""The snapshots of a table by their ids, so that a commit does not read thousands of them to find one."""

from collections import deque
from collections.abc import Mapping, Sequence

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

_KNOWN: deque[tuple[Sequence[Snapshot], Mapping[int, Snapshot]]] = deque(maxlen=8)
"""Of the newest states of tables. Nobody changes a list of snapshots: each commit makes a longer one."""


def snapshots_by_id(metadata: TableMetadata) -> Mapping[int, Snapshot]:
    """All snapshots by id; they are read once for each state of a table, see `with_added`."""
    snapshots = metadata.snapshots
    for of, found in reversed(tuple(_KNOWN)):
        if of is snapshots:
            return found
    return _remember(snapshots, {one.snapshot_id: one for one in snapshots})


def with_added(base: TableMetadata, added: Sequence[Snapshot]) -> list[Snapshot]:
    """The snapshots of the state after this one. Of them, only the added ones will be read."""
    snapshots = [*base.snapshots, *added]
    _remember(snapshots, {**snapshots_by_id(base), **{one.snapshot_id: one for one in added}})
    return snapshots


def _remember(snapshots: Sequence[Snapshot], found: Mapping[int, Snapshot]) -> Mapping[int, Snapshot]:
    _KNOWN.append((snapshots, found))
    return found
