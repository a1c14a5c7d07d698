"""Bugs of maintenance: rows that come back, and rows that are there twice."""

from dataclasses import replace
from functools import partial

from pyiceberg.table import Table

from lakesink.keys.deleted_rows import Deleted
from lakesink.sinks.iceberg import stream_upkeep
from lakesink.sinks.iceberg.upkeep import replacing, seen
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink.sinks.iceberg.upkeep.replacing import Replacement
from lakesink_catalog.commit.table_change import Change
from proof.mutants.locating import IN_BATCHES
from proof.mutants.mutant import Patches, mutant

_SOON = partial(Policy, min_input_files=2)
"""The streams of these scenarios are short."""


@mutant(
    "A compaction rewrites the rows of small files, and not their deletes, whose files go.",
    seen_in="measured: 3,040 deleted rows came back with a compaction that did not see them",
    focus=IN_BATCHES,
    scenario="rows are replaced and deleted in each batch",
)
def deleted_rows_rewritten(patches: Patches) -> None:
    """They are live again."""
    patches.put(stream_upkeep, "Policy", _SOON)
    for module in (seen, replacing):
        patches.put(module, "deleted_in", lambda *_: Deleted())


@mutant(
    "A compaction adds the file with the rows of small files, and these stay.",
    seen_in="compactions that are committed as appends",
    focus=IN_BATCHES,
    scenario="rows are replaced and deleted in each batch",
)
def compacted_files_left_live(patches: Patches) -> None:
    """Each of their rows is there twice."""

    def change(self: Replacement, table: Table, snapshot_id: int) -> Change:
        made: Change = real(self, table, snapshot_id)
        return replace(made, ended=())

    patches.put(stream_upkeep, "Policy", _SOON)
    real = patches.put(Replacement, "_change", change)


MUTANTS = (deleted_rows_rewritten, compacted_files_left_live)
