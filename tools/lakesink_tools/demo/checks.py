"""Compares expected and found facts; runs nothing itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakesink_tools.demo.evidence import Comparison, PreparedRecord, TableFacts


@dataclass(frozen=True, slots=True)
class Check:
    """One claim and its result."""

    claim: str  # what is compared
    expected: int | str  # from the source or the killed driver: a count, or a name
    found: int | str  # from the table

    @property
    def holds(self) -> bool:
        """True if the table agrees with the claim."""
        return self.expected == self.found


@dataclass(frozen=True, slots=True)
class DiedBeforeCommit:
    """A driver died after it prepared a batch: the next one must commit exactly this batch, and write nothing."""

    batch_id: int
    record: PreparedRecord
    then: TableFacts  # the table after the crash

    def checks(self, end: TableFacts) -> Sequence[Check]:
        """What must be true of the table at the end."""
        name, files = f"batch {self.batch_id}", self.record.files
        committed = end.files.get(self.record.snapshot_id, frozenset())
        return (
            Check(f"{name}: snapshots after the crash of its driver", 0, len(self.then.snapshots_of(self.batch_id))),
            Check(f"{name}: its snapshot, as prepared", str(self.record.snapshot_id), str(only(end, self.batch_id))),
            Check(f"{name}: its files, by path, as prepared", len(files), len(files & committed)),
            Check(f"{name}: files that were not prepared", 0, len(committed - files)),
            Check(f"{name}: files written again", 0, len(end.orphans - self.then.on_disk)),
        )


@dataclass(frozen=True, slots=True)
class DiedAfterCommit:
    """A driver died after a commit, before Spark recorded it: the next one must find the batch, and write nothing."""

    batch_id: int
    then: TableFacts  # the table after the crash

    def checks(self, end: TableFacts) -> Sequence[Check]:
        """What must be true of the table at the end."""
        name, snapshot_id = f"batch {self.batch_id}", only(self.then, self.batch_id)
        before, after = self.then.files.get(snapshot_id, frozenset()), end.files.get(snapshot_id, frozenset())
        return (
            Check(f"{name}: its snapshot, as before the replay", str(snapshot_id), str(only(end, self.batch_id))),
            Check(f"{name}: its files, by path, as before the replay", len(before), len(before & after)),
            Check(f"{name}: files written again", 0, len(end.orphans - self.then.on_disk)),
        )


def source_checks(compared: Comparison) -> Sequence[Check]:
    """Checks that the table contains the rows of the source."""
    source, table = compared.source, compared.table
    return (
        Check("rows", source.rows, table.rows),
        Check("sum(distance)", source.distance, table.distance),
        *(
            Check(f"NULLs in {name}", source.nulls.get(name, 0), table.nulls.get(name, 0))
            for name in {**source.nulls, **table.nulls}
        ),
        Check("rows of the source that the table lacks", 0, compared.missing),
        Check("rows of the table that the source lacks", 0, compared.surplus),
    )


def only(seen: TableFacts, batch_id: int) -> int:
    """The one snapshot of a batch; 0, which is no snapshot's id, if there is none or more than one."""
    found = seen.snapshots_of(batch_id)
    return found[0] if len(found) == 1 else 0
