"""Options of the target: sink, table and files, and what snapshots, ledger and tags say of a batch, and how long."""

import json
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from lakesink.settings.ddl import columns_of
from lakesink.settings.option import LONGEST_TEXT, Option, read_name, read_place, read_sql, read_text
from lakesink.settings.parse import duration, metrics_reader, size_bytes, switch, target_size, whole_number
from lakesink.settings.table_settings import codec, distribution_mode
from lakesink_protocol.redact import contains_secret
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.suggest import did_you_mean
from lakesink_protocol.tags import SHORTEST_PERIOD_MS, EveryBatches, EveryPeriod, TagEvery

_OWN_SUMMARY = re.compile(
    r"(lakesink[.-]|(added|deleted|removed|replaced|total)-|partitions?[.-]|manifests-|wap\.|published-wap-|iceberg-).*"
    r"|operation|changed-partition-count|entries-processed|replace-partitions|source-snapshot-id|staged-wap.*"
)
_BATCHES = re.compile(r"\s*(\d{1,9})\s*(?:batch(?:es)?)?\s*", re.IGNORECASE | re.ASCII)


def _branch(value: Any) -> str:
    text = read_text(value)
    if text != text.strip() or len(text) > 255:
        raise ValueError("expected the name of a branch, at most 255 characters")
    return text


def _checkpoint(value: Any) -> str:
    text = read_place(value)
    if text.startswith("~"):
        raise ValueError(f"only a shell expands ~; write {os.path.expanduser(text)!r}")  # noqa: PTH111 - a URI stays
    return text


def _text_such_as(example: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text such as {example!r}")  # noqa: TRY004 - all parsers raise ValueError
    return value


def _schema(value: Any) -> str:
    columns_of(_text_such_as("id BIGINT NOT NULL, at TIMESTAMP", value))
    return str(value)


def _catalog_properties(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError("expected a mapping from names to values")
    return dict(value)


def _where(value: Any) -> str:
    from pyiceberg.expressions import parser  # noqa: PLC0415 - slow to import, and few streams have it

    text = read_sql(value)
    try:
        parser.parse(text)
    except Exception:  # noqa: BLE001 - of its parser's library
        raise ValueError("expected a condition such as \"day = '2026-01-01'\"") from None
    return text


_OF_MAINTENANCE: Mapping[str, Callable[[Any], Any]] = {
    "budget": duration,
    "target_file_size": target_size,
    "min_input_files": partial(whole_number, lowest=2),
    "where": _where,
    "gate": switch,
}


def _maintenance(value: Any) -> dict[str, Any] | Literal[False]:
    """Arguments of a `Policy`; False for no maintenance."""
    given = value
    try:
        if isinstance(value, str) and value.lstrip().startswith("{"):
            given = json.loads(value)
        if not isinstance(given, Mapping):
            return {} if switch(given) else False
    except (ValueError, RecursionError):
        raise ValueError("expected 'on', 'off', or a mapping such as {'budget': '2 seconds'}") from None
    found = {}
    for name, one in given.items():
        if name not in _OF_MAINTENANCE:
            raise ValueError(f"there is no {str(name)[:40]!r} in it. {did_you_mean(str(name), _OF_MAINTENANCE)}")
        try:
            found[name] = _OF_MAINTENANCE[name](one)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return found


OPTIONS_OF_TARGET = (
    Option(
        "sink_id",
        read_name,
        "Permanent name of the stream in the table; it outlives the checkpoint. Each stream into a table needs one.",
        default="required",
    ),
    Option("checkpoint", _checkpoint, "Spark's checkpoint location.", type="path or URI", default="required"),
    Option(
        "catalog",
        read_text,
        "Name of a catalog in PyIceberg's configuration.",
        default="PyIceberg's default, else the embedded one",
    ),
    Option(
        "catalog_properties",
        _catalog_properties,
        "Added to the catalog's configuration. They stay in the driver and are never printed.",
        type="mapping",
    ),
    Option("branch", _branch, "Branch to write; it must exist.", default="`main`"),
    Option(
        "create_table",
        switch,
        "Create the table at the first batch, if it does not exist: from the DataFrame's schema; with `decode` from"
        " `schema`, or from the documents with `schema_evolution`.",
        type="true or false",
        default="false",
    ),
    Option(
        "partition_by",
        partial(_text_such_as, "month(time_hour), bucket(16, carrier)"),
        'Partitions of a table that lakesink creates: `"month(time_hour), bucket(16, carrier)"`.',
        default="unpartitioned",
    ),
    Option(
        "sort_by",
        partial(_text_such_as, "day(at) desc, id"),
        'Sort order of a table that lakesink creates: `"day(at) desc nulls last, id"`. Tasks sort each file by the'
        " table's order.",
        default="unsorted",
    ),
    Option(
        "schema",
        _schema,
        "Columns of a table that lakesink creates for documents, in Spark's DDL: `\"id BIGINT NOT NULL, at TIMESTAMP,"
        ' items ARRAY<STRUCT<sku: STRING>>"`. A table that exists must have them, or gets them with'
        " `schema_evolution`.",
    ),
    Option(
        "target_file_size_bytes",
        size_bytes,
        "Compressed size at which a task begins a new data file.",
        type="bytes, or `512MB`",
        default="512 MiB",
        table_property="write.target-file-size-bytes",
    ),
    Option(
        "compression_codec",
        codec,
        "`zstd`, `snappy`, `gzip`, `lz4`, `brotli` or `uncompressed`.",
        default="`zstd`",
        table_property="write.parquet.compression-codec",
    ),
    Option(
        "compression_level",
        whole_number,
        "For `zstd` 1 to 22, `gzip` 1 to 9, `brotli` 0 to 11.",
        type="whole number",
        default="the codec's own",
        table_property="write.parquet.compression-level",
    ),
    Option(
        "distribution_mode",
        distribution_mode,
        "`hash` shuffles a batch so that one task writes all rows of a partition: fewer files, but a shuffle takes"
        " time. `range`: each task gets a range of the sort order, and bounds of files overlap little; Spark reads the"
        " batch twice. Not by `bucket`. With `upsert` and `changes`, one task gets all changes of a key.",
        default="`none`",
        table_property="write.distribution-mode",
    ),
    Option(
        "maintenance",
        _maintenance,
        "After a batch, its driver rewrites small files, and files with many deleted rows, in snapshots that change no"
        " row. A mapping, or its JSON text, may have `budget` (as long as the query waits for its batches, at most"
        " `'2 seconds'`), `target_file_size`, `min_input_files` (5), `where` (a condition on partition columns), and"
        " `gate`: true to go beyond the budget when the table is past a bound of its health. If the option is given, a"
        " query with the trigger `availableNow` does so at its end too, without the budget; one of"
        ' `format("lakesink")` does not.',
        type="`on`, `off`, or mapping",
        default="`on` with `upsert` and `changes`, else `off`",
    ),
)


def _snapshot_properties(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping from names to text")  # noqa: TRY004 - all parsers raise ValueError
    found = {}
    for key, entry in value.items():
        if _OWN_SUMMARY.fullmatch(read_text(key)):
            raise ValueError(f"{key!r} is a name that Iceberg or lakesink writes itself")
        if isinstance(entry, bool) or not isinstance(entry, (str, int)) or len(str(entry)) > LONGEST_TEXT:
            raise ValueError(f"expected text of at most {LONGEST_TEXT} characters under {key!r}")
        if contains_secret(key, entry):
            raise ValueError(f"{key!r} looks like a secret, and every reader of the table sees snapshot properties")
        found[key] = str(entry)
    return found


def _accept(value: Any) -> Accept:
    return value if isinstance(value, Accept) else Accept.parse(read_text(value))


def _tag_every(value: Any) -> TagEvery:
    counted = _BATCHES.fullmatch(value) if isinstance(value, str) else None
    try:
        if counted or isinstance(value, int):
            return EveryBatches(whole_number(counted[1] if counted else value, 1))
        span_ms = round(duration(value).total_seconds() * 1000)
    except ValueError:
        span_ms = 0
    if isinstance(value, float) or span_ms < SHORTEST_PERIOD_MS:
        raise ValueError("expected a number of batches, such as 100, or a time span of a second or more: '1 day'")
    return EveryPeriod(span_ms)


OPTIONS_OF_COMMIT = (
    Option("snapshot_properties", _snapshot_properties, "Added to the summary of every snapshot.", type="mapping"),
    Option(
        "accept",
        _accept,
        "Accepts one refused batch, once: `<Verdict>:<batch id>@<ledger>:commit` or `:skip`. Copy it from the"
        " message of the refusal.",
    ),
    Option(
        "prepared_max_age",
        duration,
        "A prepared batch older than this is written again. Stay below the age at which orphan cleanups delete files.",
        type="time span",
        default="20 hours",
    ),
    Option(
        "ledger_tag_max_age",
        duration,
        "Time after its last batch in which a sink can still prove a rollback.",
        type="time span",
        default="30 days",
    ),
    Option(
        "ledger_tag",
        switch,
        "False if the catalog refuses tags: a rollback after snapshot expiry then stays undetected.",
        type="true or false",
        default="true",
    ),
    Option(
        "max_clock_ahead",
        duration,
        "A driver whose clock is further ahead of the storage's clock commits nothing: Iceberg's Java writers refuse"
        " snapshots more than a minute in their future.",
        type="time span",
        default="1 minute",
    ),
    Option(
        "tag_every",
        _tag_every,
        "Tags batches, which protects their snapshots from expiry: `100` tags every batch id that 100 divides, `1 day`"
        " the first batch of every UTC day. An append accepts a time span only.",
        type="number of batches, or time span",
    ),
    Option("tag_max_age", duration, "Lifetime of the tags of `tag_every`.", type="time span", default="365 days"),
    Option(
        "verbose",
        switch,
        "Print one line for each batch. Without the option, the variable `LAKESINK_VERBOSE` decides.",
        type="true or false",
        default="true, unless standard error is no terminal and the program configures logging",
    ),
    Option(
        "metrics",
        metrics_reader,
        "Who reads metrics: the program's OpenTelemetry, the registry of its Prometheus client, or whoever asks at that"
        " port, by default of this machine only. Without the option, the variable `LAKESINK_METRICS` decides.",
        type="`otel`, `prometheus`, or `[HOST:]PORT`",
    ),
    Option(
        "openlineage",
        switch,
        "Tell OpenLineage of each commit, as its client is configured. Without the option, the variable"
        " `LAKESINK_OPENLINEAGE` decides.",
        type="true or false",
        default="false",
    ),
)
