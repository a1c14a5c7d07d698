"""Transport encoding: how rows travel from Spark to Python, and how they are restored there.

Spark keeps a decimal of up to 18 digits as a long, but makes a BigDecimal of each to write it as Arrow. With three such
columns of thirteen, that takes a sixth of the transfer time. The long itself is cheap to send, and is converted back to
a decimal in Python.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from py4j.java_gateway import JavaClass
from pyspark.sql import Column, DataFrame
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import DecimalType

LONGEST = 18
"""Most digits of a decimal that Spark keeps in a long."""

_PLAIN_NAME = re.compile(r"[^.`]*")
_UTILS = "org.apache.spark.sql.classic.ExpressionUtils"
_UNSCALED = "org.apache.spark.sql.catalyst.expressions.UnscaledValue"

Decimals = Mapping[int, tuple[int, int]]
"""Precision and scale of columns, by position."""


@dataclass(frozen=True, slots=True)
class Transport:
    """How columns travel: by position if `names` has their original names, and those in `decimals` as integers."""

    names: tuple[str, ...] | None = None
    decimals: Decimals = field(default_factory=dict)

    def decoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows without transport encoding; shares memory where possible."""
        for batch in _as_decimals(batches, self.decimals) if self.decimals else batches:
            yield batch if self.names is None else batch.rename_columns(list(self.names))


def encode_for_transport(rows: DataFrame) -> tuple[DataFrame, Transport]:
    """The rows in transport encoding. PySpark parses column names, so odd or duplicate ones travel by position."""
    names = rows.columns
    plain = all(map(_PLAIN_NAME.fullmatch, names)) and len({name.lower() for name in names}) == len(names)
    named = rows if plain else rows.toDF(*(f"c{position}" for position in range(len(names))))
    decimals = short_decimals(named)
    return as_whole_numbers(named, decimals), Transport(None if plain else tuple(names), decimals)


def short_decimals(rows: DataFrame) -> Decimals:
    """The columns of a DataFrame that can travel as integers."""
    kinds = ((position, field.dataType) for position, field in enumerate(rows.schema.fields))
    return {
        position: (kind.precision, kind.scale)
        for position, kind in kinds
        if isinstance(kind, DecimalType) and kind.precision <= LONGEST
    }


def as_whole_numbers(rows: DataFrame, decimals: Decimals) -> DataFrame:
    """The rows with these columns as longs (unscaled values). Column names must be plain."""
    if not decimals:
        return rows
    client = rows.sparkSession._jvm._gateway_client  # type: ignore[union-attr]
    # Spark SQL has no name for this expression. Full class names avoid Py4J's slow look-up of packages.
    utils, unscaled = JavaClass(_UTILS, client), JavaClass(_UNSCALED, client)
    numbers: dict[str, Column] = {}
    for name in (rows.columns[position] for position in decimals):
        numbers[name] = ClassicColumn(utils.column(unscaled(utils.expression(rows[name]._jc))))
    return rows.withColumns(numbers)


def _as_decimals(batches: Iterable[pa.RecordBatch], decimals: Decimals) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns, schema = batch.columns, batch.schema
        for position, (precision, scale) in decimals.items():
            exact = pa.decimal128(precision, scale)
            short = columns[position].view(pa.decimal64(precision, scale))
            columns[position] = short.cast(exact, safe=False)  # the same digits: nothing to check
            schema = schema.set(position, schema.field(position).with_type(exact))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
