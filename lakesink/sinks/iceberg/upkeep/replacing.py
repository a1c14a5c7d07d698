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
from lakesink.keys.footers import opener
from lakesink.keys.live_rows import applicable
from lakesink.keys.work import from_bytes
from lakesink.parquet.deletes import DeletedRows, write_deletes
from lakesink.parquet.positions import below
from lakesink.sinks.iceberg.checked_receipts import count_votes
from lakesink.sinks.iceberg.upkeep.choose import place_of, why_left
from lakesink.sinks.iceberg.upkeep.columns import Unsuitable
from lakesink.sinks.iceberg.upkeep.origins import Origins, live_numbers
from lakesink.sinks.iceberg.upkeep.rewrite import FILES, FIRST, RECEIPT, WHY, Rewritten, Work
from lakesink_catalog.commit.change_commit import Applied, ChangeCommit
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_protocol import events
from lakesink_protocol.errors import WriteError
from lakesink_protocol.fence import Unseen
from lakesink_protocol.ledger import MAINTENANCE
from lakesink_protocol.redact import describe
from lakesink_protocol.votes import receipt_rejected

_TRIES = 3
"""On another head each; the turn at the table makes more unlikely."""


class Lost(Unsuitable):
    """Another writer was quicker; the group's files stay as that writer left them."""

    def __init__(self, why: str = "another writer was quicker") -> None:
        super().__init__(f"lost: {why}")


def deleted_in(table: Table, files: Sequence[LiveFile], live: LiveFiles, known: KnownDeletes) -> Deleted:
    """The deleted positions of these files; raises WriteError for an unreadable delete file."""
    wanted, by_path = applicable(files, live.deletes), {one.path: one for one in live.deletes}
    for path in {one.path for one in wanted}:
        by_path[path].check_parquet()
    return read_deleted(wanted, opener(table), known)


def answered(answer: bytes, table: Table, work: Work) -> Rewritten:
    """What an executor has written for a group.

    Raises:
        Unsuitable: The executor says why the group stays, or its receipt is not one of this rewrite.
    """
    found = from_bytes(answer)
    about = found.schema.metadata
    try:
        if about[FIRST].decode() != work.files[0].path:  # the groups of a job often have as many rows as each other
            raise receipt_rejected("it is about another group of files")
        if RECEIPT not in about:
            raise Unsuitable(about[WHY].decode(), json.loads(about[FILES]))
        files = count_votes([about[RECEIPT]], table, work.plan.file_stem, work.plan.batch_id).files
        if files and work.plan.sort_order and not len(found):
            raise receipt_rejected("it does not say where the rows come from")
    except WriteError as error:  # its advice is for a batch
        of_group = WriteError.of("RECEIPT_REJECTED.of_group", what=error.what)
        raise Unsuitable(f"failed: {' '.join(str(of_group).split())}") from None
    return Rewritten(files, Origins.of(files, found.column(0)))


@dataclass(slots=True)
class Replacement:
    """The replacement of one group.

    Attributes:
        commit: Without retries: an error before the request and a conflict are raised.
        of_head: The live files of the branch's head in a loaded table.
        files: Those that new ones replace, as they were when they were read.
        live: The files of the head on which the last attempt was made.
        carried: Rows that were deleted meanwhile.
    """

    commit: ChangeCommit
    branch: str
    of_head: Callable[[Table], LiveFiles]
    known: KnownDeletes
    says: Mapping[str, str]
    files: Sequence[LiveFile]
    work: Work
    new: Rewritten
    live: LiveFiles = field(default_factory=lambda: LiveFiles((), ()))
    carried: int = 0

    def run(self, table: Table) -> Applied:
        """Commit on the head as it then is.

        Raises:
            Unsuitable: Another writer was quicker, or no answer says whether the group was replaced.
        """
        why = ""
        for _ in range(_TRIES):
            try:
                done = self.commit.run(table, self._change)
            except CommitFailedException as error:
                why = describe(error)
                continue
            if isinstance(done, Unseen):
                raise Unsuitable(f"unknown: {done.trouble}")
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
        self.commit.effects.emit(events.CompactionDue(plan.batch_id))
        assert head is not None, "it has the group's files"
        journal = {**self.counts, "verified": str(self.work.verify)}
        return Change(
            self.branch,
            head.snapshot_id,
            snapshot_id,
            says={MAINTENANCE: json.dumps(journal, separators=(",", ":")), **self.says},
            added=tuple(self.new.files),
            ended=tuple(files),
            deletes=tuple(deletes),
            replaced=tuple(_dangling(self.live, files, deleted)),
        )

    @property
    def counts(self) -> dict[str, int]:
        """By their names in `GroupDone`, and in the summary."""
        return {
            "files": len(self.files),
            "into": len(self.new.files),
            "rows": sum(file.record_count for file in self.new.files),
            "bytes_before": sum(file.file_size_bytes for file in self.files),
            "bytes_after": sum(file.file_size_bytes for file in self.new.files),
            "dropped": sum(len(file.deleted) for file in self.work.files),
            "carried": self.carried,
        }

    def _there(self) -> list[LiveFile]:
        """The group's files as they are live on the head."""
        times = Counter(file.path for file in self.live.data)
        now = {(file.path, file.sequence_number): file for file in self.live.data if times[file.path] == 1}
        there = [one for file in self.files if (one := now.get((file.path, file.sequence_number))) is not None]
        if len(there) < len(self.files):
            raise Lost
        if any(why_left(file, self.live.equality, 1) for file in there):
            raise Lost("an equality delete came")
        return there

    def _carried(self, table: Table, deleted: Deleted) -> list[Any]:
        """New delete files for rows that were deleted since the group was read."""
        now, none = deleted.positions, BitMap64()
        numbers = live_numbers(
            (one.rows, one.deleted, below(now.get(one.path, none), one.rows)) for one in self.work.files
        )
        if numbers is None:
            raise Lost("deleted rows came back")
        found = self.new.origins.find(self.new.files, numbers)
        rows = [DeletedRows(file.path, file.spec_id, file.partition, places) for file, places in found]
        plan = self.work.plan
        return write_deletes(
            rows, plan.data_location, plan.file_stem, lambda location: table.io.new_output(location).create()
        )


def _dangling(live: LiveFiles, ended: Collection[LiveFile], deleted: Deleted) -> list[LiveFile]:
    """Delete files that delete no row of any file that stays; of partitions with ended files, the others wait."""
    paths, places = {file.path for file in ended}, set(map(place_of, ended))
    rest = [file for file in live.data if file.path not in paths and place_of(file) in places]
    there = [one for one in live.deletes if place_of(one) in places]
    needed = {one.path for one in applicable(rest, there)}
    alone = {path for file in ended for path in deleted.alone.get(file.path, ())}
    return [one for one in there if one.path not in needed and (not one.referenced_data_file or one.path in alone)]
