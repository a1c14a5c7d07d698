"""Replaces one group of files by new ones with the same rows, in a snapshot of its own.

The rewrite takes no turn at the table. The commit looks at the files again, on the head that it is made for: rows that
were deleted meanwhile are deleted in the new files too, and a group whose files are not all there any more is lost.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyroaring import BitMap64

from lakesink.keys.deleted_rows import Deleted, KnownDeletes, read_deleted
from lakesink.keys.live_rows import applicable
from lakesink.parquet.deletes import DeletedRows, write_deletes
from lakesink.parquet.positions import below
from lakesink.upkeep.choose import place_of, why_left
from lakesink.upkeep.columns import Unsuitable
from lakesink.upkeep.origins import live_numbers
from lakesink.upkeep.rewrite import Rewritten, Work
from lakesink_catalog.commit.change_commit import Applied, ChangeCommit
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_protocol import events
from lakesink_protocol.fence import Unseen
from lakesink_protocol.ledger import MAINTENANCE
from lakesink_protocol.redact import describe
from lakesink_protocol.retry import RetryPolicy

LOST, UNKNOWN = "lost", "unknown"
_TRIES = 3
"""On another head each; the turn at the table makes more unlikely."""


class Lost(Unsuitable):
    """Another writer was quicker; the group's files stay as that writer left them."""

    def __init__(self, why: str = "another writer was quicker") -> None:
        super().__init__(f"{LOST}: {why}")


def opener(table: Table) -> Callable[[str], Any]:
    """Opens a location of the table for reading."""
    return lambda location: table.io.new_input(location).open()


def deleted_in(table: Table, files: Sequence[LiveFile], live: LiveFiles, known: KnownDeletes) -> Deleted:
    """The deleted positions of these files; raises WriteError for an unreadable delete file."""
    wanted = applicable(files, live.deletes)
    for delete in (one for one in live.deletes if one.path in {old.path for old in wanted}):
        delete.check_parquet()
    return read_deleted(wanted, opener(table), known)


@dataclass(slots=True)
class Replacement:
    """The commit of one rewritten group.

    Attributes:
        of_head: The live files of the branch's head in a loaded table.
        files: Those that the new ones replace, as they were when they were read.
        facts: More for the summary's journal.
        live: The files of the head on which the last attempt was made.
        carried: Rows that were deleted meanwhile.
    """

    load: Callable[[], Table]
    branch: str
    effects: Effects
    of_head: Callable[[Table], LiveFiles]
    known: KnownDeletes
    work: Work
    rewritten: Rewritten
    files: Sequence[LiveFile]
    says: Mapping[str, str]
    live: LiveFiles = field(default_factory=lambda: LiveFiles((), ()))
    carried: int = 0

    def commit(self, table: Table) -> Applied:
        """Commit on the head as it then is.

        Raises:
            Unsuitable: Another writer was quicker, or no answer says whether the group was replaced.
        """
        why = ""
        for _ in range(_TRIES):
            try:
                # Without retries, an error before the request and a conflict are raised.
                commit = ChangeCommit(self.load, "maintenance", RetryPolicy(num_retries=0), self.effects)
                done = commit.run(table, self._change)
            except CommitFailedException as error:
                why = describe(error)
                continue
            if isinstance(done, Unseen):
                raise Unsuitable(f"{UNKNOWN}: {done.trouble}")
            return done
        raise Lost(f"no commit succeeded: {why}")

    def _change(self, table: Table, snapshot_id: int) -> Change:
        head, plan = table.metadata.refs.get(self.branch), self.work.plan
        if (table.schema().schema_id, table.spec().spec_id) != (plan.schema_id, plan.spec_id):
            raise Lost("the schema or the partition spec changed")
        self.live = self.of_head(table)
        files = self._there()
        deleted = deleted_in(table, files, self.live, self.known)
        deletes = self._carried(table, deleted)
        self.carried = sum(file.record_count for file in deletes)
        self.effects.emit(events.CompactionDue(plan.batch_id))
        assert head is not None, "it has the group's files"
        return Change(
            self.branch,
            head.snapshot_id,
            snapshot_id,
            says={MAINTENANCE: json.dumps(self._journal, separators=(",", ":")), **self.says},
            added=self.rewritten.files,
            ended=tuple(files),
            deletes=tuple(deletes),
            replaced=tuple(_dangling(self.live, files, deleted)),
        )

    @property
    def _journal(self) -> dict[str, int | str]:
        new = self.rewritten.files
        return {
            "files": len(self.files),
            "into": len(new),
            "rows": sum(file.record_count for file in new),
            "bytes_before": sum(file.file_size_bytes for file in self.files),
            "bytes_after": sum(file.file_size_bytes for file in new),
            "dropped": sum(len(file.deleted) for file in self.rewritten.read),
            "carried": self.carried,
            "verified": str(self.work.verify),
        }

    def _there(self) -> list[LiveFile]:
        """The group's files as they are live on the head."""
        times = Counter(file.path for file in self.live.data)
        now = {(file.path, file.sequence_number): file for file in self.live.data}
        found = [now.get((file.path, file.sequence_number)) for file in self.files]
        there = [file for file in found if file is not None and times[file.path] == 1]
        if len(there) < len(self.files):
            raise Lost
        if any(why_left(file, self.live.equality) for file in there):
            raise Lost("an equality delete came")
        return there

    def _carried(self, table: Table, deleted: Deleted) -> list[Any]:
        """New delete files for rows that were deleted since the group was read."""
        read = self.rewritten.read
        now = {one.path: below(deleted.positions.get(one.path, BitMap64()), one.rows) for one in read}
        sizes = [(one.path, one.rows) for one in read]
        numbers = live_numbers(sizes, {one.path: one.deleted for one in read}, now)
        if numbers is None:
            raise Lost("deleted rows came back")
        found = self.rewritten.origins.find(self.rewritten.files, numbers)
        rows = [DeletedRows(file.path, file.spec_id, file.partition, places) for file, places in found]
        folder, stem = self.work.plan.data_location, self.work.plan.file_stem
        return write_deletes(rows, folder, stem, lambda location: table.io.new_output(location).create())


def _dangling(live: LiveFiles, ended: Collection[LiveFile], deleted: Deleted) -> list[LiveFile]:
    """Delete files that delete no row of any file that stays; of partitions with ended files, the others wait."""
    paths, places = {file.path for file in ended}, set(map(place_of, ended))
    rest = [file for file in live.data if file.path not in paths and place_of(file) in places]
    there = [one for one in live.deletes if place_of(one) in places]
    needed = {one.path for one in applicable(rest, there)}
    alone = {path for file in ended for path in deleted.alone.get(file.path, ())}
    return [one for one in there if one.path not in needed and (not one.referenced_data_file or one.path in alone)]
