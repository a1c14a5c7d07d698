"""A prepared batch that an earlier run left: parsed from its record, and compared with the files that it names."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID

from lakesink_catalog.commit.premises import Premises
from lakesink_catalog.commit.prepared import SNAPSHOT_IDS, PreparedBatch
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.manifests import entries
from lakesink_catalog.manifests.avro import Header, read_header, values
from lakesink_catalog.manifests.copying import AtOnce
from lakesink_catalog.manifests.partitions import summaries
from lakesink_catalog.manifests.write import ManifestRecord
from lakesink_protocol.change import SchemaChange
from lakesink_protocol.events import Listener, PreparedDropped
from lakesink_protocol.ledger import typed_entry
from lakesink_protocol.measures import DEAD_LETTERS, RESCUED_ROWS, UNMET_ROWS
from lakesink_protocol.quality import quality_from
from lakesink_protocol.receipt_json import MOST_IN_A_BATCH, plain_text, whole_count
from lakesink_protocol.row_changes import KeysFile

CHUNK_BYTES = 1024 * 1024


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
        entries.check_version(header.metadata)
        _check_premises(header, manifest, prepared.premises)
        kinds, partitions, rows = entries.partition_kinds(header.schema), set(), 0
        orders = {None, UNSORTED_SORT_ORDER_ID, *(order.order_id for order in prepared.premises.orders)}
        for entry in values(data, header):
            file = entry[entries.DATA_FILE]
            added = entry[entries.STATUS], entry[entries.SNAPSHOT_ID]
            numbers = entry[entries.SEQUENCE_NUMBER], entry[entries.FILE_SEQUENCE_NUMBER]
            if added != (entries.ADDED, prepared.snapshot_id) or numbers != (None, None):
                raise ValueError("an entry that this batch does not add")
            has_data = file[entries.CONTENT] == DataFileContent.DATA and file[entries.RECORD_COUNT] > 0
            if not has_data or file[entries.SORT_ORDER_ID] not in orders:
                raise ValueError("an entry that is not a data file, or has an order that is not of the premises")
            rows += file[entries.RECORD_COUNT]
            partitions.add(entries.single_values(kinds, file[entries.PARTITION]))
            yield file[entries.FILE_PATH], file[entries.FILE_SIZE]
        if rows != manifest.rows or summaries(kinds, partitions) != manifest.partitions:
            raise ValueError("other rows or partitions than in the record")


def _check_premises(header: Header, manifest: ManifestRecord, premises: Premises) -> None:
    """The manifest must have the schema and the spec of the record's premises, field by field."""
    spec = next(spec for spec in premises.specs if spec.spec_id == manifest.spec_id)
    fields = tuple(PartitionField.model_validate(field) for field in json.loads(header.metadata["partition-spec"]))
    same_spec = int(header.metadata["partition-spec-id"]) == spec.spec_id and fields == spec.fields
    if not same_spec or Schema.model_validate_json(header.metadata["schema"]) != premises.schema:
        raise ValueError("written under another schema or spec")
