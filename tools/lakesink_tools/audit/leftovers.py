"""lakesink's own files beside a table that no snapshot references: of running batches, prepared batches, or crashes.

Files are recognized by their names: those of data files contain sink, batch, task and a UUID, those of position deletes
the same without a task. Other files are ignored. A stream finds its prepared record by name; only an audit lists them
all. Only reads.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, FSSpecHandler, LocalFileSystem, PyFileSystem
from pyiceberg.table import Table
from pyiceberg.typedef import Properties

from lakesink_catalog.commit.record import MAX_RECORD_BYTES, parse_record
from lakesink_catalog.commit.recovered import parse_prepared
from lakesink_catalog.read.history import SinkState
from lakesink_catalog.tables.locations import data_location, metadata_location
from lakesink_catalog.words import counted
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import NAME_PATTERN, SinkKey, SinkKind
from lakesink_protocol.redact import describe
from lakesink_tools.audit.finding import Note
from lakesink_tools.past.lean import local_path, storage_of
from lakesink_tools.past.records import key_of

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_OWN_NAME = re.compile(
    rf"(?P<hashed>[01]{{8}}-)?(?P<sink>{NAME_PATTERN.pattern})-(?P<batch>\d+)-"
    rf"(?:\d{{5,}}-{_UUID}|{_UUID}-deletes)\.parquet"
)

Listing = tuple[FileSystem, Callable[[str], str]]
"""A file system that can list, and a function from a location to a path of this file system."""


@dataclass(frozen=True, slots=True)
class PreparedRecord:
    """One prepared record."""

    key: SinkKey
    batch_id: int
    created_ms: int  # by the driver's clock
    files: tuple[tuple[str, int], ...]  # location and size of each data file


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Own files that no retained snapshot references."""

    files: int = 0  # of batches that the ledgers have passed: never referenced in future
    bytes: int = 0
    pending_files: int = 0  # of batches that are not committed yet: running, or left by a crash
    pending_bytes: int = 0
    prepared: tuple[str, ...] = ()  # batches with a prepared record, as ``sink batch``
    unlisted: str = ""  # why the files could not be listed; empty if they were

    def notes(self) -> Iterator[Note]:
        """The counts as notes."""
        if self.unlisted:
            yield Note("not checked", "", f"Unreferenced files were not searched: {self.unlisted}.")
        if self.files:
            amount = f"{counted(self.files, 'file')} of lakesink, {counted(self.bytes, 'byte')}"
            cleaner = "left by crashes or repeated tasks. An orphan cleanup after 24 hours or more removes them."
            yield Note("orphans", "", f"{amount}, that no snapshot references: {cleaner}")
        if self.pending_files:
            found = (
                f"{counted(self.pending_files, 'file')}, {counted(self.pending_bytes, 'byte')}, of uncommitted batches"
            )
            yield Note("pending", "", f"{found}: in use by a running batch, or left by a crash.")
        if self.prepared:
            yield Note("prepared", "", f"Prepared and not committed yet: {', '.join(self.prepared)}.")


def own_name(path: str, known: Collection[str]) -> tuple[str, int] | None:
    """Sink and batch by the name of a file; None if lakesink does not give such names.

    The `known` sinks of the table decide whether leading digits are a hash or a part of the sink id.
    """
    found = _OWN_NAME.fullmatch(path.rpartition("/")[2])
    if found is None:
        return None
    whole = f"{found['hashed'] or ''}{found['sink']}"
    return whole if whole in known else found["sink"], int(found["batch"])


def look_for_leftovers(table: Table, referenced: Iterable[str], ledgers: Mapping[SinkKey, int]) -> Leftovers:
    """List the data folder and the prepared records; `ledgers` has the last batch of each sink on each branch."""
    if (opened := opened_listing(table)) is None:
        return Leftovers(unlisted=f"{type(storage_of(table)).__name__} cannot list")
    try:
        return _leftovers(table, opened, referenced, ledgers)
    except CatalogError as error:
        return Leftovers(unlisted=error.what.rstrip("."))
    except OSError as error:
        return Leftovers(unlisted=describe(error, table.io.properties))


def _leftovers(table: Table, opened: Listing, referenced: Iterable[str], ledgers: Mapping[SinkKey, int]) -> Leftovers:
    system, path_of = opened
    taken = {_name(path) for path in referenced}
    prepared = []
    for record in prepared_records(table, opened, ledgers):
        taken.update(_name(path) for path, _ in record.files)
        prepared.append(f"{record.key.name} {record.batch_id}")
    newest: dict[str, int] = {}  # the batch that a sink has passed on all its branches, which file names do not contain
    for key, batch_id in ledgers.items():
        newest[key.name] = min(newest.get(key.name, batch_id), batch_id)
    passed: list[int] = []
    pending: list[int] = []
    for file in list_files(system, path_of(data_location(table))):
        name = None if file.base_name in taken else own_name(file.base_name, newest)
        if name is not None:
            sink, batch_id = name
            (pending if batch_id > newest.get(sink, -1) else passed).append(file.size)
    return Leftovers(len(passed), sum(passed), len(pending), sum(pending), tuple(sorted(prepared)))


def _name(location: str) -> str:
    return location.rpartition("/")[2]


def opened_listing(table: Table) -> Listing | None:
    """The file system that reads the table, with its credentials; None if it cannot list."""
    if local_path(table.location(), table.io.properties) is not None:  # needs nothing of what is imported below
        return LocalFileSystem(), partial(_path_of_local, table.io.properties)
    from pyiceberg.io.fsspec import FsspecFileIO  # noqa: PLC0415 - as above
    from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415 - as above

    io = storage_of(table)
    if isinstance(io, PyArrowFileIO):
        scheme, host, _ = io.parse_location(table.location(), io.properties)
        return io.fs_by_scheme(scheme, host), lambda location: io.parse_location(location, io.properties)[2]
    if isinstance(io, FsspecFileIO):
        scheme, _, rest = table.location().partition("://")
        system = io.get_fs(scheme, rest.partition("/")[0])
        return PyFileSystem(FSSpecHandler(system)), system._strip_protocol  # noqa: SLF001 - fsspec's one way to a path
    return None


def _path_of_local(properties: Properties, location: str) -> str:
    """A table's properties may spell its folders in ways that only PyIceberg knows."""
    if (path := local_path(location, properties)) is not None:
        return path
    from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415 - as above

    return PyArrowFileIO.parse_location(location, properties)[2]


def list_files(system: FileSystem, folder: str) -> Iterator[FileInfo]:
    """All files below a folder; none if there is no such folder."""
    selector = FileSelector(folder, allow_not_found=True, recursive=True)
    return (file for file in system.get_file_info(selector) if file.type is FileType.File)


def prepared_records(table: Table, opened: Listing, ledgers: Mapping[SinkKey, int]) -> Iterator[PreparedRecord]:
    """Every complete record of a batch that its sink's ledger has not passed."""
    system, path_of = opened
    for file in list_files(system, path_of(f"{metadata_location(table)}/lakesink")):
        document = _document(system, file)
        for record in () if document is None else _participants(document):
            if record.batch_id > ledgers.get(record.key, -1):
                yield record


def waiting_batches(table: Table, states: Iterable[SinkState]) -> list[PreparedRecord] | None:
    """Prepared batches that no driver has committed yet, oldest first; None if the file system cannot list."""
    if (opened := opened_listing(table)) is None:
        return None
    ledgers = {key_of(state): -1 if state.batch_id is None else state.batch_id for state in states}
    return sorted(prepared_records(table, opened, ledgers), key=lambda record: record.batch_id)


def _document(system: FileSystem, file: FileInfo) -> dict[str, Any] | None:
    if file.extension != "json" or file.size > MAX_RECORD_BYTES:
        return None
    try:
        with system.open_input_stream(file.path) as stream:
            return parse_record(stream.read())
    except FileNotFoundError:
        return None  # a running stream removes the records of committed batches


def _participants(document: Mapping[str, Any]) -> Iterator[PreparedRecord]:
    match document:
        case {
            "batch": {"sink": str(sink), "branch": str(branch), "kind": str(kind), "batch_id": int(batch_id)},
            "participants": dict(participants),
            "created_ms": int(created_ms),
        } if type(created_ms) is int and kind in {member.value for member in SinkKind}:
            key = SinkKey(sink, branch, SinkKind(kind))
            for payload in participants.values():
                of_table = isinstance(payload, dict) and "prepared" not in payload  # a side table's files are beside it
                prepared = parse_prepared(payload) if of_table else None
                if prepared is not None:
                    yield PreparedRecord(key, batch_id, created_ms, tuple(prepared.files))
