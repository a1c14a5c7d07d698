"""The shape in which rows travel from Spark to Python, and how they get back the one that they had."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from lakesink.spark.rows.decimals import Decimals, as_decimals, as_whole_numbers, short_decimals

_PLAIN_NAME = re.compile(r"[^.`]*")


@dataclass(frozen=True, slots=True)
class Shape:
    """What was changed about the columns of a DataFrame for the way.

    Attributes:
        names: Names that they had, in order, if they travel by position; else None.
        decimals: Columns that travel as whole numbers.
    """

    names: tuple[str, ...] | None = None
    decimals: Decimals = field(default_factory=dict)

    def restored(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows as they were before the way; shares what it can."""
        for batch in as_decimals(batches, self.decimals) if self.decimals else batches:
            yield batch if self.names is None else batch.rename_columns(list(self.names))


def shaped(rows: DataFrame) -> tuple[DataFrame, Shape]:
    """The same rows as they travel best.

    PySpark finds columns by parsing their names, so odd or doubled ones travel by position.
    """
    names = rows.columns
    plain = _is_plain(names)
    named = rows if plain else rows.toDF(*(f"c{position}" for position in range(len(names))))
    decimals = short_decimals(named)
    return as_whole_numbers(named, decimals), Shape(None if plain else tuple(names), decimals)


def _is_plain(names: Sequence[str]) -> bool:
    return all(map(_PLAIN_NAME.fullmatch, names)) and len({name.lower() for name in names}) == len(names)
