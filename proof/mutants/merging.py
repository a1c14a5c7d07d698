"""Bugs of manifest merging: what deletes go by is not what it was."""

from collections.abc import Mapping
from typing import Any

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from lakesink_catalog.manifests import entries
from lakesink_catalog.manifests.copying import ManifestCopy
from lakesink_catalog.manifests.entries import FILE_SEQUENCE_NUMBER, SEQUENCE_NUMBER, Inherited
from proof.mutants.mutant import Focus, Patches, mutant

ADDED_AGAIN = Focus(actions=("foreign append",) * 4 + ("add again",) + ("foreign append",) * 2)


@mutant(
    "P11: a merged entry has the sequence number of its file in the place of that of its data.",
    seen_in="lakesink's own merge, by hand: no test noticed",
    focus=ADDED_AGAIN,
    scenario="files are added again before a merge",
)
def data_as_new_as_its_file(patches: Patches) -> None:
    """Deletes that are older than the file and younger than its data apply no more."""

    def existing(head: Mapping[int, Any], inherited: Inherited) -> tuple[Mapping[int, Any], int]:
        found, sequence_number = real(head, inherited)
        return {**found, SEQUENCE_NUMBER: found[FILE_SEQUENCE_NUMBER]}, sequence_number

    real = patches.put(entries, "_as_existing", existing)


@mutant(
    "P11: the list states the greatest sequence number of a merged manifest as the least.",
    seen_in="lakesink's own merge, by hand: no test noticed; Java drops deletes that are older than the least",
    focus=ADDED_AGAIN,
    scenario="files are added again before a merge",
)
def least_sequence_number_is_the_greatest(patches: Patches) -> None:
    """Max in the place of min."""

    def write(copy: ManifestCopy, table: Table, snapshot_id: int) -> ManifestFile | None:
        copy._sequence_numbers = set(sorted(copy._sequence_numbers)[-1:])  # noqa: SLF001 - the bug is inside
        written: ManifestFile | None = real(copy, table, snapshot_id)
        return written

    real = patches.put(ManifestCopy, "write", write)


MUTANTS = (data_as_new_as_its_file, least_sequence_number_is_the_greatest)
