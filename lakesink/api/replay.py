"""The public function `replay_dead_letters`: repaired dead letters land in their table, each once.

A repair is the user's: rows of a DataFrame, checked before a commit.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Unpack

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from lakesink.api.streams import append_version, check_classic
from lakesink.api.with_expectations import checked_sql, reason_in
from lakesink.settings.option_types import Options
from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.preflight import open_existing
from lakesink.sinks.iceberg.side.letters_table import letters_table
from lakesink.sinks.iceberg.side.replay_loop import LETTER_ID, Repaired, ReplayLoop, check_no_documents, invalid_repair
from lakesink.sinks.iceberg.side.replays import Replayed
from lakesink.spark.rows.frame_schema import stored_schema
from lakesink_catalog.connect.catalog import CatalogConfig
from lakesink_catalog.spark_types import sql_type
from lakesink_catalog.words import counted

Repair = Callable[[DataFrame], DataFrame] | str
"""A function of the letters, or a query in Spark SQL over the view `letters`."""
ROW = "row"
VIEW = "letters"
_LONGEST_REASON = 120
_ONE_VIEW = Lock()
"""Threads of one session share the name of the view, until Spark has resolved their queries."""


def repaired(session: SparkSession, letters: pa.Table, table: Table, repair: Repair) -> Repaired:
    """Run a repair, once; raises WriteError if Spark cannot, or no table can store its rows."""
    row = _readable(pa.struct(list(schema_to_pyarrow(table.schema(), include_field_ids=False))))
    is_object = sf.json_object_keys("payload").isNotNull()  # else the row is NULL
    given = session.createDataFrame(letters).withColumn(ROW, sf.when(is_object, sf.from_json("payload", sql_type(row))))
    frame = _run(given, repair)
    column = _letter_id(frame)
    kept = frame.drop(column)
    stored_schema(kept.schema)  # raises for a type that no table can store
    found = frame.toArrow()
    at = frame.columns.index(column)
    ids = found.column(at).to_pylist()
    return Repaired(ids, session.createDataFrame(found.remove_column(at), kept.schema))


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type with what Spark cannot read from JSON as it is written: TIME as text, maps by other keys as entries."""
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_readable(part.type)) for part in kind])
    if pa.types.is_map(kind):
        key, item = _readable(kind.key_type), _readable(kind.item_type)
        by_text = pa.types.is_string(key) or pa.types.is_large_string(key)
        return pa.map_(key, item) if by_text else pa.list_(pa.struct([("key", key), ("value", item)]))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_readable(kind.value_type))
    return pa.string() if pa.types.is_time(kind) else kind


def _run(letters: DataFrame, repair: Repair) -> DataFrame:
    if callable(repair):
        found = repair(letters)
        if isinstance(found, DataFrame):
            return found
        raise invalid_repair(
            f"The repair returned a {type(found).__name__}.", "Return a DataFrame, made of the one that it gets."
        )
    with _ONE_VIEW, _view(letters), checked_sql():
        try:
            return letters.sparkSession.sql(repair)
        except PySparkException as error:
            reason = reason_in(error, _LONGEST_REASON)
    raise invalid_repair(f"Spark cannot run the repair: {reason}", "Correct the query over the view letters.")


@contextmanager
def _view(letters: DataFrame) -> Iterator[None]:
    """The letters as a temporary view; one that the user has under the name is back afterwards."""
    session = letters.sparkSession
    catalog = session.catalog
    is_temporary = catalog.tableExists(VIEW) and catalog.getTable(VIEW).isTemporary
    before = session.table(VIEW) if is_temporary else None
    letters.createOrReplaceTempView(VIEW)
    try:
        yield
    finally:
        catalog.dropTempView(VIEW)
        if before is not None:
            before.createOrReplaceTempView(VIEW)


def _letter_id(frame: DataFrame) -> str:
    found = [name for name in frame.columns if name.lower() == LETTER_ID]
    if len(found) == 1:
        return found[0]
    raise invalid_repair(
        f"The repair returns {counted(len(found), 'column')} letter_id.",
        "Return the letter_id of each letter beside the columns of the table: SELECT letter_id, row.* FROM letters.",
    )


def replay_dead_letters(spark: SparkSession, table: str, repair: Repair, **options: Unpack[Options]) -> Replayed:
    """Append repaired dead letters to the table that they came from, each once, also if this is called several times.

    The repair gets the pending letters of this table, with all columns of the table of dead letters, and `row`: the
    payload in the columns of the table, NULL if it is no JSON object. It returns the columns of the table and
    `letter_id`, one row for each letter that it repairs. A letter that it does not return stays pending. It may be
    called several times, each time with at most 100,000 letters. A call that failed is continued by the next one.

    Args:
        spark: A classic Spark session.
        table: Table identifier, ``namespace.table``.
        repair: Function of a DataFrame that returns one, or a query in Spark SQL over the view ``letters``.
        **options: As for `append`, which writes the rows. `dead_letter_table` names the table of dead letters if it has
            another name than ``<table>__dead_letters``. Nothing can be put aside again.

    Returns:
        What this call has replayed, and the number of letters that are pending afterwards.

    Raises:
        SettingsError: An option is malformed, or would put rows aside.
        CatalogError: The catalog is unusable, or a table does not exist.
        WriteError: The repair returned other letters than it was given, or rows that the table cannot hold; or the
            tables contradict each other.
        BatchRefused: The table's ledger does not allow the replay.
        CommitUnresolved: It is unknown whether the rows were committed. Call again.
    """
    check_classic(spark, "lakesink.replay_dead_letters", SparkSession)
    settings = Settings.parse(options, entry=Entry.REPLAY)
    letters = letters_table(table, settings)
    found = CatalogConfig(settings.catalog, settings.catalog_properties).find()

    def repair_letters(given: pa.Table, of: Table) -> Repaired:
        found = repaired(spark, given, of, repair)
        check_no_documents(found.rows.columns, of, settings)
        return found

    catalog = open_existing(found, table)
    return ReplayLoop(table, letters, settings, found.open, catalog, repair_letters, append_version).run()
