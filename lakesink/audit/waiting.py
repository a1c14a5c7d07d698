"""Prepared records beside a table: batches that wait for a restart of their driver. Only reads.

A stream finds its record by name; only an audit lists them all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, FSSpecHandler, PyFileSystem
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from lakesink_catalog.commit.prepared import parse_prepared
from lakesink_catalog.commit.record import MAX_RECORD_BYTES, parse_record
from lakesink_catalog.tables.locations import metadata_location
from lakesink_protocol.identity import SinkKey, SinkKind

Listing = tuple[FileSystem, Callable[[str], str]]
"""A file system that can list, and a function from a location to a path of this file system."""


@dataclass(frozen=True, slots=True)
class WaitingRecord:
    """One prepared record."""

    key: SinkKey
    batch_id: int
    created_ms: int  # by the driver's clock
    files: tuple[tuple[str, int], ...]  # location and size of each data file


def opened_listing(table: Table) -> Listing | None:
    """The file system that reads the table, with its credentials; None if it cannot list."""
    io = table.io
    if isinstance(io, PyArrowFileIO):
        scheme, host, _ = io.parse_location(table.location(), io.properties)
        return io.fs_by_scheme(scheme, host), lambda location: io.parse_location(location, io.properties)[2]
    if isinstance(io, FsspecFileIO):
        scheme, _, rest = table.location().partition("://")
        system = io.get_fs(scheme, rest.partition("/")[0])
        return PyFileSystem(FSSpecHandler(system)), system._strip_protocol  # noqa: SLF001 - fsspec's one way to a path
    return None


def list_files(system: FileSystem, folder: str) -> Iterator[FileInfo]:
    """All files below a folder; none if there is no such folder."""
    selector = FileSelector(folder, allow_not_found=True, recursive=True)
    return (file for file in system.get_file_info(selector) if file.type is FileType.File)


def waiting_records(table: Table, opened: Listing, ledgers: Mapping[SinkKey, int]) -> Iterator[WaitingRecord]:
    """Every complete record of a batch that its sink's ledger has not passed."""
    system, path_of = opened
    for file in list_files(system, path_of(f"{metadata_location(table)}/lakesink")):
        document = _document(system, file)
        for record in () if document is None else _participants(document):
            if record.batch_id > ledgers.get(record.key, -1):
                yield record


def _document(system: FileSystem, file: FileInfo) -> dict[str, Any] | None:
    if file.extension != "json" or file.size > MAX_RECORD_BYTES:
        return None
    try:
        with system.open_input_stream(file.path) as stream:
            return parse_record(stream.read())
    except FileNotFoundError:
        return None  # a running stream removes the records of committed batches


def _participants(document: Mapping[str, Any]) -> Iterator[WaitingRecord]:
    batch, participants = document.get("batch"), document.get("participants")
    created_ms = document.get("created_ms")
    if not isinstance(batch, dict) or not isinstance(participants, dict) or type(created_ms) is not int:
        return
    key, batch_id = _key_of(batch), batch.get("batch_id")
    for payload in participants.values():
        prepared = parse_prepared(payload) if isinstance(payload, dict) else None
        if prepared is not None and key is not None and isinstance(batch_id, int):
            yield WaitingRecord(key, batch_id, created_ms, tuple(prepared.files))


def _key_of(batch: Mapping[str, Any]) -> SinkKey | None:
    sink, branch, kind = (batch.get(name) for name in ("sink", "branch", "kind"))
    kinds = {member.value for member in SinkKind}
    if not isinstance(sink, str) or not isinstance(branch, str) or not isinstance(kind, str) or kind not in kinds:
        return None
    return SinkKey(sink, branch, SinkKind(kind))
