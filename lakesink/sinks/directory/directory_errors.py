"""Errors of the file sink: the texts of its refusals, and failures of its directory."""

from contextlib import AbstractContextManager

from lakesink.sinks.storage import failures_as
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import CatalogError, Reason
from lakesink_protocol.redact import describe, redact
from lakesink_protocol.refusals.texts import Words

TAKING_BACK = (
    "To take batches back on purpose, stop the stream and run lakesink rewind CHECKPOINT --to-batch N --directory DIR."
)

WORDS = (
    Words(
        Reason.TABLE_REPLACED,
        "The commits of sink {sink} in the directory are not those that this run read before.",
        "If the directory was emptied or replaced on purpose, use a new sink id and a new checkpoint. The stream"
        " then reads the source from its beginning; rows that are still in the directory are written a second time.",
    ),
    Words(
        Reason.LEDGER_DAMAGED,
        "The commits of sink {sink} cannot be trusted: {damage}.",
        "Restore the original files in its folder commits, one for each number from 0.\n"
        "Upgrade lakesink if a newer version wrote them.\n"
        f"{TAKING_BACK}",
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "The directory has none of the batches before batch {n} of sink {sink}.",
        "Check directory and sink id. If earlier batches were written elsewhere on purpose, choose below.\n"
        "Start with a new checkpoint, which reads the source from its beginning.",
    ),
    Words(
        Reason.BATCH_CHANGED,
        "Batch {changed} of sink {sink} was replayed with other data than the directory has: restore its checkpoint.",
        "Restore the checkpoint that belongs to the directory: then no row is lost or duplicated. The source or the"
        " checkpoint changed after the commit of batch {last}, which ended at {end}.\n"
        f"{TAKING_BACK}",
    ),
    Words(
        Reason.REWOUND,
        "Batch {n} of sink {sink} is older than batch {last}, and {why_rewound}.",
        "Restore the newest checkpoint: this one is older than the directory. The sink ended at {end}, and stays at"
        " batch {last}, even if an older batch is accepted.",
    ),
    Words(
        Reason.GAP,
        "Batch {n} of sink {sink} does not follow the directory's batch {last}: batches are missing. Rewind to {last}.",
        "Stop the stream, run `lakesink rewind <checkpoint> --to-batch {last}`, and start it again: batches {next}"
        " to {n} are replayed. The checkpoint is newer than the directory, or two queries share this sink id.",
    ),
)


def directory_failures(directory: str, *, data: DataState | str = DataState.UNCHANGED) -> AbstractContextManager[None]:
    """Convert a storage's exceptions inside the block to a `CatalogError` about the directory."""

    def error_of(error: Exception) -> CatalogError:
        match error:
            case NotADirectoryError() | FileExistsError():
                code = "DIRECTORY_INVALID"
            case PermissionError():
                code = "DIRECTORY_UNWRITABLE"
            case _:
                code = "DIRECTORY_FAILED"
        return CatalogError.of(code, data=data, error=describe(error)[:140], directory=redact(directory))

    return failures_as(error_of)
