"""Counts lakesink's own files that no snapshot references: of running batches, prepared batches, or crashes.

Files are recognized by their names, which contain sink, batch, task and a UUID. Other files are ignored.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

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


def own_name(path: str, known: Collection[str]) -> tuple[str, int] | None:
    """Sink and batch by the name of a file; None if lakesink does not give such names.

    The `known` sinks of the table decide whether leading digits are a hash or a part of the sink id.
    """
    found = _OWN_NAME.fullmatch(path.rpartition("/")[2])
    if found is None:
        return None
    whole = f"{found['hashed'] or ''}{found['sink']}"
    return whole if whole in known else found["sink"], int(found["batch"])


def look_for_leftovers(table: Table, referenced: Collection[str], ledgers: Mapping[SinkKey, int]) -> Leftovers:
    """List the data folder and the prepared records; `ledgers` has the last batch of each sink on each branch."""
    if (opened := opened_listing(table)) is None:
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
