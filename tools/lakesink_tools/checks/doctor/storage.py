"""Tests that this machine can write where a table's files go: writes, reads and removes a scratch object.

Data files use the file system of the executors' writer, metadata files that of the driver's PyIceberg: the two may find
different credentials.
"""

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath

from pyarrow.fs import FileSystem, LocalFileSystem
from pyiceberg.table import Table

from lakesink.parquet.filesystem import open_filesystem, shareable_properties
from lakesink_catalog.tables.locations import data_location, metadata_location
from lakesink_protocol.redact import redact
from lakesink_tools.checks.doctor.clock import Sighting
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing, attempt

_CONTENT = b"written by lakesink doctor; to be removed at once"
_SKIPPED = "not tried: this check writes a scratch object"
_ASK = "Add --write-probe to write a scratch object and remove it."


def check_storage(part: Part, table: Table, sightings: list[Sighting], *, may_write: bool) -> list[Finding]:
    """Test the locations of a table's data and metadata files; `sightings` receives the times of the scratch objects.

    Without `may_write`, check only that the table's properties name allowed locations.
    """
    ways = {"data files": (data_location, _data_round_trip), "metadata files": (metadata_location, _io_round_trip)}
    findings = []
    for check, (place, round_trip) in ways.items():
        location = attempt(part, check, partial(place, table), table.io.properties)
        if isinstance(location, Finding):
            findings.append(location)
        elif not may_write:
            findings.append(Finding(part, check, Standing.SKIPPED, f"{redact(location)}: {_SKIPPED}", _ASK))
        else:
            findings.append(_written(part, check, location, partial(round_trip, table, location, sightings)))
    return findings


def _written(part: Part, check: str, location: str, round_trip: Callable[[], bytes]) -> Finding:
    started = time.monotonic()
    content = attempt(part, check, round_trip)
    seconds = time.monotonic() - started
    if isinstance(content, Finding):
        fix = content.fix or "Check rights, credentials and space."
        return Finding(part, check, Standing.FAILED, f"{redact(location)}: {content.found}", fix)
    if content != _CONTENT:
        found = f"{redact(location)} returned other bytes than were written."
        return Finding(part, check, Standing.FAILED, found, "Do not write to this storage.")
    found = f"{redact(location)}: written, read and removed in {seconds:.2f} s"
    return Finding(part, check, Standing.OK, found)


def _data_round_trip(table: Table, location: str, sightings: list[Sighting]) -> bytes:
    filesystem, path_of = open_filesystem(location, shareable_properties(table.io.properties), table.catalog.name)
    path = path_of(_scratch_name(location))
    folder = Path(path).parent if isinstance(filesystem, LocalFileSystem) else None
    made = folder is not None and not folder.exists()
    if folder is not None:
        filesystem.create_dir(str(PurePosixPath(path).parent), recursive=True)
    try:
        return _object_round_trip(filesystem, path, sightings)
    finally:
        if folder is not None and made:
            with suppress(OSError):  # another driver may have written its first file there in the meantime
                folder.rmdir()


def _object_round_trip(filesystem: FileSystem, path: str, sightings: list[Sighting]) -> bytes:
    before_ms = now_ms()
    with filesystem.open_output_stream(path, compression=None) as sink:
        sink.write(_CONTENT)
    try:
        modified = filesystem.get_file_info(path).mtime_ns
        if modified:
            sightings.append(Sighting("the storage of data files", before_ms, modified // 1_000_000, now_ms()))
        with filesystem.open_input_stream(path, compression=None) as source:
            return bytes(source.read())
    finally:
        filesystem.delete_file(path)


def _io_round_trip(table: Table, location: str, _: list[Sighting]) -> bytes:
    path = _scratch_name(location)
    with table.io.new_output(path).create() as sink:
        sink.write(_CONTENT)
    try:
        with table.io.new_input(path).open() as source:
            return bytes(source.read())
    finally:
        table.io.delete(path)


def _scratch_name(location: str) -> str:
    return f"{location}/lakesink-doctor-{uuid.uuid4()}.tmp"


def now_ms() -> int:
    """Milliseconds since the epoch, by this machine's clock."""
    return time.time_ns() // 1_000_000
