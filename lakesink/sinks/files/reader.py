"""What a reader of a directory may read: the parts that markers name, and no other file. Writes nothing."""

import os
from itertools import pairwise

from lakesink.settings import read_option
from lakesink.sinks.files.layout import FOLDER, Layout
from lakesink.sinks.files.ledger import check_follows, marker_numbers, read_markers
from lakesink.sinks.files.marker import Marker, MarkerDamaged
from lakesink.sinks.files.refusals import READ_ONLY, directory_failures
from lakesink.sinks.files.settings import directory_location
from lakesink.sinks.storage import Storage, open_storage
from lakesink_catalog.errors import CatalogError, SettingsError
from lakesink_catalog.identity import NAME_PATTERN
from lakesink_catalog.nearest import did_you_mean


def committed_files(
    directory: str | os.PathLike[str], *, sink_id: str | None = None, up_to_batch: int | None = None
) -> list[str]:
    """The files of all committed batches: ``spark.read.parquet(*paths)``, ``duckdb.read_parquet(paths)``.

    The list is a view of whole batches at one moment; files in it are never changed. Read it again to see more.

    Args:
        directory: As the stream was given it: path or URI.
        sink_id: Only this sink; None takes every sink in the directory, one after the other by name.
        up_to_batch: Only what was committed up to this batch, and with it; needs `sink_id`. Where a new checkpoint took
            over, its batches count from 0 again: the newest commit of this batch, or of one below it, is the last.

    Returns:
        Locations under `directory`, in the order of the commits; empty if nothing is committed.

    Raises:
        SettingsError: An argument is malformed, or other sinks are in the directory but not this one.
        CatalogError: The directory cannot be read, or its commits are damaged.
    """
    place = directory_location(directory)
    if up_to_batch is not None and sink_id is None:
        raise _wrong("up_to_batch", "batches are counted by sink: give sink_id too")
    wanted = None if sink_id is None else read_option("sink_id", sink_id)
    with directory_failures(place, data=READ_ONLY):
        storage = open_storage(place)
        sinks = _sinks(storage, place, wanted)
        markers = [marker for name in sinks for marker in _markers(storage, Layout(place, name), up_to_batch)]
    return [
        f"{place}/{Layout(place, marker.sink_id).part_path(part.name)}" for marker in markers for part in marker.parts
    ]


def _sinks(storage: Storage, place: str, wanted: str | None) -> list[str]:
    there = sorted(name for name in storage.names(f"{place}/{FOLDER}") if NAME_PATTERN.fullmatch(name))
    if wanted is None or not there:
        return there
    if wanted not in there:
        raise _wrong("sink_id", f"nothing is there of this sink. {did_you_mean(wanted, there)}")
    return [wanted]


def _markers(storage: Storage, layout: Layout, up_to_batch: int | None) -> list[Marker]:
    try:
        markers = read_markers(storage, layout, marker_numbers(storage, layout))
        for below, marker in pairwise(markers):
            check_follows(below, marker)
    except MarkerDamaged as damage:
        raise CatalogError(
            "LEDGER_DAMAGED",
            f"The commits of sink {layout.sink_id!r} cannot be trusted: {damage}.",
            data=READ_ONLY,
            action=f"Put the files back as they were, one for each number from 0: {layout.commits!r}.",
        ) from None
    if up_to_batch is None:
        return markers
    last = max((marker.number for marker in markers if marker.batch.batch_id <= up_to_batch), default=-1)
    return markers[: last + 1]


def _wrong(name: str, why: str) -> SettingsError:
    return SettingsError(
        "OPTION_INVALID",
        f"The argument {name}: {why}"[:180],
        data=READ_ONLY,
        action="help(lakesink.committed_files) shows how committed files are read.",
    )
