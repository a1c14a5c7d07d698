"""Transport encoding: how rows travel from Spark to Python, and how they are restored there."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from lakesink.spark.rows.decimals import Decimals, as_decimals, as_whole_numbers, short_decimals

_PLAIN_NAME = re.compile(r"[^.`]*")


@dataclass(frozen=True, slots=True)
class Shape:
    """How columns travel: by position if `names` has their original names, and those in `decimals` as integers."""

    names: tuple[str, ...] | None = None
    decimals: Decimals = field(default_factory=dict)

    def restored(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows without transport encoding; shares memory where possible."""
        for batch in as_decimals(batches, self.decimals) if self.decimals else batches:
            yield batch if self.names is None else batch.rename_columns(list(self.names))


def shaped(rows: DataFrame) -> tuple[DataFrame, Shape]:
    """The rows in transport encoding. PySpark parses column names, so odd or duplicate ones travel by position."""
    names = rows.columns
    plain = _is_plain(names)
    named = rows if plain else rows.toDF(*(f"c{position}" for position in range(len(names))))
    decimals = short_decimals(named)
    return as_whole_numbers(named, decimals), Shape(None if plain else tuple(names), decimals)


def _is_plain(names: Sequence[str]) -> bool:
    return all(map(_PLAIN_NAME.fullmatch, names)) and len({name.lower() for name in names}) == len(names)
