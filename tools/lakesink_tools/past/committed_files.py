"""Lists a directory's committed files: the parts that markers name, and no other file. Only reads."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from lakesink.settings.options import read_option
from lakesink.sinks.directory.directory_errors import TAKING_BACK, directory_failures
from lakesink.sinks.directory.layout import FOLDER, Layout
from lakesink.sinks.directory.marker import Marker, MarkerDamaged
from lakesink.sinks.directory.marker_ledger import find_markers, read_history
from lakesink.sinks.directory.settings import directory_location
from lakesink.sinks.storage import Storage, open_storage
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.identity import NAME_PATTERN
from lakesink_protocol.redact import redact
from lakesink_protocol.suggest import did_you_mean


def committed_files(
    directory: str | os.PathLike[str], *, sink_id: str | None = None, up_to_batch: int | None = None
) -> list[str]:
    """The files of all committed batches, for example for ``spark.read.parquet(*paths)``.

    In DuckDB use ``duckdb.read_parquet(paths, hive_partitioning=False)``. Otherwise a folder like ``x=7`` becomes a
    column.

    The list is a consistent view of whole batches at one moment, and its files never change. Call again to see later
    batches.

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
    if up_to_batch is not None and sink_id is None:
        raise SettingsError.of(
            "OPTION_INVALID.reading_directory",
            name="up_to_batch",
            why="batch ids belong to one sink, so give sink_id too",
        )
    with opened_sinks(directory, sink_id) as (storage, layouts):
        return [
            layout.part(part)
            for layout in layouts
            for marker in _commits(storage, layout, up_to_batch)
            for part in marker.parts
        ]


@contextmanager
def opened_sinks(directory: str | os.PathLike[str], sink_id: str | None) -> Iterator[tuple[Storage, list[Layout]]]:
    """The sinks of a directory by name, or only the wanted one; converts the storage's errors in the block."""
    place = directory_location(directory)
    wanted = None if sink_id is None else read_option("sink_id", sink_id)
    with directory_failures(place):
        storage = open_storage(place)
        there = sorted(name for name in storage.names(f"{place}/{FOLDER}") if NAME_PATTERN.fullmatch(name))
        if not there:
            raise CatalogError.of("DIRECTORY_MISSING", place=redact(place)[:100])
        if wanted is not None and wanted not in there:
            raise SettingsError.of(
                "OPTION_INVALID.reading_directory",
                name="sink_id",
                why=f"the directory has no sink of this name. {did_you_mean(wanted, there)}",
            )
        yield storage, [Layout(place, name) for name in there if wanted in (None, name)]


def _commits(storage: Storage, layout: Layout, up_to_batch: int | None) -> list[Marker]:
    """Every commit of a sink, checked, up to the newest one of this batch or of a lower batch id."""
    try:
        sizes, _ = find_markers(storage, layout)
        markers = list(read_history(storage, layout, len(sizes)))
        _check_once(markers)
    except MarkerDamaged as damage:
        raise CatalogError.of(
            "LEDGER_DAMAGED.directory",
            sink=layout.sink_id,
            damage=damage,
            commits=redact(layout.commits),
            taking_back=TAKING_BACK,
        ) from None
    if up_to_batch is None:
        return markers
    last = max((marker.number for marker in markers if marker.batch.batch_id <= up_to_batch), default=-1)
    return markers[: last + 1]


def _check_once(markers: list[Marker]) -> None:
    seen: set[str] = set()
    for marker in markers:
        names = {part.name for part in marker.parts}
        if not seen.isdisjoint(names):
            raise MarkerDamaged(f"commit {marker.number} lists a file of another commit")
        seen |= names
