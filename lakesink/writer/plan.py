"""What the driver tells the executors: one picklable value, no client, no secret, no PyIceberg object."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of the partition spec.

    Attributes:
        source_id: Field id of the source column (may be nested in structs).
        field_id: Id of the partition field.
        name: Name of the partition field, as in the path of a data file.
        transform: As Iceberg spells it: ``identity``, ``bucket[16]``, ``truncate[4]``, ``month``, ``void``, ...
    """

    source_id: int
    field_id: int
    name: str
    transform: str


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """How Parquet files are encoded. Sizes in bytes.

    Attributes:
        compression_codec: ``zstd``, ``snappy``, ``gzip``, ``lz4``, ``brotli`` or ``uncompressed``.
        compression_level: Level, or None for the codec's default.
        row_group_size_bytes: Upper bound of a row group, as Arrow memory before encoding.
        page_size_bytes: Data page size.
        dictionary_size_bytes: Dictionary page limit of a column chunk.
    """

    compression_codec: str = "zstd"
    compression_level: int | None = None
    row_group_size_bytes: int = 128 * 1024 * 1024
    page_size_bytes: int = 1024 * 1024
    dictionary_size_bytes: int = 2 * 1024 * 1024


JSON, AVRO = "json", "avro"
"""Formats of documents."""


class OnMalformed(StrEnum):
    """What becomes of a value that cannot be decoded."""

    FAIL = "fail"
    NULL_ROW = "null-row"


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Everything one batch's tasks need to write data files of one table.

    Attributes:
        lakesink_version: The driver's version; another one in the executor is an error.
        schema_json: The Iceberg schema to write, as in the table's metadata.
        schema_id: Its id.
        spec_id: Partition spec to write under.
        partition_fields: Its fields, in order; empty for an unpartitioned table.
        premises: Digest of schema and spec, for the receipts.
        batch_id: The batch, for failpoints.
        data_location: Folder of data files, scheme included, no trailing slash.
        object_storage: True to spread files over hashed folders (``write.object-storage.enabled``).
        partitioned_paths: True to put partition values into paths.
        file_stem: Start of every file name: sink id and batch id, already safe as a path segment.
        file_io: Allow-listed, secret-free properties of the file system.
        catalog_name: Where executors look up secrets of the file system in their own PyIceberg configuration.
        case_sensitive: Spark's rule for matching column names.
        target_file_size_bytes: Roll to a new file at this size, as compressed.
        parquet: Encoding.
        metrics_modes: ``none``, ``counts``, ``truncate(n)`` or ``full`` by field id of a leaf column.
        buffer_bytes: Bound on Arrow memory that a task gathers before it writes row groups.
        open_files: Bound on files that a task holds open.
        decode: Format of the documents in the rows' column ``value``, ``json`` or ``avro``; None if the rows are the
            table's.
        on_malformed: What becomes of a document that cannot be decoded.
        show_values: True if messages may show the values that cannot be decoded.
        hash_distribution: True if the rows of a partition are to come to one task (``write.distribution-mode``).
        schema_registry: Where schemas of Avro documents are: a URL, or the file that the driver has read.
        writer_schemas: Those of the file by number.
    """

    lakesink_version: str
    schema_json: str
    schema_id: int
    spec_id: int
    partition_fields: tuple[PartitionField, ...]
    data_location: str
    file_stem: str
    batch_id: int = 0
    premises: str = ""
    object_storage: bool = False
    partitioned_paths: bool = True
    file_io: Mapping[str, str] = field(default_factory=dict)
    catalog_name: str | None = None
    case_sensitive: bool = False
    target_file_size_bytes: int = 512 * 1024 * 1024
    parquet: ParquetOptions = field(default_factory=ParquetOptions)
    metrics_modes: Mapping[int, str] = field(default_factory=dict)
    buffer_bytes: int = 128 * 1024 * 1024
    open_files: int = 100
    decode: str | None = None
    on_malformed: OnMalformed = OnMalformed.FAIL
    show_values: bool = False
    hash_distribution: bool = False
    schema_registry: str = ""
    writer_schemas: Mapping[int, str] = field(default_factory=dict)
