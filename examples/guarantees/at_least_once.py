"""At least once: write the batch, and let Spark remember it afterwards. What most `foreachBatch` functions do."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from lakesink.testing import reached

from .store import Store


@dataclass(frozen=True)
class AtLeastOnce:
    """For `foreachBatch`.

    Attributes:
        store: Where the rows go.
    """

    store: Store

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Effect first; progress is Spark's, when this returns. A batch that Spark runs again is written again."""
        rows = [tuple(row) for row in batch.collect()]
        reached("example.handed-over", batch_id)
        self.store.insert(rows, batch_id)
