"""The public functions `stream`, `append` and `upsert`."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BinaryType

from lakesink.api.sink_maker import SinkMaker
from lakesink.api.with_expectations import check_condition, marked
from lakesink.decode.documents import INCOMING, VALUE
from lakesink.observe.terminal import watched
from lakesink.rows.changed_rows import DELETE_MARK, FILE, OFFSET, PARTITION
from lakesink.rows.expectations import is_mark, without_marks
from lakesink.rows.plan import DEBEZIUM_JSON, JSON
from lakesink.settings.option_types import Options, OutputMode
from lakesink.settings.options import option_invalid
from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import expected_of, stored_columns
from lakesink.sinks.iceberg.change_plan import check_left_out
from lakesink.sinks.iceberg.iceberg_sink import BeforeCommit
from lakesink.sinks.iceberg.preflight import check_letters, check_start, open_existing
from lakesink.spark import query_plan
from lakesink.spark.foreach_batch import stream_writer
from lakesink.spark.query import QUERY_ID
from lakesink.spark.report import Reporter, measured, traced
from lakesink.spark.rows.arrow_limits import ArrowBatchLimits
from lakesink.spark.rows.batch_rows import FrameRows
from lakesink.spark.rows.frame_schema import is_case_sensitive, stored_schema
from lakesink.spark.rows.job import RowsJob
from lakesink.spark.rows.transport import encode_for_transport
from lakesink.spark.source.connect import is_of_connect
from lakesink.spark.spark_errors import is_interruption
from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.errors import QueryError, SettingsError
from lakesink_protocol.events import Listeners, OrderTrusted
from lakesink_protocol.identity import NAME_PATTERN, Batch, SinkKey, SinkKind, transaction_batch
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.row_changes import Mode

KAFKA = "kafka"
_ON_CONNECT = {
    "lakesink.stream": 'Use df.writeStream.format("lakesink"), which takes the same options with dashes.',
    "lakesink.append": 'Use df.write.format("lakesink") with the options txn-app-id and txn-version.',
    "lakesink.upsert": 'Use df.write.format("lakesink") with the options mode, txn-app-id and txn-version.',
}


def stream(
    df: DataFrame, table: str, *, sink_id: str, checkpoint: str | os.PathLike[str], **options: Unpack[Options]
) -> DataStreamWriter:
    """Return a writer of a streaming DataFrame into an Iceberg table, each row exactly once.

    With ``mode="upsert"`` or ``"changes"``, a row replaces or deletes the row of its key, also exactly once.

    Call its `start` as usual, with trigger and query name. Do not change output mode, checkpoint and batch function.

    Args:
        df: Streaming DataFrame of a classic Spark session.
        table: Table identifier, ``namespace.table``.
        sink_id: Permanent name of this stream in this table. It stays the same when the checkpoint changes.
        checkpoint: Checkpoint folder of this query only: a path or a URI.
        **options: See "Options and table properties" in the documentation, docs/reference/options.md.

    Raises:
        SettingsError: An option is unknown, malformed, or contradicts another.
        CatalogError: The catalog is unusable, or the table does not exist and `create_table` is not set.
        WriteError: A column's type does not match the table, or has no Iceberg equivalent.
        BatchRefused: The branch does not exist, or the table's format version is not 2.
        QueryError: The DataFrame is not a streaming one of a classic session.
    """
    check_streaming(df, "lakesink.stream")
    settings = Settings.parse({"sink_id": sink_id, "checkpoint": checkpoint, **options})
    query_plan.check_checkpoint(df.sparkSession, settings.checkpoint)
    query_plan.check_output_mode(df, settings.output_mode)
    key = SinkKey(settings.sink_id, settings.branch)
    df = arriving(df, settings)
    catalog = CatalogConfig(settings.catalog, settings.catalog_properties).find()
    sensitive = is_case_sensitive(df.sparkSession)
    columns = stored_columns(stored_schema(df.schema), settings, case_sensitive=sensitive)
    check_start(catalog, table, key, settings, without_marks(columns), case_sensitive=sensitive)
    check_letters(catalog, table, key, settings, expected_of(columns, settings))

    reporter = Reporter(
        table, key.name, _listeners(table, key, settings, catalog, places=partial(query_plan.places_of, df))
    )
    if trusts_order(df, settings):
        reporter.emit(OrderTrusted(table, key.name))
    return stream_writer(
        df,
        settings.checkpoint,
        reporter,
        SinkMaker(table, key, catalog.open, settings, df, reporter.emit),
        output_mode=settings.output_mode,
        maintains=settings.maintains and settings.maintenance is not None,
    )


def append(df: DataFrame, table: str, *, txn: tuple[str, int], **options: Unpack[Options]) -> Outcome:
    """Append a batch DataFrame once for each version of an application, even if this is called several times.

    If the table contains this version already, `df` is not evaluated. Otherwise its rows are written, also after an
    earlier call for the same version failed. Exactly one call commits; the outcome shows whether it was this one. The
    session's settings are restored.

    Args:
        df: Batch DataFrame of a classic Spark session, for example the one that a user's own `foreachBatch` receives.
        table: Table identifier, ``namespace.table``.
        txn: Application id and version; versions must increase.
        **options: See "Options and table properties" in the documentation, docs/reference/options.md.

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
    return _write_version(df, table, txn, Entry.APPEND, options)


def upsert(df: DataFrame, table: str, *, txn: tuple[str, int], **options: Unpack[Options]) -> Outcome:
    """Replace the rows of the keys of a batch DataFrame, once for each version of an application.

    Each row replaces the row of its key, or is inserted; with ``mode="changes"``, a row for which `apply_as_deletes` is
    true deletes it. Like `append`, only the first call for a version changes the table.

    Args:
        df: Batch DataFrame of a classic Spark session.
        table: Table identifier, ``namespace.table``.
        txn: Application id and version; versions must increase.
        **options: See "Options and table properties" in the documentation; `keys` are the columns that identify a
            row.

    Returns:
        `Committed`: the table contains the changes of this `df`. `AlreadyCommitted`: it contains those of an earlier
            call, and none of this call.

    Raises:
        SettingsError: An option or the transaction is malformed, or the table has another key.
        CatalogError: The catalog or the table is unusable.
        QueryError: The DataFrame is a streaming one, or not of a classic session.
        WriteError: The rows could not be written, or nothing decides which of two changes of a key is the newer one.
        BatchRefused: The table's ledger does not allow this version.
        CommitUnresolved: It is unknown whether the changes were committed. Call again with the same version.
    """
    return _write_version(df, table, txn, Entry.UPSERT, {"mode": Mode.UPSERT, **options})


def _write_version(
    df: DataFrame, table: str, txn: tuple[str, int], entry: Entry, options: Mapping[str, Any]
) -> Outcome:
    check_classic(df, entry)
    if df.isStreaming:
        raise QueryError.of("WRONG_DATAFRAME.streaming", function=entry)
    settings = Settings.parse(options, entry=entry)
    name, version = _transaction(txn)
    return append_version(df, table, SinkKey(name, settings.branch, SinkKind.TXN), transaction_batch(version), settings)


def append_version(
    df: DataFrame, table: str, key: SinkKey, batch: Batch, settings: Settings, before_commit: BeforeCommit | None = None
) -> Outcome:
    """Write a batch DataFrame as one version of an application; `IcebergSink` explains `before_commit`."""
    df = arriving(df, settings)
    session = df.sparkSession
    found = CatalogConfig(settings.catalog, settings.catalog_properties).find()
    open_catalog = found.open if settings.create_table else partial(open_existing, found, table)
    listeners = _listeners(table, key, settings, found, noun="version")
    sink = SinkMaker(table, key, open_catalog, settings, df, listeners)(session)
    sink.before_commit = before_commit
    in_query = session.sparkContext.getLocalProperty(QUERY_ID) is not None
    limits = ArrowBatchLimits(session.conf, df.schema.jsonValue(), with_functions=query_plan.runs_python(df))
    frame = FrameRows(*encode_for_transport(df))
    job = RowsJob(frame, limits, lambda error: in_query and is_interruption(error))
    reporter, started = Reporter(table, key.name, listeners), time.monotonic()
    try:
        outcome = run_batch(batch, [sink], job.write)[sink.name]
    except Exception as error:
        reporter.failed(batch.batch_id, error, time.monotonic() - started, job.seconds or 0.0)
        raise
    finally:
        limits.restore()
    reporter.finished(batch.batch_id, outcome, time.monotonic() - started, job.seconds or 0.0)
    sink.maintain()
    return outcome


def _listeners(
    table: str,
    key: SinkKey,
    settings: Settings,
    catalog: FoundCatalog,
    *,
    places: Callable[[], Sequence[str]] = tuple,
    noun: str = "batch",
) -> Listeners:
    """Those that the options and the environment ask for; `places` are where the sources read."""
    place = f"{table} in {catalog.where[0].lower()}{catalog.where[1:]}"
    found = watched(table, place, verbose=settings.verbose, noun=noun)
    names = catalog.name, settings.catalog or ""
    found = traced(found, catalog.uri, names, places, openlineage=settings.openlineage)
    return measured(found, table, key.label, key.branch, metrics=settings.metrics)


def arriving(df: DataFrame, settings: Settings) -> DataFrame:
    """The rows with what lakesink adds to them, and without what it does not read."""
    if settings.decode:
        return _select_for_decoding(df, settings)
    rows = marked(df, settings.expect)
    return with_operations(rows, settings) if settings.has_changes else rows


def with_operations(df: DataFrame, settings: Settings) -> DataFrame:
    """The rows with their mark of deletes, if there is a condition for it, and without the columns that are left out.

    Raises:
        SettingsError: Spark cannot evaluate the condition on these rows, or a column that is left out is not there.
    """
    check_left_out(df.columns, settings, case_sensitive=is_case_sensitive(df.sparkSession))
    if DELETE_MARK in map(str.lower, df.columns):
        raise option_invalid("apply_as_deletes", f"The rows have a column {DELETE_MARK}, a name for lakesink alone.")
    if settings.apply_as_deletes:
        check_condition(df, "apply_as_deletes", "the condition apply_as_deletes", settings.apply_as_deletes)
        # The mark of a row keeps NULL: the batch fails then, because its operation is unknown.
        df = df.select("*", sf.expr(settings.apply_as_deletes).alias(DELETE_MARK))
    return df.drop(*settings.except_column_list)


def trusts_order(df: DataFrame, settings: Settings) -> bool:
    """True if only the order of the stream says which change of a key is the newest.

    Kafka keeps the order of a key, also in records that were copied to files with their places. In output mode update,
    Spark itself makes the changes in their order.
    """
    placed = bool(settings.decode) and {PARTITION, OFFSET} <= set(df.columns)
    ordered = bool(settings.sequence_by) or placed or settings.output_mode is OutputMode.UPDATE
    return settings.has_changes and not ordered and any(source.name != KAFKA for source in query_plan.sources_of(df))


def _select_for_decoding(df: DataFrame, settings: Settings) -> DataFrame:
    """Select what decoding uses, and marks, which the sink refuses; JSON as text, because Spark copies bytes twice."""
    needed = [df[name] for name in df.columns if name in INCOMING or is_mark(name)]
    if not needed:
        return df
    if FILE not in df.columns and _reads_files(df):
        needed.append(df.metadataColumn("_metadata")[FILE].alias(FILE))
    rows = df.select(*needed)
    is_json = settings.decode in (JSON, DEBEZIUM_JSON)
    bytes_of_json = is_json and VALUE in rows.columns and rows.schema[VALUE].dataType == BinaryType()
    return rows.withColumn(VALUE, rows[VALUE].cast("string")) if bytes_of_json else rows


def _reads_files(df: DataFrame) -> bool:
    """True if the rows still have the hidden column ``_metadata``, which Spark adds to rows of files."""
    try:
        df.select(df.metadataColumn("_metadata")[FILE])
    except AnalysisException:
        return False
    return True


def check_streaming(df: Any, function: str) -> None:
    """Refuse a DataFrame that is not a streaming one of a classic session; `function` names the user's call."""
    check_classic(df, function)
    if not df.isStreaming:
        raise QueryError.of("WRONG_DATAFRAME", function=function)


def check_classic(df: Any, function: str, kind: type = DataFrame) -> None:
    """Refuse a DataFrame or a session of Spark Connect; `function` names the user's call."""
    if is_of_connect(df):
        raise QueryError.of("SPARK_CONNECT", function=function, format=_ON_CONNECT.get(function))
    if not isinstance(df, kind):
        raise TypeError(f"expected a {kind.__name__}, not a {type(df).__name__}")


def _transaction(txn: Any) -> tuple[str, int]:
    match txn:
        case (str(name), int(version)) if (
            NAME_PATTERN.fullmatch(name) and type(version) is int and 0 <= version < 2**63
        ):
            return name, version
    raise SettingsError.of("OPTION_INVALID.txn")
