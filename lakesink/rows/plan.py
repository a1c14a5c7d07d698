"""The plan that the driver sends to the executors: picklable, without clients, secrets or PyIceberg objects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lakesink.rows.conditions import Condition
from lakesink_protocol.row_changes import Mode


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of the partition spec; `transform` is in Iceberg's spelling: ``bucket[16]``, ``month``, ``void``."""

    source_id: int
    field_id: int
    name: str
    transform: str


@dataclass(frozen=True, slots=True)
class SortField:
    """One field of the table's sort order; `transform` is spelled as in `PartitionField`."""

    source_id: int
    transform: str
    is_descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """The encoding of Parquet files. A row group's limit is Arrow memory before encoding; level None is the default."""

    compression_codec: str = "zstd"
    compression_level: int | None = None
    row_group_size_bytes: int = 128 * 1024 * 1024
    page_size_bytes: int = 1024 * 1024
    dictionary_size_bytes: int = 2 * 1024 * 1024


JSON, AVRO = "json", "avro"
"""Formats of documents."""
DEBEZIUM = DEBEZIUM_JSON, DEBEZIUM_AVRO = "debezium-json", "debezium-avro"
"""Formats of Debezium's events."""
DEFAULT_MODE = "truncate(16)"
"""Iceberg's metrics mode of a column for which a table names none."""


class OnMalformed(StrEnum):
    """The treatment of a document that cannot be decoded, or of another row that cannot be written."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


class BinaryEncoding(StrEnum):
    """How a text spells bytes."""

    BASE64 = "base64"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class NewsPlan:
    """What a task does with documents that its columns cannot hold.

    Attributes:
        widens: True if a column may become wider, or optional.
        kept_types: Ids of fields that do not become wider.
        kept_required: Ids of fields that stay required.
        refused: Keys of documents for which no column can be added, by their paths.
        is_last: True if the table follows the documents already, and no key that is still without a column gets one.
    """

    widens: bool
    kept_types: frozenset[int] = frozenset()
    kept_required: frozenset[int] = frozenset()
    refused: tuple[tuple[str, ...], ...] = ()
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class ChangesPlan:
    """How rows that are changes by key are written. All ids are of top-level columns of the table.

    Attributes:
        mode: Upsert or changes.
        keys: Field ids of the key, in order.
        sequence: Field ids of the columns whose greatest value is the newest change, the most significant one first.
        soft_deletes: True if a delete is stored as a row whose column `DELETED` is true.
        except_columns: Columns of the rows that are not stored.
        deletes: True for documents that delete; None if a mark or an event says which rows do, or if none does.
        has_changelog: True if all changes go to a changelog too, with all that deletes have.
        are_replayed: True if the changes were dead letters: the row of their key may be newer at an equal sequence.
    """

    mode: Mode
    keys: tuple[int, ...]
    sequence: tuple[int, ...] = ()
    soft_deletes: bool = False
    except_columns: tuple[str, ...] = ()
    deletes: Condition | None = None
    has_changelog: bool = False
    are_replayed: bool = False


DELETED = "_is_deleted"
"""The table's BOOLEAN column that marks rows as deleted, with soft deletes. Iceberg reserves ``_deleted``."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Everything that one batch's tasks need to write data files of one table.

    Attributes:
        premises: Digest of schema, spec and sort order, for the receipts.
        batch_id: The batch, for failpoints.
        data_location: Folder of data files, with scheme, without a trailing slash.
        file_stem: Start of every file name: sink id and batch id, safe as a path segment.
        file_io: Allow-listed properties of the file system, without secrets.
        catalog_name: Catalog whose file system secrets executors read from their own PyIceberg configuration.
        ignore_unknown: True to leave out columns of the rows that the table lacks.
        target_file_size_bytes: Compressed size at which a new file begins.
        metrics_modes: ``none``, ``counts``, ``truncate(n)`` or ``full`` by field id of a leaf column.
        buffer_bytes: Limit of Arrow memory that a task collects before it writes row groups.
        decode: Format of the documents in the column ``value``; None if the rows have the table's columns.
        binary_encoding: How texts of documents spell the bytes of BINARY columns; None if no text is taken for bytes.
        rescue_column: Column for what other columns do not hold of a document; empty if there is none.
        news: How the table follows documents; None if it does not.
        distribution_mode: ``none``; ``hash``: all rows of a partition in one task; ``range``: a range of the order.
        schema_registry: Location of the Avro schemas: a URL, or the file that the driver has read.
        writer_schemas: Schemas in that file, by number.
        changes: How rows change others by key; None if they are only appended.
        sort_order: Order of the rows of each file; empty if the table has none, or one that lakesink cannot keep.
        sort_order_id: That of the order; 0 without one.
    """

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
    ignore_unknown: bool = False
    target_file_size_bytes: int = 512 * 1024 * 1024
    parquet: ParquetOptions = field(default_factory=ParquetOptions)
    metrics_modes: Mapping[int, str] = field(default_factory=dict)
    buffer_bytes: int = 128 * 1024 * 1024
    open_files: int = 100
    decode: str | None = None
    on_malformed: OnMalformed = OnMalformed.FAIL
    show_values: bool = False
    binary_encoding: BinaryEncoding | None = None
    rescue_column: str = ""
    news: NewsPlan | None = None
    distribution_mode: str = "none"
    schema_registry: str = ""
    writer_schemas: Mapping[int, str] = field(default_factory=dict)
    changes: ChangesPlan | None = None
    sort_order: tuple[SortField, ...] = ()
    sort_order_id: int = 0
