"""What became of a prepared batch, in the words of the protocol, and which errors end its attempts. Pure."""

from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_protocol.errors import CommitUnresolved, LakesinkError
from lakesink_protocol.fence import Unseen, is_of_the_program
from lakesink_protocol.identity import Batch, SinkKey, SinkKind
from lakesink_protocol.outcome import Committed
from lakesink_protocol.row_changes import ChangeCounts

_FAILED = "LAKESINK_CATALOG_FAILED"
TRANSIENT_CODES = frozenset(
    f"LAKESINK_{code}"
    for code in (
        "CATALOG_UNREACHABLE",
        "CATALOG_REJECTED",
        "CATALOG_FAILED",  # any exception of another library, also an error in its code
        "WAREHOUSE_UNWRITABLE",
        "STORAGE_REJECTED",
        "STORAGE_UNREACHABLE",
    )
)


def unresolved(key: SinkKey, batch: Batch, unseen: Unseen) -> CommitUnresolved:
    """The error for a batch that the table does not show."""
    return CommitUnresolved.of(
        "COMMIT_UNRESOLVED.version" if key.kind is SinkKind.TXN else "COMMIT_UNRESOLVED",
        batch_id=batch.batch_id,
        sink=key.name,
        attempts=unseen.attempts,
        first=unseen.action or "Make the catalog reachable",
        trouble=unseen.trouble.rstrip("."),
    )


def committed(
    prepared: PreparedBatch, attempt: int, changes: ChangeCounts | None = None, *, evolves: bool = True
) -> Committed:
    """The outcome of a batch whose own snapshot is in the table."""
    return Committed(
        snapshot_id=prepared.snapshot_id,
        rows=prepared.rows,
        files=len(prepared.files),
        bytes=sum(size for _, size in prepared.files),
        recovered=prepared.recovered,
        accepted=prepared.accepted or None,
        attempts=attempt,
        quality=prepared.quality,
        schema_change=prepared.schema_change.in_words if prepared.schema_change and evolves else "",
        changes=changes,
    )


def is_final(error: Exception) -> bool:
    """True for lakesink's own errors about a table, its configuration or rows; those of a service can be transient."""
    if not isinstance(error, LakesinkError):
        return False
    return error.code not in TRANSIENT_CODES or (error.code == _FAILED and is_of_the_program(error.__cause__))
