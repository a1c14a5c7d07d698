"""The reader of ``format("lakesink")`` since Spark 4.2, which has limits. Older versions cannot import this module."""

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from lakesink.read.follow import newest_position
from lakesink.read.position import Position, parse_offset
from lakesink.settings.options_of_reading import ReadSettings
from lakesink.spark.source.source_readers import BatchesReader, Loaded
from lakesink.spark.spark_errors import presentable


class AdmittingReader(BatchesReader, SupportsTriggerAvailableNow):  # type: ignore[misc] # PySpark has no types
    """The reader since Spark 4.2, which says from where on it asks, and how much."""

    def __init__(self, settings: ReadSettings, loaded: Loaded) -> None:
        super().__init__(settings, loaded)
        self._newest: Position | None = None

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # type: ignore[override] # of Spark 4.2
        """The end of the next micro-batch after `start`."""
        with presentable():
            position = parse_offset(start)
            everything = isinstance(limit, ReadAllAvailable)
            found = self.after(position, limited=not everything, newest=self._newest)
            return start if found == position else found.to_offset()

    def getDefaultReadLimit(self) -> Any:
        """Any limit of Spark's makes it ask for less than everything; which, the options say."""
        most = self.settings.max_rows_per_trigger or 2**63 - 1
        return ReadMaxRows(most) if self.settings.has_limits else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The newest batch of the table, for the query's progress."""
        with presentable():
            return newest_position(self.table(), self.settings.table, self.loaded.sink).to_offset()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of a run that reads what there is now."""
        with presentable():
            self._newest = newest_position(self.table(), self.settings.table, self.loaded.sink)
