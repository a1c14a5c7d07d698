"""Earlier versions of a table's metadata: they show what expiry took out of the present one.

A table keeps a hundred earlier metadata files by default. They still have the snapshots that expired since: what these
committed, and who their parents were. Neither ever changes.
"""

from collections.abc import Callable, Iterator

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from lakesink_catalog.connect.catalog_failures import METADATA_UNREADABLE
from lakesink_catalog.read.past import FIRST_SEQUENCE, Past, PastCommit, commit_of
from lakesink_protocol.ledger import mark_of


class Versions:
    """The snapshots of one version of the metadata, and those of earlier versions that were read so far.

    Attributes:
        has_empty: True once a version without any snapshot was read: nothing is older.
    """

    def __init__(self, metadata: TableMetadata, io: FileIO) -> None:
        self.has_empty = False
        self._io = io
        self._earlier = [entry.metadata_file for entry in metadata.metadata_log]
        self._snapshots: dict[int, Snapshot] = {}
        self._parents: dict[int, int] = {}
        self._take(metadata)
        self._retained = frozenset(self._snapshots)

    def ids_under(self, snapshot_id: int | None) -> Iterator[int]:
        """The ids of a snapshot and its ancestors, newest first, as far as anything tells who they are."""
        passed: set[int] = set()
        while snapshot_id is not None and snapshot_id not in passed:
            yield snapshot_id
            passed.add(snapshot_id)
            snapshot_id = self._parents.get(snapshot_id)

    def commits_under(self, snapshot_id: int | None) -> Iterator[PastCommit]:
        """A commit and its ancestors, newest first, up to the first that is unknown."""
        for one in self.ids_under(snapshot_id):
            snapshot = self._snapshots.get(one)
            if snapshot is None:
                return
            summary, is_retained = snapshot.summary, one in self._retained
            yield commit_of(snapshot, summary, mark_of(summary), self._parents.get(one), is_retained=is_retained)

    def read_earlier(self) -> bool:
        """Read the next older version; False if there is none, or if its file was deleted or is damaged."""
        if not self._earlier:
            return False
        try:
            found = FromInputFile.table_metadata(self._io.new_input(self._earlier.pop()))
        except (FileNotFoundError, ValueError, *METADATA_UNREADABLE):
            self._earlier = []
            return False
        self._take(found)
        return True

    def _take(self, metadata: TableMetadata) -> None:
        self.has_empty = self.has_empty or not metadata.snapshots
        for snapshot in metadata.snapshots:
            self._snapshots.setdefault(snapshot.snapshot_id, snapshot)
            if snapshot.parent_snapshot_id is not None:
                self._parents.setdefault(snapshot.snapshot_id, snapshot.parent_snapshot_id)


def past_under(
    table: Table,
    name: str,
    snapshot_id: int | None,
    is_last: Callable[[PastCommit], bool] = lambda _: False,
    *,
    after: int | None = None,
) -> Past:
    """A commit and its ancestors, back to the first that `is_last`, also where only earlier metadata has them.

    All that are known if none is the last. The snapshot `after` need not be known: the past may begin with its child.
    """
    versions = Versions(table.metadata, table.io)

    def has_ended(commit: PastCommit) -> bool:
        return is_last(commit) or _is_first(commit, versions) or None is not after == commit.parent_snapshot_id

    commits = _up_to(is_last, versions.commits_under(snapshot_id))
    while snapshot_id is not None and not (commits and has_ended(commits[-1])) and versions.read_earlier():
        commits = _up_to(is_last, versions.commits_under(snapshot_id))
    complete = not commits or _is_first(commits[-1], versions)
    return Past(name, str(table.metadata.table_uuid), commits[::-1], complete)


def _up_to(is_last: Callable[[PastCommit], bool], commits: Iterator[PastCommit]) -> list[PastCommit]:
    """The first commits, the last one included."""
    found = []
    for commit in commits:
        found.append(commit)
        if is_last(commit):
            break
    return found


def _is_first(commit: PastCommit, versions: Versions) -> bool:
    """True if it is the first of its branch: PyIceberg's expiry takes the name of an expired parent away."""
    is_first = commit.sequence_number <= FIRST_SEQUENCE or versions.has_empty
    return commit.parent_snapshot_id is None and is_first
