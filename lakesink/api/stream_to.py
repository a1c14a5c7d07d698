"""The public function `stream_to`, and the row features in front of sinks that write to no table."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lakesink.api.streams import arriving, check_streaming, stream_writer
from lakesink.observe.terminal import watched
from lakesink.rows.expectations import Expected, without_marks
from lakesink.rows.plan import WritePlan
from lakesink.rows.schema import arrow_schema, parse_schema
from lakesink.settings.option_types import RowOptions
from lakesink.settings.options import BY_NAME, read_option
from lakesink.settings.row_settings import owner_of, row_settings
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.evolution import expected_of
from lakesink.sinks.iceberg.preflight import check_letters_table, documents_plan
from lakesink.sinks.iceberg.side.checked_sink import CheckedSink, letters_beside
from lakesink.sinks.iceberg.side.letters_table import puts_aside
from lakesink.sinks.staged.sink import StagedSink
from lakesink.spark.report import Reporter
from lakesink.spark.rows.frame_schema import is_case_sensitive, stored_schema
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.two_phase import TwoPhaseCommitSink


@dataclass(frozen=True, slots=True)
class CheckedFrame:
    """The rows of a stream into a sink that writes to no table, and what happens to them before.

    Attributes:
        rows: With marks of their expectations, or with documents.
        columns: What the sink gets.
        catalog: That of the dead letters; None if there are none.
    """

    rows: DataFrame
    columns: pa.Schema
    owner: SinkKey
    settings: Settings
    expected: tuple[Expected, ...]
    documents: WritePlan | None
    catalog: FoundCatalog | None

    def in_front_of(self, sink: TwoPhaseCommitSink[Any, Any]) -> TwoPhaseCommitSink[Any, Any]:
        """The sink with its row features; itself if it has none."""
        if not self.expected and self.documents is None and self.catalog is None:
            return sink
        letters, effects = None, Effects()
        if self.catalog is not None:
            assert self.settings.dead_letter_table is not None
            letters = letters_beside(
                self.owner, self.settings.dead_letter_table, self.settings, self.catalog.open, effects
            )
        return CheckedSink(sink, self.owner, self.settings, self.expected, self.documents, letters, effects)


def stream_to(
    df: DataFrame,
    sink: TwoPhaseCommitSink[Any, Any],
    *,
    checkpoint: str | os.PathLike[str],
    verbose: bool | str | None = None,
    **options: Unpack[RowOptions],
) -> DataStreamWriter:
    """Return a writer of a streaming DataFrame into a custom sink, with the same two-phase commit as `stream`.

    Args:
        df: Streaming DataFrame of a classic Spark session.
        sink: The target of the rows; see `lakesink_protocol.two_phase.TwoPhaseCommitSink`.
        checkpoint: Checkpoint folder of this query only: a path or a URI.
        verbose: True to print one line for each batch, False for none; by default at a terminal and in a notebook.
        **options: Of the rows, as for `stream`: `expect`, `decode` with `schema`, and a `dead_letter_table` of Iceberg
            in a `catalog`.

    Raises:
        SettingsError: An option is unknown, malformed, or contradicts another.
        QueryError: The DataFrame is not a streaming one of a classic session.
    """
    check_streaming(df, "lakesink.stream_to")
    location = read_option("checkpoint", checkpoint)
    owner = sink.sink_id if isinstance(sink, StagedSink) else sink.name
    checked = checked_frame(df, "lakesink.stream_to", owner, options, ("checkpoint", "verbose"))
    reporter = Reporter(sink.name, sink.name, watched(sink.name, sink.name, verbose=verbose))
    return stream_writer(checked.rows, location, reporter, lambda _schema, _session: checked.in_front_of(sink))


def checked_frame(
    df: DataFrame, function: str, sink: str, options: Mapping[str, Any], others: tuple[str, ...]
) -> CheckedFrame:
    """The rows with the features that the user asks for; `others` are options of the function.

    Raises:
        SettingsError: An option is unknown, malformed, or contradicts another.
        WriteError: The rows cannot be decoded, or the table of dead letters has other columns.
    """
    settings, owner = row_settings(function, sink, options, others), owner_of(sink)
    rows = arriving(df, settings)
    columns = stored_schema(rows.schema)
    expected = expected_of(columns, settings)
    documents, catalog = None, None
    if settings.decode:
        documents = documents_plan(owner, settings, columns, case_sensitive=is_case_sensitive(df.sparkSession))
        columns = arrow_schema(parse_schema(documents.schema_json))
    if puts_aside(settings, expected):
        if settings.dead_letter_table is None:
            raise SettingsError.of("OPTION_MISSING", name="dead_letter_table", doc=BY_NAME["dead_letter_table"].doc)
        catalog = CatalogConfig(settings.catalog, settings.catalog_properties).find()
        check_letters_table(catalog, settings.dead_letter_table, owner)
    return CheckedFrame(rows, without_marks(columns), owner, settings, expected, documents, catalog)
