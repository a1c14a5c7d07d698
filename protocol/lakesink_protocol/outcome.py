"""What happened to a batch: expected results as values. A refusal or an unresolved commit is raised instead."""

from dataclasses import dataclass, field

from lakesink_protocol.decoded import Decoded


@dataclass(frozen=True, slots=True)
class Committed:
    """The batch is in the table, by a commit of this run: with this run's rows, unless it is `recovered`.

    Attributes:
        snapshot_id: The batch's own snapshot, or whatever number the target gives to its commits.
        rows: Rows added.
        files: Data files added; 0 where the target has none.
        bytes: Their size in bytes.
        recovered: True if an earlier run prepared the batch: it holds what the earlier code wrote. Never so for
            `append`, whose call commits its own rows or none.
        accepted: The overruled refusal as the user spelled it, or None.
        attempts: Commit attempts made, at least 1.
        decoded: Counts of the documents that the rows came from.
    """

    snapshot_id: int
    rows: int
    files: int = 0
    bytes: int = 0
    recovered: bool = False
    accepted: str | None = None
    attempts: int = 1
    decoded: Decoded = field(default_factory=Decoded)


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The batch was in the table before, with an earlier run's rows: nothing of this run was committed.

    Attributes:
        snapshot_id: The batch's snapshot if the table still shows it, else None.
    """

    snapshot_id: int | None


Outcome = Committed | AlreadyCommitted
