"""The prepared batch of one table: its pre-commit, durable between the receipts and the commit.

The records are files under the table's metadata location, see `lakesink_catalog.commit.record`.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID

from lakesink_catalog.commit.premises import Premises
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.commit.record import MAX_RECORD_BYTES, PreparedRecords, batch_identity
from lakesink_catalog.connect.catalog_failures import translate_storage_errors
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.manifests.avro import Header, read_header, values
from lakesink_catalog.manifests.copying import AtOnce
from lakesink_catalog.manifests.entries import (
    ADDED,
    CONTENT,
    DATA_FILE,
    FILE_PATH,
    FILE_SEQUENCE_NUMBER,
    FILE_SIZE,
    PARTITION,
    RECORD_COUNT,
    SEQUENCE_NUMBER,
    SNAPSHOT_ID,
    SORT_ORDER_ID,
    STATUS,
    check_version,
    partition_kinds,
    single_values,
)
from lakesink_catalog.manifests.partitions import summaries
from lakesink_catalog.manifests.write import ManifestRecord
from lakesink_protocol.change import SchemaChange
from lakesink_protocol.events import Listener, PreparedDropped
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.ledger import LedgerEntry, typed_entry
from lakesink_protocol.measures import DEAD_LETTERS, RESCUED_ROWS, UNMET_ROWS
from lakesink_protocol.quality import Quality, quality_from
from lakesink_protocol.receipt_json import MOST_IN_A_BATCH, plain_text, whole_count
from lakesink_protocol.row_changes import KeysFile

CHUNK_BYTES = 1024 * 1024
SNAPSHOT_IDS = range(2**31, 2**63)
"""Below this range, Trino needs a cast. With an id above it, readers show an empty table."""


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """One table's part of a prepared batch: everything that a commit attempt needs.

    Attributes:
        snapshot_id: Id of the new snapshot, chosen once for all attempts.
        premises: Schema and specs of the files.
        follows: Ledger entry at the time of the prepare; None if there was none.
        accepted: The accept as the user wrote it; empty if none.
        manifests: One for each partition spec.
        files: Path and size in bytes of every data file.
        schema_change: The schema change that the batch brings; None if it brings none.
        changes: The changes of rows by key; None if the batch only appends.
        partitions: Number of distinct partitions.
        begun_ms: Wall clock before the first of these files was created.
        without_inputs: Number of missing input files that an operator accepted.
        recovered: True if an earlier run prepared the batch. Not part of the record.
    """

    table_uuid: str
    branch: str
    snapshot_id: int
    schema_id: int
    premises: Premises
    follows: LedgerEntry | None
    accepted: str
    manifests: tuple[ManifestRecord, ...]
    files: tuple[tuple[str, int], ...]
    rows: int
    partitions: int
    begun_ms: int
    without_inputs: int
    recovered: bool = False
    quality: Quality = field(default_factory=Quality)
    schema_change: SchemaChange | None = None
    changes: PreparedChanges | None = None

    @property
    def payload(self) -> dict[str, Any]:
        """JSON form for the prepared record."""
        return {
            "table_uuid": self.table_uuid,
            "branch": self.branch,
            "snapshot_id": self.snapshot_id,
            "schema_id": self.schema_id,
            "premises": self.premises.to_json(),
            "follows": None if self.follows is None else self.follows.document,
            "accepted": self.accepted,
            "manifests": [manifest.to_json() for manifest in self.manifests],
            "files": [list(file) for file in self.files],
            "rows": self.rows,
            "partitions": self.partitions,
            "begun_ms": self.begun_ms,
            "without_inputs": self.without_inputs,
            "quality": self.quality.to_json(),
            "schema_change": None if self.schema_change is None else self.schema_change.to_json(),
            "changes": None if self.changes is None else self.changes.to_json(),
        }

    def is_there(self, io: FileIO, at_once: AtOnce) -> bool:
        """True if every data file, every manifest and every keys file exists and has its size."""
        manifests = ((manifest.path, manifest.length_bytes) for manifest in self.manifests)
        keys = ((file.path, file.size_bytes) for file in self.changes.keys_files) if self.changes else ()
        files = [*manifests, *self.files, *keys]
        return translate_storage_errors(io.properties, lambda: all(at_once(partial(_is_there, io), files)))


def parse_prepared(payload: Mapping[str, Any], emit: Listener = LISTENERS) -> PreparedBatch | None:
    """The batch that an earlier run prepared; None if the payload is malformed."""
    try:
        snapshot_id = payload["snapshot_id"]
        follows, schema_change, changes = payload["follows"], payload["schema_change"], payload["changes"]
        prepared = PreparedBatch(
            table_uuid=plain_text(payload["table_uuid"]),
            branch=plain_text(payload["branch"]),
            snapshot_id=snapshot_id,
            schema_id=whole_count(payload["schema_id"]),
            premises=Premises.from_json(payload["premises"]),
            follows=None if follows is None else typed_entry(follows),
            accepted=plain_text(payload["accepted"]),
            manifests=tuple(ManifestRecord.from_json(document, snapshot_id) for document in payload["manifests"]),
            files=tuple((plain_text(path), whole_count(size)) for path, size in payload["files"]),
            rows=whole_count(payload["rows"]),
            partitions=whole_count(payload["partitions"]),
            begun_ms=whole_count(payload["begun_ms"]),
            without_inputs=whole_count(payload["without_inputs"]),
            recovered=True,
            quality=quality_from(payload["quality"]),
            schema_change=None if schema_change is None else SchemaChange.from_json(schema_change),
            changes=None if changes is None else PreparedChanges.from_json(changes),
        )
        _check_agreement(prepared)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        emit(PreparedDropped("malformed", error=type(error).__name__))
        return None
    return prepared


@dataclass(slots=True)
class TableLog(PreparedRecords):
    """Prepared records of one sink beside its table, see `PreparedRecords`.

    `folder` is ``<metadata location>/lakesink/<sink id>/<branch>``.
    """

    io: FileIO
    folder: str
    key: SinkKey
    max_age_ms: int
    now_ms: Callable[[], int]
    emit: Listener = LISTENERS
    _last_landed: str | None = field(default=None, init=False)

    def _identity(self, batch: Batch) -> dict[str, Any]:
        key = self.key
        return {"sink": key.name, "kind": key.kind.value, "branch": key.branch, **batch_identity(batch)}

    def _read(self, path: str) -> bytes | None:
        def read() -> bytes | None:
            try:
                with self.io.new_input(path).open() as stream:
                    return stream.read(MAX_RECORD_BYTES)
            except FileNotFoundError:
                return None

        return translate_storage_errors(self.io.properties, read)

    def _write(self, path: str, data: bytes) -> None:
        def write() -> None:
            with self.io.new_output(path).create(overwrite=True) as stream:
                stream.write(data)

        translate_storage_errors(self.io.properties, write)

    def _remove(self, path: str) -> None:
        self.io.delete(path)


def _check_agreement(prepared: PreparedBatch) -> None:
    """All parts of a record must agree on files and rows, without duplicates. Its snapshot has an id of lakesink's."""
    manifests, files = prepared.manifests, prepared.files
    if type(prepared.snapshot_id) is not int or prepared.snapshot_id not in SNAPSHOT_IDS:
        raise ValueError("not an id that lakesink assigns")
    alike = sum(manifest.files for manifest in manifests) == len(files) >= prepared.partitions
    if not alike or sum(manifest.rows for manifest in manifests) != prepared.rows:
        raise ValueError("other files or rows than its manifests")
    if prepared.premises.ids != (prepared.schema_id, tuple(sorted({one.spec_id for one in manifests}))):
        raise ValueError("premises of other ids")
    if len({path for path, _ in files}) != len(files) or len({one.path for one in manifests}) != len(manifests):
        raise ValueError("a file or manifest occurs twice")
    counts, changes = prepared.quality.counts, prepared.changes
    unmet = counts[UNMET_ROWS] - counts[DEAD_LETTERS]
    judged = prepared.rows if changes is None else changes.rows + changes.left_out  # also rows that others replaced
    if max(unmet, counts[RESCUED_ROWS]) > judged:
        raise ValueError("more unexpected or rescued rows than rows")
    if max(prepared.rows, sum(size for _, size in files)) > MOST_IN_A_BATCH:
        raise ValueError("too many rows or bytes")
    if changes is not None and changes.rows < prepared.rows:
        raise ValueError("rows without a key")


def _is_there(io: FileIO, file: tuple[str, int]) -> bool:
    path, size = file
    try:
        return len(io.new_input(path)) == size
    except FileNotFoundError:
        return False


def matches_manifests(prepared: PreparedBatch, io: FileIO) -> bool:
    """True if the manifests add exactly the record's files, with the same sizes, rows and partition bounds.

    The manifests must name the schema and the specs of its premises. A storage error other than a missing file is
    raised.
    """
    try:
        found = list(_files(prepared, io))
    except FileNotFoundError:
        return False
    except OSError:
        raise
    except Exception:  # noqa: BLE001 - decoders raise any exception for damaged bytes
        return False
    return sorted(found) == sorted(prepared.files)


def matches_keys_files(prepared: PreparedBatch, io: FileIO, at_once: AtOnce) -> bool:
    """True if every keys file of the record has the bytes that its task wrote. A storage error is raised."""
    files = prepared.changes.keys_files if prepared.changes else ()
    try:
        return all(at_once(partial(_is_whole, io), files))
    except FileNotFoundError:
        return False


def _is_whole(io: FileIO, file: KeysFile) -> bool:
    digest = hashlib.sha256()
    with io.new_input(file.path).open() as stream:
        while data := stream.read(CHUNK_BYTES):
            digest.update(data)
    return digest.hexdigest() == file.sha256


def _files(prepared: PreparedBatch, io: FileIO) -> Iterator[tuple[str, int]]:
    for manifest in prepared.manifests:
        with io.new_input(manifest.path).open() as stream:
            data = stream.read()
        header = read_header(data)
        check_version(header.metadata)
        _check_premises(header, manifest, prepared.premises)
        kinds, partitions, rows = partition_kinds(header.schema), set(), 0
        orders = {None, UNSORTED_SORT_ORDER_ID, *(order.order_id for order in prepared.premises.orders)}
        for entry in values(data, header):
            file = entry[DATA_FILE]
            numbers = entry[SEQUENCE_NUMBER], entry[FILE_SEQUENCE_NUMBER]
            if (entry[STATUS], entry[SNAPSHOT_ID], *numbers) != (ADDED, prepared.snapshot_id, None, None):
                raise ValueError("an entry that this batch does not add")
            if file[CONTENT] != DataFileContent.DATA or file[RECORD_COUNT] <= 0 or file[SORT_ORDER_ID] not in orders:
                raise ValueError("an entry that is not a data file, or has an order that is not of the premises")
            rows += file[RECORD_COUNT]
            partitions.add(single_values(kinds, file[PARTITION]))
            yield file[FILE_PATH], file[FILE_SIZE]
        if rows != manifest.rows or summaries(kinds, partitions) != manifest.partitions:
            raise ValueError("other rows or partitions than in the record")


def _check_premises(header: Header, manifest: ManifestRecord, premises: Premises) -> None:
    """The manifest must have the schema and the spec of the record's premises, field by field."""
    spec = next(spec for spec in premises.specs if spec.spec_id == manifest.spec_id)
    fields = tuple(PartitionField.model_validate(field) for field in json.loads(header.metadata["partition-spec"]))
    same_spec = int(header.metadata["partition-spec-id"]) == spec.spec_id and fields == spec.fields
    if not same_spec or Schema.model_validate_json(header.metadata["schema"]) != premises.schema:
        raise ValueError("written under another schema or spec")
