"""The expected outcomes of a batch, as values. A refusal or an unresolved commit is raised instead."""

from dataclasses import dataclass, field

from lakesink_protocol.quality import Quality
from lakesink_protocol.row_changes import ChangeCounts


@dataclass(frozen=True, slots=True)
class Committed:
    """This run committed the batch: with this run's rows, unless it is `recovered`.

    Attributes:
        snapshot_id: The batch's own snapshot, or the target's own number of the commit.
        files: Data files added; 0 where the target has none.
        bytes: Size of the data files in bytes.
        recovered: True if an earlier run prepared the batch; its rows come from the code of that run. Always False for
            `append`, which commits the rows of its own call or none.
        accepted: The accept as the user wrote it, or None.
        attempts: Commit attempts made, at least 1.
        quality: What decoding and expectations found in the rows.
        schema_change: The schema change that the batch brought, in words; empty if none.
        changes: What became of the changes of a batch that replaces or deletes rows by key; None for any other, or if
            the table no longer tells it.
    """

    snapshot_id: int
    rows: int
    files: int = 0
    bytes: int = 0
    recovered: bool = False
    accepted: str | None = None
    attempts: int = 1
    quality: Quality = field(default_factory=Quality)
    schema_change: str = ""
    changes: ChangeCounts | None = None


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The batch was already in the table, with an earlier run's rows: this run committed nothing.

    Attributes:
        snapshot_id: The batch's snapshot if the table still shows it, else None.
    """

    snapshot_id: int | None


Outcome = Committed | AlreadyCommitted


def word_of(outcome: Outcome) -> str:
    """What became of a batch, in the log and in metrics."""
    match outcome:
        case AlreadyCommitted():
            return "already-committed"
        case Committed(recovered=True):
            return "recovered"
        case Committed(rows=0, changes=None):
            return "empty"
        case Committed():
            return "committed"
