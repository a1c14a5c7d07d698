"""Bugs of maintenance that one test sees: rows that come back, are lost or are there twice, and no proof of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.table import Table

from lakesink.sinks.iceberg.upkeep import choose, replacing
from lakesink.sinks.iceberg.upkeep.proof import Figures
from lakesink.sinks.iceberg.upkeep.replacing import Replacement
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.manifests.live import LiveFile
from proof.mutants.mutant import Patches


def carry_over_forgets_deletes(patches: Patches) -> None:
    """Rows that were deleted while their files were rewritten are live in the new ones."""
    patches.put(Replacement, "_carried", lambda *_: [])


def digest_not_compared(patches: Patches) -> None:
    """Number of rows, NULLs, minimum and maximum are, and a value in another row changes none of them."""
    patches.put(Figures, "_sum", lambda *_: None)


def file_replaced_twice(patches: Patches) -> None:
    """The group's files end that are still there, and the new files have the rows of all of them."""

    def there(self: Replacement) -> list[LiveFile]:
        paths = {file.path for file in self.files}
        return [file for file in self.live.data if file.path in paths]

    patches.put(Replacement, "_there", there)


def file_in_two_groups(patches: Patches) -> None:
    """Where a limit divides the files of a partition, the last file of a group is the first one of the next, too."""

    def within_limits(pool: Sequence[LiveFile], most_bytes: int) -> Iterator[tuple[LiveFile, ...]]:
        last: tuple[LiveFile, ...] = ()
        for files in real(pool, most_bytes):
            yield (*last, *files)
            last = files[-1:]

    real = patches.put(choose, "_within_limits", within_limits)


def group_ends_files_of_another(patches: Patches) -> None:
    """All files of its spec end, and only those of the group were rewritten."""

    def change(self: Replacement, table: Table, snapshot_id: int) -> Change:
        made: Change = real(self, table, snapshot_id)
        return replace(made, ended=tuple(one for one in self.live.data if one.spec_id == made.ended[0].spec_id))

    real = patches.put(Replacement, "_change", change)


def deletes_of_others_end(patches: Patches) -> None:
    """All delete files of the partition end, also those of files that stay."""

    def dangling(live: Any, ended: Any, _: Any) -> list[LiveFile]:
        places = {choose.place_of(one) for one in ended}
        return [one for one in live.deletes if choose.place_of(one) in places]

    patches.put(replacing, "_dangling", dangling)


BUGS: Mapping[tuple[str, str], Callable[[Patches], None]] = {
    (
        "U3: rows that were deleted during a compaction come back.",
        "test_maintenance.py::test_rows_that_are_deleted_between_the_rewrite_and_its_commit_stay_deleted",
    ): carry_over_forgets_deletes,
    (
        "0113: new files have other rows than those that they replace.",
        "test_maintenance.py::test_a_proof_that_fails_keeps_the_files",
    ): digest_not_compared,
    (
        "0113: rows are twice in the table.",
        "test_maintenance.py::test_two_maintenances_do_not_replace_a_file_twice_and_one_skips",
    ): file_replaced_twice,
    (
        "0113: the second of two groups with one file is lost in each run.",
        "test_maintenance.py::test_a_limit_divides_the_files_of_a_partition_into_groups_without_a_common_file",
    ): file_in_two_groups,
    (
        "0113: rows are lost.",
        "test_maintenance.py::test_a_look_says_what_a_run_then_does_and_writes_nothing",
    ): group_ends_files_of_another,
    (
        "0113: deleted rows of files that stay come back.",
        "test_maintenance.py::test_a_file_that_others_deletes_only_seem_to_concern_is_not_rewritten_again_and_again",
    ): deletes_of_others_end,
}
"""By what they break, and the test that sees it."""
