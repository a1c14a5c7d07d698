"""Checks a prepared record against its manifests and keys files, which are read again.

Others may have write access to the folder of a record and its manifests. A manifest of the right size can still list a
file from elsewhere, a file of another batch, or a file twice. Before a commit from a record, every entry is checked.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import partial

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema

from lakesink_catalog.commit.premises import Premises
from lakesink_catalog.commit.prepared import PreparedBatch
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
    STATUS,
    check_version,
    partition_kinds,
    single_values,
)
from lakesink_catalog.manifests.partitions import summaries
from lakesink_catalog.manifests.write import ManifestRecord
from lakesink_protocol.row_changes import KeysFile

CHUNK_BYTES = 1024 * 1024


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
        check_version(header)
        _check_premises(header, manifest, prepared.premises)
        kinds, partitions, rows = partition_kinds(header.schema), set(), 0
        for entry in values(data, header):
            file = entry[DATA_FILE]
            numbers = entry[SEQUENCE_NUMBER], entry[FILE_SEQUENCE_NUMBER]
            if (entry[STATUS], entry[SNAPSHOT_ID], *numbers) != (ADDED, prepared.snapshot_id, None, None):
                raise ValueError("an entry that this batch does not add")
            if file[CONTENT] != DataFileContent.DATA or file[RECORD_COUNT] <= 0:
                raise ValueError("an entry that is not a data file")
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
