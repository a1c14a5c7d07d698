"""The errors of the file sink: refusals in its own words, and failures of its directory."""

from collections.abc import Iterator
from contextlib import contextmanager

from lakesink.sinks.directory.layout import FOLDER, Layout
from lakesink.sinks.directory.marker import MarkerDamaged
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import BatchRefused, CatalogError, LakesinkError, Reason, SettingsError
from lakesink_protocol.redact import describe, redact
from lakesink_protocol.refusal import refusal
from lakesink_protocol.refusal_words import Words
from lakesink_protocol.situation import Situation

TAKING_BACK = (
    "To take batches back on purpose, stop the stream and run lakesink rewind CHECKPOINT --to-batch N --directory DIR."
)

_WORDS: Words = {
    Reason.TABLE_REPLACED: (
        "The directory holds other commits of sink {sink} than those that this run has seen.",
        (
            "If it was emptied or replaced on purpose, take a new sink id and a new checkpoint: they read the source"
            " from its beginning, and bring rows twice that are still in the directory."
        ),
    ),
    Reason.LEDGER_DAMAGED: (
        "The commits of sink {sink} cannot be trusted: {damage}.",
        (
            "Put the files of its folder commits back as they were, one for each number from 0; update lakesink if a"
            f" newer version wrote them. {TAKING_BACK}"
        ),
    ),
    Reason.UNKNOWN_HISTORY: (
        "Batch {n} of sink {sink} comes to a directory that knows none of the batches before it.",
        (
            "Check directory and sink id. If earlier batches went elsewhere on purpose, choose below, or start a new"
            " checkpoint, which reads the source from its beginning."
        ),
    ),
    Reason.BATCH_CHANGED: (
        "Batch {changed} of sink {sink} came back with other data than the directory holds.",
        (
            "The source or the checkpoint changed since batch {last} was committed, which ended at {end}. Restore the"
            " checkpoint that belongs to the directory: then no row is lost and none comes twice."
            f" {TAKING_BACK}"
        ),
    ),
    Reason.REWOUND: (
        "Batch {n} of sink {sink} is older than batch {last}, and {why_rewound}.",
        (
            "The checkpoint is older than the directory. Restore the newest one; the sink ended at {end}. The sink"
            " stays at batch {last} whatever is accepted."
        ),
    ),
    Reason.GAP: (
        "Batch {n} of sink {sink} does not follow the directory's batch {last}: batches are missing.",
        (
            "The checkpoint is newer than the directory, or two queries share this sink id. Stop the stream, run"
            " `lakesink rewind <checkpoint> --to-batch {last}`, and start it again: batches {next} to {n} are replayed."
        ),
    ),
}


def refused(reason: Reason, situation: Situation, *, overruled: str = "") -> BatchRefused:
    """The error for a refused batch, see `refusal`."""
    return refusal(reason, situation, _WORDS, overruled=overruled)


def damaged(layout: Layout, damage: MarkerDamaged) -> CatalogError:
    """The markers are not what was written; for readers."""
    return CatalogError(
        "LEDGER_DAMAGED",
        f"The commits of sink {layout.sink_id!r} cannot be trusted: {damage}.",
        data=DataState.UNCHANGED,
        action=f"Put the files back as they were, one for each number from 0: {redact(layout.commits)!r}."
        f" {TAKING_BACK}",
    )


def directory_missing(directory: str) -> CatalogError:
    """The directory has no sink; for readers."""
    return CatalogError(
        "DIRECTORY_MISSING",
        f"No stream has written to the directory: {redact(directory)[:100]!r} has no folder {FOLDER}.",
        action="Correct the directory. If it is right, its stream has not yet begun its first batch.",
    )


def format_changed(directory: str, before: str, now: str) -> SettingsError:
    """The sink has used another format so far."""
    return SettingsError(
        "FORMAT_CHANGED",
        f"This sink has written {before} files until now, and the stream asks for {now}.",
        action=f"Go on with format={before!r}, or give the stream a new sink id and a new checkpoint. The directory is"
        f" {directory!r}.",
    )


@contextmanager
def directory_failures(directory: str, *, data: DataState | str = DataState.UNCHANGED) -> Iterator[None]:
    """Convert a storage's exceptions inside the block to a `CatalogError` about the directory."""
    try:
        yield
    except LakesinkError:
        raise
    except (NotADirectoryError, FileExistsError) as error:
        raise _invalid(directory, "is a file, or lies in one", data) from error
    except PermissionError as error:
        raise CatalogError(
            "DIRECTORY_UNWRITABLE",
            f"The directory cannot be used: {describe(error)[:140]}",
            data=data,
            action=f"Let this user read and write it, or correct its credentials: {redact(directory)!r}.",
        ) from error
    except Exception as error:  # clients of object stores have their own exceptions
        raise CatalogError(
            "DIRECTORY_FAILED",
            f"The directory cannot be used: {describe(error)[:140]}",
            data=data,
            action=f"Check that it can be reached, and its free space, then start again: {redact(directory)!r}.",
        ) from error


def _invalid(directory: str, why: str, data: DataState | str) -> CatalogError:
    return CatalogError(
        "DIRECTORY_INVALID",
        f"The directory {why}."[:180],
        data=data,
        action=f"Give a directory, or a name that is not taken: {redact(directory)!r}.",
    )
