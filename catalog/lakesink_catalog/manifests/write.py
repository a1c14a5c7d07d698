"""Writes manifests from receipts: one manifest per partition spec, many entries per block."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

from pyiceberg import manifest as iceberg
from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.io import OutputFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField, StringType, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakesink_catalog.manifests.avro import container, with_inline_types
from lakesink_catalog.manifests.encode import entry_encoder
from lakesink_catalog.manifests.entries import ADDED, DATA, DELETED, DELETES, EXISTING, REFERENCED_DATA_FILE
from lakesink_catalog.manifests.partitions import kinds_of, partition_type, summaries
from lakesink_catalog.tables.locations import metadata_location
from lakesink_protocol.change import ContentFile
from lakesink_protocol.receipt_json import base64_text, flag, optional_binary, plain_text, whole_count

ENTRIES_PER_BLOCK = 1000
_REFERENCED = NestedField(REFERENCED_DATA_FILE, "referenced_data_file", StringType(), required=False)
UNASSIGNED_SEQUENCE = -1

# Not Snappy: PyIceberg writes it only where an optional package is installed.
AVRO_CODECS: Mapping[str, AvroCompressionCodec] = {"gzip": "deflate", "zstd": "zstandard", "uncompressed": "null"}


def as_listed(  # noqa: PLR0913 - what an entry of a list states
    path: str,
    length: int,
    counts: Mapping[int, tuple[int, int]],
    *,
    spec_id: int,
    snapshot_id: int,
    partitions: Sequence[iceberg.PartitionFieldSummary],
    content: iceberg.ManifestContent = iceberg.ManifestContent.DATA,
    min_sequence_number: int = UNASSIGNED_SEQUENCE,
) -> iceberg.ManifestFile:
    """A manifest that a snapshot adds, for its manifest list; `counts` has files and rows by status.

    It is new for every attempt: PyIceberg writes the sequence number into the object that it gets.
    """
    counted: dict[str, Any] = {}
    for status, name in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
        counted[f"{name}_files_count"], counted[f"{name}_rows_count"] = counts.get(status, (0, 0))
    return iceberg.ManifestFile.from_args(
        manifest_path=path,
        manifest_length=length,
        partition_spec_id=spec_id,
        content=content,
        sequence_number=UNASSIGNED_SEQUENCE,
        min_sequence_number=min_sequence_number,
        added_snapshot_id=snapshot_id,
        partitions=list(partitions),
        key_metadata=None,
        **counted,
    )


@dataclass(frozen=True, slots=True)
class ManifestRecord:
    """A manifest as its manifest list will describe it, before its sequence number is known."""

    path: str
    length_bytes: int
    spec_id: int
    snapshot_id: int
    files: int
    rows: int
    partitions: tuple[iceberg.PartitionFieldSummary, ...]

    def to_manifest_file(self) -> iceberg.ManifestFile:
        """See `as_listed`."""
        return as_listed(
            self.path,
            self.length_bytes,
            {ADDED: (self.files, self.rows)},
            spec_id=self.spec_id,
            snapshot_id=self.snapshot_id,
            partitions=self.partitions,
        )

    def to_json(self) -> dict[str, Any]:
        """JSON form for the prepared record."""
        return {
            "path": self.path,
            "bytes": self.length_bytes,
            "spec": self.spec_id,
            "files": self.files,
            "rows": self.rows,
            "partitions": [
                [part.contains_null, part.contains_nan, base64_text(part.lower_bound), base64_text(part.upper_bound)]
                for part in self.partitions
            ],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], snapshot_id: int) -> "ManifestRecord":
        """The inverse of `to_json`; a malformed document raises ValueError, TypeError or KeyError."""
        return cls(
            path=plain_text(document["path"]),
            length_bytes=whole_count(document["bytes"]),
            spec_id=whole_count(document["spec"]),
            snapshot_id=snapshot_id,
            files=whole_count(document["files"]),
            rows=whole_count(document["rows"]),
            partitions=tuple(
                iceberg.PartitionFieldSummary(flag(null), flag(nan), optional_binary(lower), optional_binary(upper))
                for null, nan, lower, upper in document["partitions"]
            ),
        )


def write_batch_manifests(
    table: Table, files: Sequence[ContentFile], *, schema: Schema, snapshot_id: int
) -> tuple[ManifestRecord, ...]:
    """Write one manifest per spec, with the id of the new snapshot; the files were written under `schema`."""
    by_spec = sorted(files, key=lambda file: file.spec_id)
    return tuple(
        _write_batch_manifest(table, table.specs()[spec_id], schema, list(group), snapshot_id)
        for spec_id, group in groupby(by_spec, key=lambda file: file.spec_id)
    )


def _write_batch_manifest(
    table: Table, spec: PartitionSpec, schema: Schema, files: Sequence[ContentFile], snapshot_id: int
) -> ManifestRecord:
    encode = entry_encoder(avro_layout(spec, schema), snapshot_id)
    output = new_metadata_file(table, f"{snapshot_id}-{uuid.uuid4()}-m{spec.spec_id}.avro")
    length = write_entries(output, header_metadata(spec, schema), [encode(file) for file in files], codec_of(table))
    return ManifestRecord(
        path=output.location,
        length_bytes=length,
        spec_id=spec.spec_id,
        snapshot_id=snapshot_id,
        files=len(files),
        rows=sum(file.record_count for file in files),
        partitions=summaries(kinds_of(spec, schema), {file.partition for file in files}),
    )


def entry_schema(spec: PartitionSpec, schema: Schema, content: bytes = DATA) -> Schema:
    """Iceberg's schema of the entries of a manifest. PyIceberg's for version 2 lacks a field of delete files."""
    file_type = iceberg.data_file_with_partition(partition_type(spec, schema), format_version=2)
    if content == DELETES:
        file_type = StructType(*file_type.fields, _REFERENCED)
    return iceberg.manifest_entry_schema_with_data_file(format_version=2, data_file=file_type)


def avro_layout(spec: PartitionSpec, schema: Schema, content: bytes = DATA) -> Any:
    """The same as an Avro schema. PyIceberg defines a type twice if two partition fields have it."""
    return json.loads(avro_schema_of(spec.model_dump_json(), schema.model_dump_json(), content))


@lru_cache(maxsize=64)
def avro_schema_of(spec_json: str, schema_json: str, content: bytes) -> str:
    """The same as JSON text, by the content of spec and schema: batches of a stream mostly share both."""
    spec, schema = PartitionSpec.model_validate_json(spec_json), Schema.model_validate_json(schema_json)
    layout = AvroSchemaConversion().iceberg_to_avro(entry_schema(spec, schema, content), "manifest_entry")
    return json.dumps(with_inline_types(layout))


def header_metadata(spec: PartitionSpec, schema: Schema, content: bytes = DATA) -> dict[str, bytes]:
    """What the header of a manifest says, except its codec."""
    metadata = {
        "schema": (schema_json := schema.model_dump_json()),
        "partition-spec": "[" + ",".join(field.model_dump_json() for field in spec.fields) + "]",
        "partition-spec-id": str(spec.spec_id),
        "format-version": "2",
        "content": content.decode(),
        "avro.schema": avro_schema_of(spec.model_dump_json(), schema_json, content),
    }
    return {name: value.encode() for name, value in metadata.items()}


def write_entries(
    output: OutputFile, metadata: Mapping[str, bytes], encoded: Sequence[bytes], codec: AvroCompressionCodec
) -> int:
    """Write one manifest in blocks of many entries, and return its size in bytes; `metadata` is for its header.

    PyIceberg's own writer makes one block per entry, which readers must decompress one by one.
    """
    parts = [encoded[start : start + ENTRIES_PER_BLOCK] for start in range(0, len(encoded), ENTRIES_PER_BLOCK)]
    data = container(metadata, codec, parts)
    with output.create(overwrite=True) as stream:
        stream.write(data)
    return len(data)


def new_metadata_file(table: Table, name: str) -> OutputFile:
    """A new file in the table's metadata location."""
    return table.io.new_output(f"{metadata_location(table)}/{name}")


def codec_of(table: Table) -> AvroCompressionCodec:
    """Avro codec of manifests and manifest lists: the table's codec, or gzip if it is unset or unavailable."""
    return AVRO_CODECS.get(table.properties.get("write.avro.compression-codec", "gzip").lower(), "deflate")
