"""Exactly once in the end: every row sets a key, so that it does no harm to write it again.

But a replay writes history again, in the order in which it was. A key that the batch sets several times goes back to an
older value, and a reader who looks at that moment believes it.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from lakesink.testing import reached

from .store import Store


@dataclass(frozen=True)
class KeyValue:
    """For `foreachBatch`.

    Attributes:
        store: Where the keys are: every reading under its own, and each device's newest one under the device's.
    """

    store: Store

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """The same key twice is one key."""
        rows = [tuple(row) for row in batch.collect()]
        reached("example.handed-over", batch_id)
        self.store.put(rows, batch_id)
