"""Bugs of compactions: rows that come back, and rows that are there twice."""

from dataclasses import replace

from pyiceberg.table import Table

from lakesink.compact import choose
from lakesink.keys.deleted_rows import Deleted
from lakesink.sinks.iceberg import compaction
from lakesink.sinks.iceberg.compaction import Compaction
from lakesink_catalog.commit.table_change import Change
from proof.mutants.locating import IN_BATCHES
from proof.mutants.mutant import Patches, mutant

_SOON = 2
"""Files that are enough: the streams of these scenarios are short."""


@mutant(
    "A compaction rewrites the rows of small files, and not their deletes, whose files go.",
    seen_in="measured: 3,040 deleted rows came back with a compaction that did not see them",
    focus=IN_BATCHES,
    scenario="rows are replaced and deleted in each batch",
)
def deleted_rows_rewritten(patches: Patches) -> None:
    """They are live again."""
    patches.put(choose, "ENOUGH_FILES", _SOON)
    patches.put(compaction, "read_deleted", lambda *_: Deleted())


@mutant(
    "A compaction adds the file with the rows of small files, and these stay.",
    seen_in="compactions that are committed as appends",
    focus=IN_BATCHES,
    scenario="rows are replaced and deleted in each batch",
)
def compacted_files_left_live(patches: Patches) -> None:
    """Each of their rows is there twice."""

    def change(self: Compaction, table: Table, snapshot_id: int) -> Change | None:
        made: Change | None = real(self, table, snapshot_id)
        return made and replace(made, ended=())

    patches.put(choose, "ENOUGH_FILES", _SOON)
    real = patches.put(Compaction, "_change", change)


MUTANTS = (deleted_rows_rewritten, compacted_files_left_live)
