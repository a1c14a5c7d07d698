"""The errors of the file sink: refusals in its own words, and failures of its directory."""

from collections.abc import Iterator
from contextlib import contextmanager

from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import BatchRefused, CatalogError, LakesinkError, Reason
from lakesink_protocol.redact import describe, redact
from lakesink_protocol.refusal import refusal
from lakesink_protocol.refusal_words import Words
from lakesink_protocol.situation import Situation

TAKING_BACK = (
    "To take batches back on purpose, stop the stream and run lakesink rewind CHECKPOINT --to-batch N --directory DIR."
)

_WORDS = (
    Words(
        Reason.TABLE_REPLACED,
        "The directory holds other commits of sink {sink} than those that this run has seen.",
        "If it was emptied or replaced on purpose, take a new sink id and a new checkpoint: they read the source"
        " from its beginning, and bring rows twice that are still in the directory.",
    ),
    Words(
        Reason.LEDGER_DAMAGED,
        "The commits of sink {sink} cannot be trusted: {damage}.",
        "Put the files of its folder commits back as they were, one for each number from 0; update lakesink if a"
        f" newer version wrote them. {TAKING_BACK}",
    ),
    Words(
        Reason.UNKNOWN_HISTORY,
        "Batch {n} of sink {sink} comes to a directory that knows none of the batches before it.",
        "Check directory and sink id. If earlier batches went elsewhere on purpose, choose below, or start a new"
        " checkpoint, which reads the source from its beginning.",
    ),
    Words(
        Reason.BATCH_CHANGED,
        "Batch {changed} of sink {sink} came back with other data than the directory holds.",
        "The source or the checkpoint changed since batch {last} was committed, which ended at {end}. Restore the"
        " checkpoint that belongs to the directory: then no row is lost and none comes twice."
        f" {TAKING_BACK}",
    ),
    Words(
        Reason.REWOUND,
        "Batch {n} of sink {sink} is older than batch {last}, and {why_rewound}.",
        "The checkpoint is older than the directory. Restore the newest one; the sink ended at {end}. The sink"
        " stays at batch {last} whatever is accepted.",
    ),
    Words(
        Reason.GAP,
        "Batch {n} of sink {sink} does not follow the directory's batch {last}: batches are missing.",
        "The checkpoint is newer than the directory, or two queries share this sink id. Stop the stream, run"
        " `lakesink rewind <checkpoint> --to-batch {last}`, and start it again: batches {next} to {n} are replayed.",
    ),
)


def refused(reason: Reason, situation: Situation, *, overruled: str = "") -> BatchRefused:
    """The error for a refused batch, see `refusal`."""
    return refusal(reason, situation, _WORDS, overruled=overruled)


@contextmanager
def directory_failures(directory: str, *, data: DataState | str = DataState.UNCHANGED) -> Iterator[None]:
    """Convert a storage's exceptions inside the block to a `CatalogError` about the directory."""
    try:
        yield
    except LakesinkError:
        raise
    except Exception as error:  # clients of object stores have their own exceptions
        what = f"The directory cannot be used: {describe(error)[:140]}"
        match error:
            case NotADirectoryError() | FileExistsError():
                code, what = "DIRECTORY_INVALID", "The directory is a file, or lies in one."
                action = "Give a directory, or a name that is not taken"
            case PermissionError():
                code, action = "DIRECTORY_UNWRITABLE", "Let this user read and write it, or correct its credentials"
            case _:
                code = "DIRECTORY_FAILED"
                action = "Check that it can be reached, and its free space, then start again"
        raise CatalogError(code, what, data=data, action=f"{action}: {redact(directory)!r}.") from error
