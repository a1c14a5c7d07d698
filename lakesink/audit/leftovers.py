"""Files of lakesink's own that no snapshot references: of batches in the making, prepared, or given up. Only counted.

Files are known by their names, which carry sink, batch, task and a UUID. Nothing else in the folder is looked at.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pyarrow.fs import FileInfo
from pyiceberg.table import Table

from lakesink.audit.finding import Note, counted
from lakesink.audit.waiting import Listing, list_files, opened_listing, waiting_records
from lakesink_catalog.tables.locations import data_location
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import NAME_PATTERN, SinkKey
from lakesink_protocol.redact import describe

_OWN_NAME = re.compile(
    rf"(?P<hashed>[01]{{8}}-)?(?P<sink>{NAME_PATTERN.pattern})-(?P<batch>\d+)-\d{{5,}}-"
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.parquet"
)


@dataclass(frozen=True, slots=True)
class OwnName:
    """What a data file's name tells.

    Attributes:
        sink: Sink id, or application id.
        batch_id: Batch id, or version.
    """

    sink: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Own files that no retained snapshot references.

    Attributes:
        files: Files of batches that the ledgers have passed: they never will be referenced.
        bytes: Their size in bytes.
        pending_files: Files of batches that are not committed yet, be they in the making or given up.
        pending_bytes: Their size in bytes.
        prepared: Batches whose prepared record waits, as ``sink batch``.
        unlisted: Why they could not be looked for; empty if they were.
    """

    files: int = 0
    bytes: int = 0
    pending_files: int = 0
    pending_bytes: int = 0
    prepared: tuple[str, ...] = ()
    unlisted: str = ""

    def notes(self) -> Iterator[Note]:
        """What there is to say."""
        if self.unlisted:
            yield Note("not checked", "", f"Files that nobody references were not looked for: {self.unlisted}.")
        if self.files:
            found = f"{counted(self.files, 'file')} of lakesink, {self.bytes:,} bytes, that no snapshot references:"
            cleaner = "left by crashes, or tasks run twice. Any orphan cleaner of 24 hours or more removes them."
            yield Note("orphans", "", f"{found} {cleaner}")
        if self.pending_files:
            found = f"{counted(self.pending_files, 'file')}, {self.pending_bytes:,} bytes, of batches not committed yet"
            yield Note("pending", "", f"{found}: being written now, or left by a crash.")
        if self.prepared:
            yield Note("prepared", "", f"Prepared and not committed yet: {', '.join(self.prepared)}.")


def own_name(path: str, known: Collection[str]) -> OwnName | None:
    """What the name of a file tells, if it is one that lakesink gives.

    Args:
        path: Path or location.
        known: Sinks that the table knows; they settle whether a leading hash is one, or a part of the id.
    """
    found = _OWN_NAME.fullmatch(path.rpartition("/")[2])
    if found is None:
        return None
    whole = f"{found['hashed'] or ''}{found['sink']}"
    return OwnName(whole if whole in known else found["sink"], int(found["batch"]))


def look_for_leftovers(table: Table, referenced: Collection[str], ledgers: Mapping[SinkKey, int]) -> Leftovers:
    """List the data folder and the prepared records.

    Args:
        table: As loaded.
        referenced: Every location that a retained snapshot references.
        ledgers: The last batch of each sink on each branch.
    """
    opened = opened_listing(table)
    if opened is None:
        return Leftovers(unlisted=f"{type(table.io).__name__} cannot list")
    try:
        return _leftovers(table, opened, referenced, ledgers)
    except CatalogError as error:
        return Leftovers(unlisted=error.what.rstrip("."))
    except OSError as error:
        return Leftovers(unlisted=describe(error, table.io.properties))


def _leftovers(table: Table, opened: Listing, referenced: Collection[str], ledgers: Mapping[SinkKey, int]) -> Leftovers:
    system, path_of = opened
    taken = {_name(path) for path in referenced}
    prepared = []
    for record in waiting_records(table, opened, ledgers):
        taken.update(_name(path) for path, _ in record.files)
        prepared.append(f"{record.key.name} {record.batch_id}")
    files = list_files(system, path_of(data_location(table)))
    orphans = (file for file in files if file.base_name not in taken)
    return _counted(orphans, _passed(ledgers), tuple(sorted(prepared)))


def _passed(ledgers: Mapping[SinkKey, int]) -> dict[str, int]:
    """Batch up to which a sink is through on all its branches: the names of its files do not tell which it is."""
    found: dict[str, int] = {}
    for key, batch_id in ledgers.items():
        found[key.name] = min(found.get(key.name, batch_id), batch_id)
    return found


def _counted(files: Iterator[FileInfo], passed_batches: Mapping[str, int], prepared: tuple[str, ...]) -> Leftovers:
    sizes: dict[bool, list[int]] = {True: [], False: []}
    for file in files:
        name = own_name(file.base_name, passed_batches)
        if name is not None:
            sizes[name.batch_id > passed_batches.get(name.sink, -1)].append(file.size)
    passed, pending = sizes[False], sizes[True]
    return Leftovers(len(passed), sum(passed), len(pending), sum(pending), prepared)


def _name(location: str) -> str:
    return location.rpartition("/")[2]
