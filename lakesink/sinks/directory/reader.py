"""What readers of a directory may read: the parts that markers name, and no other file. Writes nothing."""

import os

from lakesink.settings.settings import read_option
from lakesink.sinks.directory.layout import FOLDER, Layout
from lakesink.sinks.directory.marker import Marker, MarkerDamaged
from lakesink.sinks.directory.markers import find_markers, read_history
from lakesink.sinks.directory.refusals import damaged, directory_failures, directory_missing
from lakesink.sinks.directory.settings import directory_location
from lakesink.sinks.storage import Storage, open_storage
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import NAME_PATTERN
from lakesink_protocol.suggest import did_you_mean


def committed_files(
    directory: str | os.PathLike[str], *, sink_id: str | None = None, up_to_batch: int | None = None
) -> list[str]:
    """The files of all committed batches, for example for ``spark.read.parquet(*paths)``.

    In DuckDB use ``duckdb.read_parquet(paths, hive_partitioning=False)``: otherwise a folder like ``x=7`` is a column.

    The list is a consistent view of whole batches at one moment; its files never change. Read it again to see more.

    Args:
        directory: Path or URI, as the stream was given it.
        sink_id: Only this sink; None takes every sink in the directory, ordered by name.
        up_to_batch: Only the commits up to the newest one of this batch or of a lower batch id; needs `sink_id`. After
            a change of the checkpoint, batches count from 0 again.

    Returns:
        Locations under `directory`, in the order of the commits; empty if nothing is committed yet.

    Raises:
        SettingsError: An argument is malformed, or the directory has other sinks but not this one.
        CatalogError: No stream has written to the directory, it cannot be read, or its commits are damaged.
    """
    place = directory_location(directory)
    if up_to_batch is not None and sink_id is None:
        raise _wrong("up_to_batch", "batches are counted by sink: give sink_id too")
    wanted = None if sink_id is None else read_option("sink_id", sink_id)
    with directory_failures(place, data=DataState.UNCHANGED):
        storage = open_storage(place)
        sinks = sink_ids(storage, place, wanted)
        markers = [marker for name in sinks for marker in _up_to(storage, Layout(place, name), up_to_batch)]
    return [
        f"{place}/{Layout(place, marker.sink_id).part_path(part.name)}" for marker in markers for part in marker.parts
    ]


def sink_ids(storage: Storage, place: str, wanted: str | None = None) -> list[str]:
    """The sinks of a directory by name, or only the wanted one."""
    there = sorted(name for name in storage.names(f"{place}/{FOLDER}") if NAME_PATTERN.fullmatch(name))
    if not there:
        raise directory_missing(place)
    if wanted is None:
        return there
    if wanted not in there:
        raise _wrong("sink_id", f"nothing is there of this sink. {did_you_mean(wanted, there)}")
    return [wanted]


def sink_history(storage: Storage, layout: Layout) -> list[Marker]:
    """Every commit of a sink, checked."""
    try:
        markers = list(read_history(storage, layout, find_markers(storage, layout).count))
        _check_once(markers)
    except MarkerDamaged as damage:
        raise damaged(layout, damage) from None
    return markers


def _check_once(markers: list[Marker]) -> None:
    seen: set[str] = set()
    for marker in markers:
        names = {part.name for part in marker.parts}
        if not seen.isdisjoint(names):
            raise MarkerDamaged(f"commit {marker.number} lists a file of another one")
        seen |= names


def _up_to(storage: Storage, layout: Layout, up_to_batch: int | None) -> list[Marker]:
    markers = sink_history(storage, layout)
    if up_to_batch is None:
        return markers
    last = max((marker.number for marker in markers if marker.batch.batch_id <= up_to_batch), default=-1)
    return markers[: last + 1]


def _wrong(name: str, why: str) -> SettingsError:
    return SettingsError(
        "OPTION_INVALID",
        f"The argument {name}: {why}"[:180],
        action="help(lakesink.committed_files) shows how committed files are read.",
    )
