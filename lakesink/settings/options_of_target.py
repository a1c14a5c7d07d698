"""Options of the target: the sink, its table, and the files of its rows."""

import os
from collections.abc import Mapping
from typing import Any

from lakesink.settings.ddl import columns_of
from lakesink.settings.option import Option, read_name, read_text
from lakesink.settings.parse import size_bytes, switch, whole_number
from lakesink.settings.table_settings import codec, distribution_mode


def _branch(value: Any) -> str:
    text = read_text(value)
    if text != text.strip() or len(text) > 255:
        raise ValueError("expected the name of a branch, at most 255 characters")
    return text


def _checkpoint(value: Any) -> str:
    text = read_text(os.fspath(value) if isinstance(value, os.PathLike) else value)
    if text.startswith("~"):
        raise ValueError(f"only a shell expands ~; write {os.path.expanduser(text)!r}")  # noqa: PTH111 - a URI stays
    return text


def _partition_by(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text such as 'month(time_hour), bucket(16, carrier)'")  # noqa: TRY004 - all parsers raise ValueError
    return value


def _schema(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text such as 'id BIGINT NOT NULL, at TIMESTAMP'")  # noqa: TRY004 - as above
    columns_of(value)
    return value


def _catalog_properties(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError("expected a mapping from names to values")
    return dict(value)


OPTIONS_OF_TARGET = (
    Option(
        "sink_id",
        "text",
        read_name,
        "required",
        "Permanent name of the stream in the table; it outlives the checkpoint. Each stream into a table needs one.",
    ),
    Option("checkpoint", "path or URI", _checkpoint, "required", "Spark's checkpoint location."),
    Option(
        "catalog",
        "text",
        read_text,
        "PyIceberg's default, else the embedded one",
        "Name of a catalog in PyIceberg's configuration.",
    ),
    Option(
        "catalog_properties",
        "mapping",
        _catalog_properties,
        "none",
        "Added to the catalog's configuration. They stay in the driver and are never printed.",
    ),
    Option("branch", "text", _branch, "`main`", "Branch to write; it must exist."),
    Option(
        "create_table",
        "true or false",
        switch,
        "false",
        "Create the table at the first batch, if it does not exist: from the DataFrame's schema; with `decode` from"
        " `schema`, or from the documents with `schema_evolution`.",
    ),
    Option(
        "partition_by",
        "text",
        _partition_by,
        "unpartitioned",
        'Partitions of a table that lakesink creates: `"month(time_hour), bucket(16, carrier)"`.',
    ),
    Option(
        "schema",
        "text",
        _schema,
        "none",
        "Columns of a table that lakesink creates for documents, in Spark's DDL: `\"id BIGINT NOT NULL, at TIMESTAMP,"
        ' items ARRAY<STRUCT<sku: STRING>>"`. A table that exists must have them, or gets them with'
        " `schema_evolution`.",
    ),
    Option(
        "target_file_size_bytes",
        "bytes, or `512MB`",
        size_bytes,
        "512 MiB",
        "Compressed size at which a task begins a new data file.",
        "write.target-file-size-bytes",
    ),
    Option(
        "compression_codec",
        "text",
        codec,
        "`zstd`",
        "`zstd`, `snappy`, `gzip`, `lz4`, `brotli` or `uncompressed`.",
        "write.parquet.compression-codec",
    ),
    Option(
        "compression_level",
        "whole number",
        whole_number,
        "the codec's own",
        "For `zstd` 1 to 22, `gzip` 1 to 9, `brotli` 0 to 11.",
        "write.parquet.compression-level",
    ),
    Option(
        "distribution_mode",
        "text",
        distribution_mode,
        "`none`",
        "`hash` shuffles every batch so that one task writes all rows of a partition: fewer files, but a shuffle takes"
        " time. Not for fields of `bucket` transforms. With `upsert` and `changes`, one task gets all changes of a"
        " key.",
        "write.distribution-mode",
    ),
)
