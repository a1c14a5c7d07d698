"""The public functions `stream`, `append` and `stream_to`."""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BinaryType

from lakesink.decode.documents import INCOMING, VALUE
from lakesink.decode.places import FILE
from lakesink.settings.option_types import Options
from lakesink.settings.options import read_option
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.preflight import check_letters, check_start, open_existing
from lakesink.sinks.iceberg.sink import IcebergSink
from lakesink.spark.connect import is_of_connect
from lakesink.spark.determinism import functions_of, runs_python
from lakesink.spark.expectations import marked, marks_of
from lakesink.spark.foreach_batch import BatchFunction, MakeSink
from lakesink.spark.query import QUERY_ID, absolute_checkpoint, check_checkpoint, sources_of
from lakesink.spark.report import Reporter
from lakesink.spark.rows.arrow_limits import ArrowBatchLimits
from lakesink.spark.rows.batch_rows import FrameRows
from lakesink.spark.rows.job import RowsJob
from lakesink.spark.rows.on_driver import only_drops_rows
from lakesink.spark.rows.schema import is_case_sensitive, stored_schema
from lakesink.spark.rows.transport import encode_for_transport
from lakesink.spark.spark_errors import brief, is_interruption
from lakesink.watch.terminal import watched
from lakesink.writer.expectations import expected_in, is_mark, without_marks
from lakesink.writer.plan import JSON
from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import QueryError, SettingsError
from lakesink_protocol.identity import NAME_PATTERN, SinkKey, SinkKind, transaction_batch
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.two_phase import TwoPhaseCommitSink

_ON_CONNECT = {
    "lakesink.stream": 'Use df.writeStream.format("lakesink"), which takes the same options with dashes.',
    "lakesink.append": 'Use df.write.format("lakesink") with the options txn-app-id and txn-version.',
}
_CLASSIC = "Use a classic session: SparkSession.builder.master(...), without SPARK_REMOTE or spark.remote."


def stream(
    df: DataFrame, table: str, *, sink_id: str, checkpoint: str | os.PathLike[str], **options: Unpack[Options]
) -> DataStreamWriter:
    """Return a writer of a streaming DataFrame into an Iceberg table, each row exactly once.

    Call its `start` as usual. Output mode, checkpoint and batch function are already set: do not change them. You
    choose trigger and query name.

    Args:
        df: Streaming DataFrame of a classic Spark session.
        table: Table identifier, ``namespace.table``.
        sink_id: Permanent name of this stream in this table. It stays the same when the checkpoint changes.
        checkpoint: Checkpoint folder of this query only: a path or a URI.
        **options: See `lakesink.settings.settings.Settings`.

    Raises:
        SettingsError: An option is unknown, malformed, or contradicts another.
        CatalogError: The catalog is unusable, or the table does not exist and `create_table` is not set.
        WriteError: A column's type does not match the table, or has no Iceberg equivalent.
        BatchRefused: The branch does not exist, or the table's format version is not 2.
        QueryError: The DataFrame is not a streaming one of a classic session.
    """
    check_streaming(df, "lakesink.stream")
    settings = Settings.parse({"sink_id": sink_id, "checkpoint": checkpoint, **options})
    check_checkpoint(df.sparkSession, settings.checkpoint)
    key = SinkKey(settings.sink_id, settings.branch)
    df = _select_for_decoding(df, settings) if settings.decode else marked(df, settings.expect)
    catalog = CatalogConfig(settings.catalog, settings.catalog_properties).find()
    columns = stored_schema(df.schema)
    sensitive = is_case_sensitive(df.sparkSession)
    check_start(catalog, table, key, settings, without_marks(columns), case_sensitive=sensitive)
    check_letters(catalog, table, key, settings, expected_in(columns))

    def make_sink(schema: pa.Schema, session: SparkSession) -> IcebergSink:
        return IcebergSink(table, key, catalog.open, settings, schema, is_case_sensitive(session))

    reporter = Reporter(table, key.name, watched(table, _place(table, catalog), verbose=settings.verbose))
    return stream_writer(df, settings.checkpoint, reporter, make_sink)


def stream_to(
    df: DataFrame,
    sink: TwoPhaseCommitSink[Any, Any],
    *,
    checkpoint: str | os.PathLike[str],
    verbose: bool | str | None = None,
) -> DataStreamWriter:
    """Return a writer of a streaming DataFrame into a custom sink, with the same two-phase commit as `stream`.

    Args:
        df: Streaming DataFrame of a classic Spark session.
        sink: The target of the rows; see `lakesink_protocol.two_phase.TwoPhaseCommitSink`.
        checkpoint: Checkpoint folder of this query only: a path or a URI.
        verbose: True to print one line for each batch, False for none; by default at a terminal and in a notebook.

    Raises:
        SettingsError: An option is malformed.
        QueryError: The DataFrame is not a streaming one of a classic session.
    """
    check_streaming(df, "lakesink.stream_to")
    location = read_option("checkpoint", checkpoint)
    reporter = Reporter(sink.name, sink.name, watched(sink.name, sink.name, verbose=verbose))
    return stream_writer(df, location, reporter, lambda _schema, _session: sink)


def append(df: DataFrame, table: str, *, txn: tuple[str, int], **options: Unpack[Options]) -> Outcome:
    """Append a batch DataFrame once for each version of an application, even if this is called several times.

    If the table contains this version already, `df` is not evaluated. Otherwise its rows are written, also after an
    earlier call for the same version failed. Exactly one call commits; the outcome shows whether it was this one. The
    session's settings are restored.

    Args:
        df: Batch DataFrame of a classic Spark session, for example the one that a user's own `foreachBatch` receives.
        table: Table identifier, ``namespace.table``.
        txn: Application id and version; versions must increase.
        **options: See `lakesink.settings.settings.Settings`.

    Returns:
        `Committed`: the table contains the rows of this `df`. `AlreadyCommitted`: the table contains the rows of an
            earlier call, whose result may have been lost, and no row of this call.

    Raises:
        SettingsError: An option or the transaction is malformed.
        CatalogError: The catalog or the table is unusable.
        QueryError: The DataFrame is a streaming one, or not of a classic session.
        WriteError: The rows could not be written.
        BatchRefused: The table's ledger does not allow this version.
        CommitUnresolved: It is unknown whether the rows were committed. Call again with the same version.
    """
    check_classic(df, "lakesink.append")
    if df.isStreaming:
        raise _wrong_frame("lakesink.append needs a batch DataFrame.", "Use lakesink.stream for a streaming DataFrame.")
    name, version = _transaction(txn)
    settings = Settings.parse(options, kind=SinkKind.TXN)
    return append_version(df, table, SinkKey(name, settings.branch, SinkKind.TXN), version, settings)


def append_version(
    df: DataFrame,
    table: str,
    key: SinkKey,
    version: int,
    settings: Settings,
    before_commit: Callable[[], None] | None = None,
) -> Outcome:
    """Append a batch DataFrame as one version of an application; `IcebergSink` explains `before_commit`."""
    df = _select_for_decoding(df, settings) if settings.decode else marked(df, settings.expect)
    session = df.sparkSession
    found = CatalogConfig(settings.catalog, settings.catalog_properties).find()
    open_catalog = found.open if settings.create_table else partial(open_existing, found, table)
    sink = IcebergSink(table, key, open_catalog, settings, stored_schema(df.schema), is_case_sensitive(session))
    sink.before_commit = before_commit
    in_query = session.sparkContext.getLocalProperty(QUERY_ID) is not None
    limits = ArrowBatchLimits(session.conf, df.schema.jsonValue(), with_functions=runs_python(df))
    job = RowsJob(FrameRows(*encode_for_transport(df)), limits, lambda error: in_query and is_interruption(error))
    listeners = watched(table, _place(table, found), verbose=settings.verbose, noun="version")
    return _run(transaction_batch(version), sink, job, Reporter(table, key.name, listeners))


def _place(table: str, catalog: FoundCatalog) -> str:
    return f"{table} in {catalog.where[0].lower()}{catalog.where[1:]}"


def _select_for_decoding(df: DataFrame, settings: Settings) -> DataFrame:
    """Select the columns that decoding uses. JSON becomes text, because Spark copies bytes twice and text once."""
    needed = [df[name] for name in df.columns if name in INCOMING or is_mark(name)]
    needed += marks_of(df, settings.expect)
    if not needed:
        return df
    if FILE not in df.columns and _reads_files(df):
        needed.append(df.metadataColumn("_metadata")[FILE].alias(FILE))
    rows = df.select(*needed)
    bytes_of_json = settings.decode == JSON and VALUE in rows.columns and rows.schema[VALUE].dataType == BinaryType()
    return rows.withColumn(VALUE, rows[VALUE].cast("string")) if bytes_of_json else rows


def _reads_files(df: DataFrame) -> bool:
    """True if the rows still have the hidden column ``_metadata``, which Spark adds to rows of files."""
    try:
        df.select(df.metadataColumn("_metadata")[FILE])
    except AnalysisException:
        return False
    return True


def _run(batch: Any, sink: IcebergSink, job: RowsJob, reporter: Reporter) -> Outcome:
    started = time.monotonic()
    try:
        outcome = run_batch(batch, [sink], job.write)[sink.name]
    except Exception as error:
        reporter.failed(batch.batch_id, brief(error), time.monotonic() - started)
        raise
    finally:
        job.limits.restore()
    reporter.finished(batch.batch_id, outcome, time.monotonic() - started)
    return outcome


def stream_writer(df: DataFrame, checkpoint: str, reporter: Reporter, make_sink: MakeSink) -> DataStreamWriter:
    """A writer that commits every micro-batch in two phases; the first batch of a run calls `make_sink`."""
    location = absolute_checkpoint(df.sparkSession, checkpoint)
    rows, transport = encode_for_transport(df)
    function = BatchFunction(
        session=df.sparkSession,
        reporter=reporter,
        checkpoint=location,
        sources=tuple(sources_of(df)),
        schema=df.schema,
        transport=transport,
        functions=functions_of(df),
        runs_python=runs_python(df),
        only_drops_rows=only_drops_rows(df),
        make_sink=make_sink,
    )
    writer = rows.writeStream.outputMode("append").option("checkpointLocation", location)
    return writer.foreachBatch(function)


def check_streaming(df: Any, function: str) -> None:
    """Refuse a DataFrame that is not a streaming one of a classic session; `function` names the user's call."""
    check_classic(df, function)
    if not df.isStreaming:
        raise _wrong_frame(f"{function} needs a streaming DataFrame.", "Use lakesink.append for a batch DataFrame.")


def check_classic(df: Any, function: str, kind: type = DataFrame) -> None:
    """Refuse a DataFrame or a session of Spark Connect; `function` names the user's call."""
    if is_of_connect(df):
        ways = (_ON_CONNECT.get(function), _CLASSIC)
        raise QueryError(
            "SPARK_CONNECT",
            f"{function} cannot write a DataFrame of a Spark Connect session: its code would run on the server.",
            action=[way for way in ways if way is not None],
        )
    if not isinstance(df, kind):
        raise TypeError(f"expected a {kind.__name__}, not a {type(df).__name__}")


def _wrong_frame(what: str, action: str) -> QueryError:
    return QueryError("WRONG_DATAFRAME", what, action=action)


def _transaction(txn: Any) -> tuple[str, int]:
    match txn:
        case (str(name), int(version)) if (
            NAME_PATTERN.fullmatch(name) and type(version) is int and 0 <= version < 2**63
        ):
            return name, version
    raise SettingsError(
        "OPTION_INVALID",
        "The argument txn is not an application id and a version.",
        action='Give txn=("nightly-load", 42): an id of 1 to 64 characters A-Z a-z 0-9 . _ -, and a whole number that'
        " increases with every append.",
    )
