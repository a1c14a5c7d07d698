"""The public function `stream_to`, and the row features in front of sinks that write to no table."""

import os
import re
from collections.abc import Callable, Mapping
from inspect import getfullargspec, signature
from typing import Any, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lakesink.api.streams import arriving, check_streaming
from lakesink.observe.terminal import watched
from lakesink.rows.plan import DEBEZIUM
from lakesink.settings.option import option_unknown
from lakesink.settings.option_types import RowOptions
from lakesink.settings.options import BY_NAME, option_invalid, read_option
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import expected_of
from lakesink.sinks.iceberg.preflight import check_letters
from lakesink.sinks.iceberg.side.checked_sink import CheckedSink
from lakesink.sinks.iceberg.side.letters_table import puts_aside
from lakesink.sinks.staged.sink import StagedSink
from lakesink.spark.foreach_batch import stream_writer
from lakesink.spark.report import Reporter, measured
from lakesink.spark.rows.frame_schema import is_case_sensitive, stored_schema
from lakesink_catalog.connect.catalog import CatalogConfig
from lakesink_protocol.coordinator import Sink
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.refusals.accept import Accept


def stream_to(
    df: DataFrame,
    sink: Sink,
    *,
    checkpoint: str | os.PathLike[str],
    accept: str | Accept | None = None,
    verbose: bool | str | None = None,
    **options: Unpack[RowOptions],
) -> DataStreamWriter:
    """Return a writer of a streaming DataFrame into a custom sink, with the same two-phase commit as `stream`.

    Args:
        df: Streaming DataFrame of a classic Spark session.
        sink: The target of the rows; see `lakesink_protocol.two_phase.TwoPhaseCommitSink`.
        checkpoint: Checkpoint folder of this query only: a path or a URI.
        accept: Accepts one batch that the table of dead letters refused, once. A refusal of the sink is the sink's.
        verbose: True to print one line for each batch, False for none; by default at a terminal and in a notebook.
        **options: Of the rows, as for `stream`: `expect`, `decode` with `schema`, and a `dead_letter_table` of Iceberg
            in a `catalog`.

    Raises:
        SettingsError: An option is unknown, malformed, or contradicts another.
        QueryError: The DataFrame is not a streaming one of a classic session.
        WriteError: The rows cannot be decoded, or the table of dead letters has other columns.
    """
    location = read_option("checkpoint", checkpoint)
    rows, _, in_front_of = checked(df, stream_to, sink, {**options, "accept": accept})
    listeners = measured(watched(sink.name, sink.name, verbose=verbose), sink.name, sink.name)
    reporter = Reporter(sink.name, sink.name, listeners)
    return stream_writer(rows, location, reporter, lambda _session: in_front_of(sink))


def checked(
    df: DataFrame, function: Callable[..., Any], sink: Sink, options: Mapping[str, Any]
) -> tuple[DataFrame, pa.Schema, Callable[[Sink], Sink]]:
    """The rows as tasks check them, the columns that the sink gets, and what puts the checks in front of a sink."""
    check_streaming(df, f"lakesink.{function.__name__}")
    name = sink.sink_id if isinstance(sink, StagedSink) else sink.name
    owner = SinkKey(re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64] or "sink")
    settings = row_settings(function, owner, options, sink)
    rows = arriving(df, settings)
    incoming = stored_schema(rows.schema)
    expected, open_catalog = expected_of(incoming, settings), None
    if puts_aside(settings, expected):
        catalog = CatalogConfig(settings.catalog, settings.catalog_properties).find()
        check_letters(catalog, "", owner, settings, expected)
        open_catalog = catalog.open
    elif settings.accept not in (None, getattr(sink, "accept", None)):
        said = "The option accept is for the table of dead letters, and no row is put aside. Give it to the sink."
        raise option_invalid("accept", said)
    elif not expected and not settings.decode:
        return rows, incoming, lambda sink: sink
    case_sensitive = is_case_sensitive(df.sparkSession)

    def in_front_of(behind: Sink) -> CheckedSink:
        return CheckedSink(behind, owner, settings, incoming, open_catalog, case_sensitive)

    return rows, in_front_of(sink).columns, in_front_of


def row_settings(
    function: Callable[..., Any], owner: SinkKey, options: Mapping[str, Any], sink: Sink | None = None
) -> Settings:
    """The parsed options of the rows; raises SettingsError if one is of tables, malformed, or contradicts another."""
    where, known = f"lakesink.{function.__name__}", (*getfullargspec(function).kwonlyargs, *RowOptions.__annotations__)
    for name, value in options.items():
        named = f"{name}={value}" if value in DEBEZIUM else name  # such events are changes by key
        if named not in known:
            hint = "Only a table can have it. Write the stream into a table with lakesink.stream, or leave it out."
            if sink is not None and name in signature(type(sink)).parameters:
                hint = f"It is one of the sink: give it to {type(sink).__name__}."
            raise option_unknown(where, named, known, hint if name in BY_NAME else "")
    settings = Settings.parse({"sink_id": owner.name, "checkpoint": "/", "create_table": True, **options})
    if settings.decode and not settings.schema:
        raise SettingsError.of("OPTION_MISSING", name="schema", doc=BY_NAME["schema"].doc)
    return settings
