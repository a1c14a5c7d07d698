"""The snapshots of a table by their ids, so that a commit does not read thousands of them to find one."""

import operator
from collections import deque
from collections.abc import Mapping, Sequence

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

_KNOWN: deque[tuple[Sequence[Snapshot], Mapping[int, Snapshot]]] = deque(maxlen=8)
"""Of the newest states of tables. Nobody changes a list of snapshots: each commit makes a longer one."""


def snapshots_by_id(metadata: TableMetadata) -> Mapping[int, Snapshot]:
    """All snapshots by id; of a state that follows a known one, only new snapshots are read."""
    snapshots, known = metadata.snapshots, tuple(reversed(_KNOWN))
    for of, found in known:
        if of is snapshots:
            return found
    before, found = next((one for one in known if begins_with(snapshots, one[0])), ((), {}))
    found = {**found, **{one.snapshot_id: one for one in snapshots[len(before) :]}}
    _KNOWN.append((snapshots, found))
    return found


def begins_with(elements: Sequence[object], known: Sequence[object]) -> bool:
    """True if the known ones are the first elements, as the same objects."""
    return len(known) <= len(elements) and all(map(operator.is_, known, elements))
