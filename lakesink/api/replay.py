"""The public function `replay_dead_letters`: repaired dead letters land in their table, each once."""

from typing import Unpack

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakesink.api.repair import Repair, repaired
from lakesink.api.streams import append_version, check_classic
from lakesink.settings.option_types import Options
from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.preflight import open_existing
from lakesink.sinks.iceberg.side.letters_policy import letters_table
from lakesink.sinks.iceberg.side.replay_loop import Repaired, ReplayLoop, check_no_documents
from lakesink.sinks.iceberg.side.replays import Replayed
from lakesink_catalog.connect.catalog import CatalogConfig


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
