"""Makes the Iceberg sink of a query, by the rules of the session that runs its batches."""

from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession

from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import stored_columns
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.spark.rows.frame_schema import is_case_sensitive, stored_schema
from lakesink.spark.rows.job import Executors
from lakesink_catalog.commit.effects import Effects
from lakesink_protocol.events import Listeners
from lakesink_protocol.identity import SinkKey


@dataclass(frozen=True, slots=True)
class SinkMaker:
    """Makes the sink of one query, or of one batch; opens nothing."""

    table: str
    key: SinkKey
    open_catalog: Callable[[], Catalog]
    settings: Settings
    rows: DataFrame
    emit: Listeners

    def __call__(self, session: SparkSession) -> IcebergSink:
        """The sink for batches of this session, which may be a clone of the one of the rows."""
        sensitive = is_case_sensitive(session)
        columns = stored_columns(stored_schema(self.rows.schema), self.settings, case_sensitive=sensitive)
        given = self.table, self.key, self.open_catalog, self.settings, columns, sensitive
        return IcebergSink(*given, Effects(emit=self.emit), run_in_executors=Executors(self.rows.sparkSession))
