"""At most once: remember the batch, then write it. Whoever dies in between has lost it, and will never know."""

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame

from lakesink.testing import reached

from .store import Store


@dataclass(frozen=True)
class AtMostOnce:
    """For `foreachBatch`.

    Attributes:
        store: Where the rows go.
        done: A file that holds the id of the newest batch.
    """

    store: Store
    done: Path

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Progress first, effect second."""
        if self.done.exists() and batch_id <= int(self.done.read_text()):
            return
        rows = [tuple(row) for row in batch.collect()]
        self._remember(batch_id)
        reached("example.remembered", batch_id)
        self.store.insert(rows, batch_id)

    def _remember(self, batch_id: int) -> None:
        staged = self.done.with_suffix(".staged")
        staged.write_text(str(batch_id))
        staged.rename(self.done)  # the whole number or the old one, never half of it
