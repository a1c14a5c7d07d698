"""The keyword options of streams and appends. Parsing, suggestions and the docs all use `OPTIONS`."""

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lakesink.settings.expectations import parse_expectations
from lakesink.settings.option_types import SchemaEvolution
from lakesink.settings.parse import duration, size_bytes, switch, whole_number
from lakesink.settings.table_settings import codec, distribution_mode
from lakesink.writer.plan import AVRO, JSON, OnMalformed
from lakesink_protocol.accept import Accept
from lakesink_protocol.identity import NAME_PATTERN
from lakesink_protocol.redact import contains_secret
from lakesink_protocol.tags import SHORTEST_PERIOD_MS, EveryBatches, EveryPeriod, TagEvery

_OWN_SUMMARY = re.compile(
    r"(lakesink[.-]|(added|deleted|removed|replaced|total)-|partitions?[.-]|manifests-|wap\.|published-wap-|iceberg-).*"
    r"|operation|changed-partition-count|entries-processed|replace-partitions|source-snapshot-id|staged-wap.*"
)
_BATCHES = re.compile(r"\s*(\d{1,9})\s*(?:batch(?:es)?)?\s*", re.IGNORECASE | re.ASCII)
_LONGEST_TEXT = 1024
_LONGEST_COLUMN_BYTES = 255
_MOST_NEW_COLUMNS = 1_000
_OF_KAFKA = "_kafka_"


@dataclass(frozen=True, slots=True)
class Option:
    """One keyword option.

    Attributes:
        read: Parses the user's value; raises ValueError with a hint.
        table_property: Table property that the option overrides; empty if none.
    """

    name: str
    type: str
    read: Callable[[Any], Any]
    default: str
    doc: str
    table_property: str = ""
    stream_only: bool = False


def options_table_markdown() -> str:
    """The options as a Markdown table, for the docs."""
    rows = [
        "| option | type | default | meaning |",
        "|---|---|---|---|",
        *(f"| `{option.name}` | {option.type} | {option.default} | {_meaning(option)} |" for option in OPTIONS),
    ]
    return "\n".join(rows) + "\n"


def _meaning(option: Option) -> str:
    overridden = f" Overrides the table property `{option.table_property}`." if option.table_property else ""
    return option.doc + overridden + (" Streams only." if option.stream_only else "")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > _LONGEST_TEXT:
        raise ValueError("expected text without control characters")
    return value


def _sink_id(value: Any) -> str:
    if not isinstance(value, str) or not NAME_PATTERN.fullmatch(value):
        raise ValueError("expected 1 to 64 characters A-Z a-z 0-9 . _ -, beginning with a letter or digit")
    return value


def _branch(value: Any) -> str:
    text = _text(value)
    if text != text.strip() or len(text) > 255:
        raise ValueError("expected the name of a branch, at most 255 characters")
    return text


def _checkpoint(value: Any) -> str:
    text = _text(os.fspath(value) if isinstance(value, os.PathLike) else value)
    if text.startswith("~"):
        raise ValueError(f"only a shell expands ~; write {os.path.expanduser(text)!r}")  # noqa: PTH111 - a URI stays
    return text


def _partition_by(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text such as 'month(time_hour), bucket(16, carrier)'")  # noqa: TRY004 - all parsers raise ValueError
    return value


def _catalog_properties(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError("expected a mapping from names to values")
    return dict(value)


def _snapshot_properties(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping from names to text")  # noqa: TRY004 - all parsers raise ValueError
    found = {}
    for key, entry in value.items():
        if _OWN_SUMMARY.fullmatch(_text(key)):
            raise ValueError(f"{key!r} is a name that Iceberg or lakesink writes itself")
        if isinstance(entry, bool) or not isinstance(entry, (str, int)) or len(str(entry)) > _LONGEST_TEXT:
            raise ValueError(f"expected text of at most {_LONGEST_TEXT} characters under {key!r}")
        if contains_secret(key, entry):
            raise ValueError(f"{key!r} looks like a secret, and every reader of the table sees snapshot properties")
        found[key] = str(entry)
    return found


def _accept(value: Any) -> Accept:
    return value if isinstance(value, Accept) else Accept.parse(_text(value))


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


def _decode(value: Any) -> str:
    if value not in (JSON, AVRO):
        raise ValueError("expected 'json' or 'avro'")
    return str(value)


def _schema_registry(value: Any) -> str:
    text = _text(os.fspath(value) if isinstance(value, os.PathLike) else value)
    if contains_secret("schema_registry", text):
        raise ValueError(
            "expected no name and password in it: set LAKESINK_REGISTRY_USER and LAKESINK_REGISTRY_PASSWORD"
        )
    if "://" in text and ("?" in text or "#" in text):
        raise ValueError("expected an address without query and fragment")
    return text


def _on_malformed(value: Any) -> OnMalformed:
    if value not in tuple(OnMalformed):
        raise ValueError("expected 'fail' or 'quarantine'")
    return OnMalformed(value)


def _ratio(value: Any) -> float:
    try:
        found = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except ValueError:
        found = math.nan
    if not 0 <= found <= 1:
        raise ValueError("expected a number from 0 to 1")
    return found


def _rescue_column(value: Any) -> str:
    text = _text(value)
    if text != text.strip() or len(text.encode()) > _LONGEST_COLUMN_BYTES:
        raise ValueError(f"expected the name of a column, at most {_LONGEST_COLUMN_BYTES} bytes")
    if text.lower().startswith(_OF_KAFKA):
        raise ValueError(f"names that begin with {_OF_KAFKA} are for columns of Kafka's metadata")
    return text


def _schema_evolution(value: Any) -> SchemaEvolution:
    if value not in tuple(SchemaEvolution):
        raise ValueError("expected 'ignore', 'fail', 'add' or 'widen'")
    return SchemaEvolution(value)


OPTIONS = (
    Option(
        "sink_id",
        "text",
        _sink_id,
        "required",
        "Permanent name of the stream in the table; it outlives the checkpoint. Each stream into a table needs one.",
        stream_only=True,
    ),
    Option("checkpoint", "path or URI", _checkpoint, "required", "Spark's checkpoint location.", stream_only=True),
    Option(
        "catalog",
        "text",
        _text,
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
        "Create the table from the DataFrame's schema at the first batch, if it does not exist.",
    ),
    Option(
        "partition_by",
        "text",
        _partition_by,
        "unpartitioned",
        'Partitions of a table that lakesink creates: `"month(time_hour), bucket(16, carrier)"`.',
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
        ' time. Not for fields of `bucket` transforms, not with `decode`, not in `format("lakesink")`.',
        "write.distribution-mode",
    ),
    Option(
        "schema_evolution",
        "text",
        _schema_evolution,
        "`fail`; `ignore` with `decode`",
        "What happens if the columns of the rows differ from the table's. `fail` stops the query and names the"
        " differences; `ignore` leaves out columns that the table lacks; `add` adds them to the table; `widen` does the"
        " same, promotes INT to BIGINT, FLOAT to DOUBLE and DECIMAL to more digits, and makes required columns optional"
        " that the rows lack. The schema changes in the batch's own commit. With `decode`, the keys of the documents or"
        " the fields of the writers' schemas count, and no restart is needed.",
    ),
    Option(
        "max_new_columns",
        "whole number from 1 to 1000",
        lambda value: whole_number(value, 1, _MOST_NEW_COLUMNS),
        "100",
        "Columns, nested ones counted one by one, that one batch of documents may add to the table, with"
        " `schema_evolution` and `decode`. Keys beyond the limit get no column.",
    ),
    Option(
        "expect",
        "mapping",
        parse_expectations,
        "none",
        "Conditions that every row must make true, in Spark SQL: `{'valid_age': 'age between 0 and 120'}`. A batch with"
        " other rows fails; with `('age between 0 and 120', 'warn')` they are written and counted, with `'quarantine'`"
        " they become dead letters. With `decode`,"
        ' conditions see the columns of the source. Not in `format("lakesink")`, which needs `with_expectations`.',
    ),
    Option("snapshot_properties", "mapping", _snapshot_properties, "none", "Added to the summary of every snapshot."),
    Option(
        "accept",
        "text",
        _accept,
        "none",
        "Accepts one refused batch, once: `<Verdict>:<batch id>@<ledger>:commit` or `:skip`. Copy it from the"
        " message of the refusal.",
    ),
    Option(
        "prepared_max_age",
        "time span",
        duration,
        "20 hours",
        "A prepared batch older than this is written again. Stay below the age at which orphan cleanups delete files.",
    ),
    Option(
        "ledger_tag_max_age",
        "time span",
        duration,
        "30 days",
        "Time after its last batch in which a sink can still prove a rollback.",
    ),
    Option(
        "ledger_tag",
        "true or false",
        switch,
        "true",
        "Set it to false if the catalog refuses tags. A rollback after snapshot expiry then stays undetected.",
    ),
    Option(
        "max_clock_ahead",
        "time span",
        duration,
        "1 minute",
        "A driver whose clock is further ahead of the storage's clock commits nothing: Iceberg's Java writers refuse a"
        " table whose last snapshot is more than a minute in their future.",
    ),
    Option(
        "tag_every",
        "number of batches, or time span",
        _tag_every,
        "none",
        "Tags batches, which protects their snapshots from expiry: `100` tags every batch id that 100 divides, `1 day`"
        " the first batch of every UTC day. An append accepts a time span only.",
    ),
    Option("tag_max_age", "time span", duration, "365 days", "Lifetime of the tags of `tag_every`."),
    Option(
        "decode",
        "text",
        _decode,
        "none",
        "`json` or `avro`: the column `value` of the rows contains such documents, for example from Kafka. Executors"
        " decode them into the table's columns.",
    ),
    Option(
        "on_malformed",
        "text",
        _on_malformed,
        "`fail`",
        "Action for a row that cannot be written: a document that cannot be decoded exactly, NULL in a required column,"
        " a value that the column or its partition cannot hold. `fail` stops the query; `quarantine` makes it a dead"
        " letter: a row of another table, under the same batch id. `null-row` writes a row of NULLs for a document; it"
        " is deprecated, use `quarantine`.",
    ),
    Option(
        "dead_letter_table",
        "text",
        _text,
        "the table's name with `__dead_letters`",
        "Table for rows that are put aside, by `quarantine` of `on_malformed` or of `expect`. lakesink creates it.",
    ),
    Option(
        "max_dead_letters",
        "whole number",
        lambda value: whole_number(value, 0),
        "none",
        "A batch with more dead letters fails.",
    ),
    Option(
        "max_dead_letter_ratio",
        "number from 0 to 1",
        _ratio,
        "0.5",
        "A batch fails if a larger part of its rows would be dead letters; 1 allows any part.",
    ),
    Option(
        "rescue_column",
        "text",
        _rescue_column,
        "none",
        "Column of STRING that keeps, as JSON, what other columns do not hold of a document: keys or fields without a"
        " column, and values that do not fit an optional column. It is added to the table if it is missing. Only with"
        " `decode`; needs numpy.",
    ),
    Option(
        "show_values",
        "true or false",
        switch,
        "false",
        "True to show malformed values, 60 characters of each, in errors and logs. The values may be personal data, and"
        " logs may have many readers.",
    ),
    Option(
        "schema_registry",
        "URL, path or URI",
        _schema_registry,
        "required by `avro`",
        "Location of the writers' schemas: a Schema Registry, or a JSON file that maps ids to schemas.",
    ),
    Option(
        "verbose",
        "true or false",
        switch,
        "true at a terminal and in a notebook",
        "True to print one line for each batch, false for none. Without the option, the variable `LAKESINK_VERBOSE`"
        " decides.",
    ),
)
