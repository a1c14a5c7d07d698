"""PyIceberg's SQL catalog with cached metadata, so that the cost of a commit grows little with the table's history.

A metadata file never changes. Its parsed content stays valid as long as the table's row names the file. PyIceberg
copies every snapshot to add one. This module applies PyIceberg's rules to metadata that has only the snapshots of the
updates. Then it adds the other snapshots and their log again, unchanged, as objects and as JSON. The remaining cost of
history is one file to write. Tables of format versions that lakesink does not write use PyIceberg's own code.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog, SqlCatalogBaseTable
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.exceptions import ValidationError as MetadataError
from pyiceberg.io import OutputFile
from pyiceberg.serializers import NOOP_COMPRESSOR, Compressor, FromInputFile
from pyiceberg.table import CommitTableResponse, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.typedef import Identifier
from pyiceberg.utils.config import Config
from pyiceberg.utils.properties import property_as_int
from sqlalchemy import select, update
from sqlalchemy.exc import DBAPIError

from lakesink_catalog.connect.catalog_failures import METADATA_UNREADABLE
from lakesink_catalog.connect.kinds import READING
from lakesink_catalog.connect.turns import TakesTurns, Turns
from lakesink_catalog.snapshots import snapshots_by_id, with_added
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION

PIECE_BYTES = 256 * 1024
_KEY, _ARRAY = b'"snapshots"', b'"snapshots":['


@dataclass(frozen=True, slots=True)
class ListJson:
    """The JSON of a list in one metadata file, in pieces that consecutive metadata files share.

    A metadata file repeats all snapshots of the one before it, and nearly always byte by byte. So the writer converts
    only new snapshots to JSON, and the reader of a file that another process wrote parses only new ones.

    Attributes:
        count: Elements of the list.
        pieces: The JSON of some elements, joined by commas. The writer puts a comma between two pieces.
    """

    count: int = 0
    pieces: tuple[bytes, ...] = ()

    def extended_to(self, elements: Sequence[BaseModel], *, exclude_none: bool) -> "ListJson":
        """The JSON of a list that begins with this one. Only the new elements are converted."""
        texts = (one.model_dump_json(exclude_none=exclude_none).encode() for one in elements[self.count :])
        return ListJson(len(elements), tuple(_pieces(self.pieces, texts)))

    @property
    def text(self) -> Iterator[bytes]:
        """The JSON of all elements."""
        for number, piece in enumerate(self.pieces):
            if number:
                yield b","
            yield piece

    def end_in(self, data: bytes, start: int) -> int | None:
        """The end of this JSON in `data`, if it is there at `start`."""
        at = start
        for piece in self.pieces:
            at += at > start and data.startswith(b",", at)
            if not data.startswith(piece, at):
                return None
            at += len(piece)
        return at


@dataclass(frozen=True, slots=True)
class HistoryJson:
    """What grows in a metadata file with each commit."""

    snapshots: ListJson = ListJson()
    log: ListJson = ListJson()

    def extended_to(self, metadata: TableMetadata, *, exclude_none: bool) -> "HistoryJson":
        """See `ListJson`."""
        return HistoryJson(
            self.snapshots.extended_to(metadata.snapshots, exclude_none=exclude_none),
            self.log.extended_to(metadata.snapshot_log, exclude_none=exclude_none),
        )


NONE_KNOWN = HistoryJson()


def grown(data: bytes, before: TableMetadata, known: ListJson) -> TableMetadata | None:
    """The metadata in a file whose snapshots begin with the known ones; None if they do not.

    The known ones, the first of `before`, are taken over: their bytes are the same. PyIceberg's error is raised.
    """
    start = data.find(_ARRAY) + len(_ARRAY)
    end = known.end_in(data, start) if data.count(_KEY) == 1 else None
    if end is None or data[end : end + 2] not in (b",{", b"],", b"]}"):
        return None
    rest = data[:start] + data[end:].removeprefix(b",")
    metadata = TableMetadataUtil.parse_raw(rest.decode())
    share_fields_sets([*metadata.snapshots, *(one.summary for one in metadata.snapshots)])
    return metadata.model_copy(update={"snapshots": [*before.snapshots[: known.count], *metadata.snapshots]})


def _pieces(known: Sequence[bytes], texts: Iterable[bytes]) -> Iterator[bytes]:
    """The known pieces and the new texts. The last known piece grows until it is large enough; the others stay."""
    yield from known[:-1]
    waiting, size = list(known[-1:]), sum(map(len, known[-1:]))
    for text in texts:
        if size >= PIECE_BYTES:
            yield b",".join(waiting)
            waiting, size = [], 0
        waiting.append(text)
        size += len(text)
    if waiting:
        yield b",".join(waiting)


def share_fields_sets(models: Sequence[BaseModel | None]) -> None:
    """Pydantic stores a set of field names with each object: a tenth of the memory of a long history."""
    for model in models:
        if model is not None:
            shared = _FIELDS_SETS.setdefault(frozenset(model.model_fields_set), model.model_fields_set)
            object.__setattr__(model, "__pydantic_fields_set__", shared)


_FIELDS_SETS: dict[frozenset[str], set[str]] = {}


_KNOWN_UPDATES = (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
"""Kinds of updates that read only the snapshots that they name."""

_NO_SNAPSHOTS, _NO_LOG = '"snapshots":[]', '"snapshot-log":[]'
_VERSION = re.compile(r"(\d+)-.*\.metadata\.json")
_WITH_UUID = re.compile(r"/\d+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.gz)?\.metadata\.json$")


class CachingSqlCatalog(TakesTurns, SqlCatalog):
    """The same tables, rows, files and errors as PyIceberg's `SqlCatalog`."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._cached: dict[Identifier, CachedMetadata] = {}
        self.turns = Turns(self.engine)

    def close(self) -> None:
        """See `SqlCatalog`."""
        super().close()
        self.turns.close()

    def create_tables(self) -> None:
        """Create the catalog's own tables, even if another process creates them at the same time.

        PyIceberg checks first and then creates. If another process creates a table in between, PyIceberg fails, and
        the next attempt finds the table.
        """
        for _ in SqlCatalogBaseTable.metadata.tables:
            try:
                super().create_tables()
            except DBAPIError as error:
                if error.statement is None:  # the connection failed
                    raise
            else:
                return
        super().create_tables()

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load the table; its metadata file is read only if it changed since the last call."""
        name = Catalog.identifier_to_tuple(identifier)
        with self.engine.connect() as connection:
            location = connection.scalar(select(IcebergTables.metadata_location).where(*self._row(name)))
        cached = self._cached.get(name)
        if cached is None or cached.location != location:
            if location is not None and READING.get() is not None:
                # Not cached: a commit needs the snapshots as PyIceberg's objects.
                metadata = FromInputFile.table_metadata(self._load_file_io(location=location).new_input(location))
                return Table(name, metadata, location, self._load_file_io(metadata.properties, location), self)
            self._cached.pop(name, None)
            cached = self._grown(cached, location)
            if cached is None:
                with _naming(location):
                    table = super().load_table(identifier)
                cached = CachedMetadata(table.metadata_location, table.metadata)
            # A name without a UUID, such as v2.metadata.json of a Hadoop table, can be dropped and used again.
            if _WITH_UUID.search(cached.location) is not None:
                self._cached[name] = cached
        io = self._load_file_io(cached.metadata.properties, cached.location)
        return Table(name, cached.copy_for_caller(), cached.location, io, self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """See `SqlCatalog`."""
        name = table.name()
        if not all(isinstance(one, _KNOWN_UPDATES) for one in updates):
            return super().commit_table(table, requirements, updates)
        try:
            current = self.load_table(name)
        except NoSuchTableError:  # PyIceberg applies the requirements to a missing table
            return super().commit_table(table, requirements, updates)
        if current.metadata.format_version != SUPPORTED_FORMAT_VERSION:
            return super().commit_table(table, requirements, updates)
        for requirement in requirements:
            requirement.validate(current.metadata)
        check_schema_ids(current.metadata, updates)
        metadata = updated_metadata(current.metadata, updates, current.metadata_location)
        if metadata == current.metadata:
            return CommitTableResponse(metadata=metadata, metadata_location=current.metadata_location)
        found = _VERSION.fullmatch(current.metadata_location.rpartition("/")[2])
        after = Table(current.name(), metadata, current.metadata_location, current.io, current.catalog)
        location = after.location_provider().new_table_metadata_file_location(int(found[1]) + 1 if found else 0)
        cached = self._cached.get(name)
        known = cached.json if cached and cached.location == current.metadata_location else NONE_KNOWN
        written = write_metadata(metadata, known, current.io.new_output(location))
        self._swap(name, current.metadata_location, location)
        self._cached[name] = cached = CachedMetadata(location, metadata, written)
        return CommitTableResponse(metadata=cached.copy_for_caller(), metadata_location=location)

    def _grown(self, before: "CachedMetadata | None", location: str | None) -> "CachedMetadata | None":
        """What another process wrote, if it has all snapshots of before: these are not parsed again."""
        if before is None or location is None or not before.json.snapshots.pieces:
            return None
        with _naming(location), self._load_file_io(location=location).new_input(location).open() as stream:
            data = Compressor.get_compressor(location).stream_decompressor(stream).read()
            metadata = grown(data, before.metadata, before.json.snapshots)
        return None if metadata is None else CachedMetadata(location, metadata, HistoryJson(before.json.snapshots))

    def _swap(self, name: Identifier, before: str, after: str) -> None:
        swap = update(IcebergTables).where(*self._row(name), IcebergTables.metadata_location == before)
        with self.engine.begin() as connection:
            found = connection.execute(swap.values(metadata_location=after, previous_metadata_location=before))
            if found.rowcount < 1:
                raise CommitFailedException(f"Table has been updated by another process: {'.'.join(name)}")

    def _row(self, name: Identifier) -> tuple[Any, ...]:
        namespace = Catalog.namespace_to_string(Catalog.namespace_from(name))
        return (
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == namespace,
            IcebergTables.table_name == Catalog.table_name_from(name),
        )


@dataclass(frozen=True, slots=True)
class CachedMetadata:
    """A metadata file that this process read or wrote, with the JSON of its history that was already created."""

    location: str
    metadata: TableMetadata
    json: HistoryJson = NONE_KNOWN

    def copy_for_caller(self) -> TableMetadata:
        """A copy with its own properties and refs, because callers may change them. The other parts are shared."""
        own = {"properties": dict(self.metadata.properties), "refs": dict(self.metadata.refs)}
        return self.metadata.model_copy(update=own)


def metadata_json(metadata: TableMetadata, history: HistoryJson, *, exclude_none: bool) -> Iterator[bytes]:
    """The text of `metadata.model_dump_json`, in pieces; `history` is its own."""
    rest = metadata.model_copy(update={"snapshots": [], "snapshot_log": []}).model_dump_json(exclude_none=exclude_none)
    before, rest = rest.split(_NO_SNAPSHOTS, 1)  # in a string, its quotes would be escaped
    between, after = rest.split(_NO_LOG, 1)
    yield f'{before}"snapshots":['.encode()
    yield from history.snapshots.text
    yield f']{between}"snapshot-log":['.encode()
    yield from history.log.text
    yield f"]{after}".encode()


def write_metadata(metadata: TableMetadata, known: HistoryJson, output: OutputFile) -> HistoryJson:
    """Write a new metadata file, as PyIceberg's `ToOutputFile` does; raises FileExistsError if the file exists.

    It is written in pieces, without a complete copy in memory. A write call of two megabytes or more was several times
    slower on ext4. `known` is the JSON of an earlier file's history; returns that of this file's.
    """
    exclude_none = not Config().get_bool("legacy-current-snapshot-id")
    history = known.extended_to(metadata, exclude_none=exclude_none)
    pieces = metadata_json(metadata, history, exclude_none=exclude_none)
    compressor = Compressor.get_compressor(output.location)
    if compressor is not NOOP_COMPRESSOR:
        pieces = iter([compressor.bytes_compressor()(b"".join(pieces))])
    with output.create() as stream:
        for piece in pieces:
            stream.write(piece)
    return history


@contextmanager
def _naming(location: str | None) -> Iterator[None]:
    """Add the name of the metadata file to PyIceberg's error, because PyIceberg does not name it."""
    try:
        yield
    except METADATA_UNREADABLE as error:
        raise MetadataError(f"{str(location).rpartition('/')[2]}: {error}") from error


def updated_metadata(base: TableMetadata, updates: tuple[TableUpdate, ...], location: str) -> TableMetadata:
    """The metadata after updates of the kinds in `_KNOWN_UPDATES`; it shares all snapshots with `base`."""
    named = {one.snapshot_id for one in updates if isinstance(one, SetSnapshotRefUpdate)}
    named |= {one.snapshot.snapshot_id for one in updates if isinstance(one, AddSnapshotUpdate)}
    there = snapshots_by_id(base)
    kept = [there[one] for one in sorted(named) if one in there]
    slim = base.model_copy(update={"snapshots": kept, "snapshot_log": [], "metadata_log": []})
    after = update_table_metadata(slim, updates, metadata_location=location)
    added = after.snapshots[len(kept) :]
    share_fields_sets([*added, *(one.summary for one in added), *after.snapshot_log])
    log = [*base.metadata_log, *after.metadata_log]
    default = TableProperties.METADATA_PREVIOUS_VERSIONS_MAX_DEFAULT  # by PyIceberg's rule
    most = property_as_int(after.properties, TableProperties.METADATA_PREVIOUS_VERSIONS_MAX, default)
    return after.model_copy(
        update={
            "snapshots": with_added(base, added),
            "snapshot_log": [*base.snapshot_log, *after.snapshot_log],
            "metadata_log": log[-max(1, default if most is None else most) :] if after.metadata_log else log,
        }
    )


def check_schema_ids(base: TableMetadata, updates: Iterable[TableUpdate]) -> None:
    """Raise CommitFailedException if an added schema has the id of another one: PyIceberg would add it all the same.

    A column that another writer renamed and renamed back passes every requirement, but it took the next schema id.
    """
    taken = {schema.schema_id for schema in base.schemas}
    if any(isinstance(one, AddSchemaUpdate) and one.schema_.schema_id in taken for one in updates):
        raise CommitFailedException("Requirement failed: another writer has added a schema with this id")
