"""Settings in force for one table, each with its origin: option, else table property, else default.

A malformed number in a table property stops the stream with an error that names the property. An invalid metrics mode
falls back to the default, as in Iceberg's Java library. `ignored` lists the properties that lakesink ignores. No
property can name code to import.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from lakesink.rows.plan import DEFAULT_MODE, ParquetOptions, PartitionField, WritePlan
from lakesink.settings.parse import size_bytes, switch, whole_number
from lakesink_catalog.manifests.merging import MergePolicy
from lakesink_catalog.tables.locations import data_location
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import redact
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.suggest import did_you_mean, sentence

METRICS_PREFIX = "write.metadata.metrics."
MAX_INFERRED_COLUMNS = 100
_COLUMN_PREFIX = f"{METRICS_PREFIX}column."
_MODE = re.compile(r"none|counts|full|truncate\(([1-9]\d{0,8})\)")
_USED_ELSEWHERE = ("write.metadata.delete-after-commit.enabled",)
_OF_STATEMENTS = ("write.delete.mode", "write.merge.mode", "write.update.mode")
"""How other engines run DELETE, MERGE and UPDATE: they say nothing about a stream."""
_PREFIXES = ("write.", "commit.")
_LEVELS = {"zstd": (1, 22), "gzip": (1, 9), "brotli": (0, 11)}
_DISTRIBUTION_MODES = ("none", "hash", "range")
_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")


class Origin(Enum):
    """Where a value comes from."""

    OPTION = "option"
    TABLE = "table property"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Value:
    """A setting in force, and its origin."""

    value: Any
    origin: Origin


@dataclass(frozen=True, slots=True)
class TableProperty:
    """A table property that lakesink uses; `read` parses its text or raises ValueError with a hint."""

    name: str
    read: Callable[[object], Any]
    default: Any


def codec(value: object) -> str:
    """Parse Iceberg's name of a Parquet codec, in any case."""
    return _one_of(_CODECS, "a codec", "uncompressed" if str(value).strip().lower() == "none" else value)


def distribution_mode(value: object) -> str:
    """Parse Iceberg's name of a distribution mode, in any case."""
    return _one_of(_DISTRIBUTION_MODES, "a distribution mode", value)


def _one_of(names: Sequence[str], what: str, value: object) -> str:
    word = str(value).strip().lower()
    if word not in names:
        raise ValueError(f"expected {what}. {did_you_mean(word, names)}")
    return word


MIN_COUNT_TO_MERGE = "commit.manifest.min-count-to-merge"
DEFAULTS_OF_CHANGES: Mapping[str, Any] = {MIN_COUNT_TO_MERGE: 20}
"""Other defaults for streams that change rows by key. Engines plan each manifest of a read, and a stream that
deletes rows of most files leaves little time to compact them."""

_count = partial(whole_number, lowest=0, highest=1_000_000)
_milliseconds = partial(whole_number, lowest=0, highest=7 * 86_400_000)  # a larger value would mean "never"

PROPERTIES = (
    TableProperty("write.parquet.compression-codec", codec, "zstd"),
    TableProperty("write.parquet.compression-level", partial(whole_number, highest=100), None),
    TableProperty("write.parquet.row-group-size-bytes", size_bytes, 128 * 1024**2),
    TableProperty("write.parquet.page-size-bytes", size_bytes, 1024**2),
    TableProperty("write.parquet.dict-size-bytes", size_bytes, 2 * 1024**2),
    TableProperty("write.distribution-mode", distribution_mode, "none"),
    TableProperty("write.target-file-size-bytes", size_bytes, 512 * 1024**2),
    TableProperty("write.data.path", str, None),
    TableProperty("write.metadata.path", str, None),
    TableProperty("write.metadata.previous-versions-max", _count, 100),
    TableProperty("write.object-storage.enabled", switch, default=False),
    TableProperty("write.object-storage.partitioned-paths", switch, default=True),
    TableProperty("commit.retry.num-retries", _count, 20),
    TableProperty("commit.retry.min-wait-ms", _milliseconds, 100),
    TableProperty("commit.retry.max-wait-ms", _milliseconds, 10_000),
    TableProperty("commit.retry.total-timeout-ms", _milliseconds, 1_800_000),
    TableProperty("commit.manifest-merge.enabled", switch, default=True),
    TableProperty(MIN_COUNT_TO_MERGE, _count, 100),
    TableProperty("commit.manifest.target-size-bytes", size_bytes, 8 * 1024**2),
)


@dataclass(frozen=True, slots=True)
class Effective:
    """Settings in force for one table, by property name."""

    values: Mapping[str, Value]
    table_properties: Mapping[str, str]

    @classmethod
    def of(
        cls, options: Mapping[str, Any], table_properties: Mapping[str, str], defaults: Mapping[str, Any] | None = None
    ) -> "Effective":
        """Apply the precedence; `options` has values by the table property that they override, None if not given.

        `defaults` are other ones than those of `PROPERTIES`.
        """
        others = defaults or {}
        values = {
            known.name: _chosen(known, options.get(known.name), table_properties, others.get(known.name, known.default))
            for known in PROPERTIES
        }
        return cls(_agreed(values), table_properties)

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    @property
    def parquet(self) -> ParquetOptions:
        """How Parquet files are encoded."""
        return ParquetOptions(
            compression_codec=self["write.parquet.compression-codec"],
            compression_level=self["write.parquet.compression-level"],
            row_group_size_bytes=self["write.parquet.row-group-size-bytes"],
            page_size_bytes=self["write.parquet.page-size-bytes"],
            dictionary_size_bytes=self["write.parquet.dict-size-bytes"],
        )

    @property
    def retry(self) -> RetryPolicy:
        """Bounds of the commit loop."""
        return RetryPolicy(
            num_retries=self["commit.retry.num-retries"],
            min_wait_ms=self["commit.retry.min-wait-ms"],
            max_wait_ms=self["commit.retry.max-wait-ms"],
            total_timeout_ms=self["commit.retry.total-timeout-ms"],
        )

    @property
    def merge(self) -> MergePolicy:
        """When manifests are merged."""
        return MergePolicy(
            enabled=self["commit.manifest-merge.enabled"],
            min_count=self[MIN_COUNT_TO_MERGE],
            target_size_bytes=self["commit.manifest.target-size-bytes"],
        )

    def plan(self, table: Table, file_stem: str, batch_id: int, file_io: Mapping[str, str]) -> WritePlan:
        """How rows with the table's columns are written, under its present schema and default spec."""
        schema, spec = table.schema(), table.spec()
        return WritePlan(
            schema_json=schema.model_dump_json(),
            schema_id=schema.schema_id,
            spec_id=spec.spec_id,
            partition_fields=partition_fields(spec),
            data_location=data_location(table),
            file_stem=file_stem,
            batch_id=batch_id,
            object_storage=self["write.object-storage.enabled"],
            partitioned_paths=self["write.object-storage.partitioned-paths"],
            file_io=file_io,
            catalog_name=table.catalog.name,
            target_file_size_bytes=self["write.target-file-size-bytes"],
            parquet=self.parquet,
            metrics_modes=metrics_modes(table.properties, schema),
        )

    def ignored(self) -> Iterator[str]:
        """Names of the table's write and commit properties that lakesink ignores, sorted."""
        used = {known.name for known in PROPERTIES} | {*_USED_ELSEWHERE, *_OF_STATEMENTS}
        for name in sorted(self.table_properties):
            if name.startswith(_PREFIXES) and name not in used and not name.startswith(METRICS_PREFIX):
                parquet = name == "write.format.default" and self.table_properties[name].lower() == "parquet"
                if not parquet:
                    yield name


def unsupported_level(codec_name: str, level: int) -> str:
    """Why the codec does not support the level; empty if it does."""
    if codec_name not in _LEVELS:
        return f"the codec {codec_name} has no levels"
    lowest, highest = _LEVELS[codec_name]
    return "" if lowest <= level <= highest else f"the codec {codec_name} has levels {lowest} to {highest}"


def _chosen(known: TableProperty, option: Any, table_properties: Mapping[str, str], default: Any) -> Value:
    if option is not None:
        return Value(option, Origin.OPTION)
    text = table_properties.get(known.name)
    if text is None:
        return Value(default, Origin.DEFAULT)
    try:
        return Value(known.read(text), Origin.TABLE)
    except ValueError as error:
        raise SettingsError.of(
            "SETTING_INVALID", name=known.name, text=redact(text)[:60], why=sentence(str(error))
        ) from None


def _agreed(values: dict[str, Value]) -> dict[str, Value]:
    """A level belongs to the codec that it was chosen for: a table's level is never used with an option's codec."""
    chosen, level = values["write.parquet.compression-codec"], values["write.parquet.compression-level"]
    if level.value is None:
        return values
    foreign = chosen.origin is Origin.OPTION and level.origin is Origin.TABLE
    if foreign or (level.origin is Origin.TABLE and chosen.value not in _LEVELS):
        return values | {"write.parquet.compression-level": Value(None, Origin.DEFAULT)}
    why = unsupported_level(chosen.value, level.value)
    if not why:
        return values
    if level.origin is Origin.OPTION:
        raise SettingsError.of("OPTION_INVALID.level", value=level.value, why=why)
    raise SettingsError.of(
        "SETTING_INVALID", name="write.parquet.compression-level", text=redact(str(level.value))[:60], why=sentence(why)
    )


def partition_fields(spec: PartitionSpec) -> tuple[PartitionField, ...]:
    """The fields of a spec, for a plan."""
    return tuple(PartitionField(one.source_id, one.field_id, one.name, str(one.transform)) for one in spec.fields)


def metrics_modes(properties: Mapping[str, str], schema: Schema) -> dict[int, str]:
    """Metrics mode of each leaf column by field id: ``none``, ``counts``, ``truncate(n)`` or ``full``.

    By the rules of Iceberg's Java library. An invalid mode counts as `DEFAULT_MODE`. Without a configured default, only
    the first ``max-inferred-column-defaults`` leaf columns get statistics, upper levels first. Columns inside lists and
    maps get ``counts`` at most, because Iceberg has no bounds for them.
    """
    configured = properties.get(f"{METRICS_PREFIX}default")
    default = DEFAULT_MODE if configured is None else _mode(configured)
    limit = _limit(properties) if configured is None else None
    modes: dict[int, str] = {}
    for place, (field_id, repeated) in enumerate(_leaves(schema.fields)):
        name = schema.find_column_name(field_id)
        own = properties.get(f"{_COLUMN_PREFIX}{name}")
        mode = _mode(own) if own is not None else "none" if limit is not None and place >= limit else default
        modes[field_id] = "counts" if repeated and mode != "none" else mode
    return modes


def _mode(text: str) -> str:
    word = text.strip().lower()
    return word if _MODE.fullmatch(word) else DEFAULT_MODE


def _limit(properties: Mapping[str, str]) -> int:
    text = properties.get(f"{METRICS_PREFIX}max-inferred-column-defaults", "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else MAX_INFERRED_COLUMNS


def _leaves(fields: Sequence[NestedField], *, repeated: bool = False) -> Iterator[tuple[int, bool]]:
    """Field ids of leaf columns, upper levels first; the flag is True inside a list or map."""
    for field in fields:
        if isinstance(field.field_type, PrimitiveType):
            yield field.field_id, repeated
    for field in fields:
        inner, within = _members(field.field_type)
        yield from _leaves(inner, repeated=repeated or within)


def _members(outer: IcebergType) -> tuple[Sequence[NestedField], bool]:
    if isinstance(outer, StructType):
        return outer.fields, False
    if isinstance(outer, ListType):
        return (outer.element_field,), True
    if isinstance(outer, MapType):
        return (outer.key_field, outer.value_field), True
    return (), False
