"""Checks that referenced files exist, with the size and rows that manifests state. Checks many files at a time."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputFile

from lakesink_catalog.words import counted
from lakesink_protocol.redact import describe
from lakesink_tools.audit.finding import Code, Finding, Note, listed
from lakesink_tools.audit.inventory import Entry, at_once

_TAIL_BYTES = 64 * 1024
_WORDS = {
    Code.FILE_MISSING: "not there",
    Code.FILE_SIZE: "of another size than stated",
    Code.FILE_ROWS: "with other rows than stated",
    Code.FILE_DAMAGED: "unreadable as Parquet",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one file."""

    code: Code | None  # None if the file could not be checked, which proves nothing
    path: str
    detail: str  # stated and found values


def faults(io: FileIO, entries: Collection[Entry], *, footers: bool) -> list[Fault]:
    """Check every file, given once each; `footers` also compares row counts with Parquet footers."""
    found = at_once(lambda entry: _look(io, entry, footers=footers), entries)
    return sorted((fault for fault in found if fault is not None), key=lambda fault: fault.path)


def findings(found: Collection[Fault]) -> Iterator[Finding | Note]:
    """Group the faults by kind."""
    for code, words in _WORDS.items():
        of_kind = [fault for fault in found if fault.code is code]
        if of_kind:
            shown = listed(f"{fault.path} ({fault.detail})" if fault.detail else fault.path for fault in of_kind)
            text = f"{counted(len(of_kind), 'file')} {words}: {shown}."
            yield Finding(code, "", text, tuple(fault.path for fault in of_kind))
    unseen = [fault for fault in found if fault.code is None]
    if unseen:
        shown = listed(f"{fault.path} ({fault.detail})" for fault in unseen)
        yield Note("not checked", "", f"{counted(len(unseen), 'file')} could not be checked: {shown}.")


def _look(io: FileIO, entry: Entry, *, footers: bool) -> Fault | None:
    try:
        return _compare(io.new_input(entry.path), entry, footers=footers)
    except FileNotFoundError:
        return Fault(Code.FILE_MISSING, entry.path, "")
    except Exception as error:  # noqa: BLE001 - rights, network, a scheme without its package: nothing is proved
        return Fault(None, entry.path, describe(error, io.properties))


def _compare(file: InputFile, entry: Entry, *, footers: bool) -> Fault | None:
    size = len(file)
    if size != entry.size_bytes:
        return Fault(Code.FILE_SIZE, entry.path, f"{counted(size, 'byte')} instead of {entry.size_bytes:,}")
    if not footers or not entry.is_parquet:
        return None
    tail = _tail(file, size)  # read outside the parser, which would raise storage errors and its own as one class
    try:
        rows = pq.read_metadata(pa.BufferReader(tail)).num_rows
    except (pa.ArrowException, OSError, ValueError) as error:
        return Fault(Code.FILE_DAMAGED, entry.path, describe(error))
    if rows == entry.rows:
        return None
    return Fault(Code.FILE_ROWS, entry.path, f"{counted(rows, 'row')} instead of {entry.rows:,}")


def _tail(file: InputFile, size_bytes: int) -> bytes:
    """The end of a file with its Parquet footer, usually in one request."""
    with file.open() as stream:
        stream.seek(max(size_bytes - _TAIL_BYTES, 0))
        tail = stream.read()
        footer_bytes = int.from_bytes(tail[-8:-4], "little") + 8
        if len(tail) < footer_bytes <= size_bytes:
            stream.seek(size_bytes - footer_bytes)
            tail = stream.read()
        return tail
