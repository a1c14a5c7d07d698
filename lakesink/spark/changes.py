"""Lets Spark mark the rows that are deletes, in the query's own pass over the rows, and leave out what is not stored."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from lakesink.settings.options import option_invalid
from lakesink.settings.settings import Settings
from lakesink.spark.expectations import check_condition
from lakesink.writer.changed_rows import DELETE_MARK, OFFSET, PARTITION, TOPIC

_POSITION = (TOPIC, PARTITION, OFFSET)
"""Columns that order the changes of a key also if they are not stored."""


def with_operations(df: DataFrame, settings: Settings) -> DataFrame:
    """The rows with their mark of deletes, if there is a condition for it, and without columns that nobody reads.

    Raises:
        SettingsError: Spark cannot evaluate the condition on these rows.
    """
    if DELETE_MARK in map(str.lower, df.columns):
        raise option_invalid("apply_as_deletes", f"The rows have a column {DELETE_MARK}, a name for lakesink alone.")
    marked = _marked(df, settings.apply_as_deletes) if settings.apply_as_deletes else df
    return marked.drop(*(name for name in settings.except_column_list if name.lower() not in _POSITION))


def _marked(df: DataFrame, condition: str) -> DataFrame:
    """The mark of a row keeps NULL: the batch fails then, because its operation is unknown."""
    check_condition(df, "apply_as_deletes", "the condition apply_as_deletes", condition)
    return df.select("*", sf.expr(condition).alias(DELETE_MARK))
