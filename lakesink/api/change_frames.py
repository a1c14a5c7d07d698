"""Lets Spark mark the rows that are deletes, in the query's own pass over the rows."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from lakesink.api.with_expectations import check_condition
from lakesink.rows.changed_rows import DELETE_MARK, OFFSET, PARTITION
from lakesink.settings.option_types import OutputMode
from lakesink.settings.options import option_invalid
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.change_plan import check_left_out
from lakesink.spark.query import sources_of
from lakesink.spark.rows.frame_schema import is_case_sensitive

KAFKA = "kafka"


def with_operations(df: DataFrame, settings: Settings) -> DataFrame:
    """The rows with their mark of deletes, if there is a condition for it, and without the columns that are left out.

    Raises:
        SettingsError: Spark cannot evaluate the condition on these rows, or a column that is left out is not there.
    """
    check_left_out(df.columns, settings, case_sensitive=is_case_sensitive(df.sparkSession))
    if DELETE_MARK in map(str.lower, df.columns):
        raise option_invalid("apply_as_deletes", f"The rows have a column {DELETE_MARK}, a name for lakesink alone.")
    if settings.apply_as_deletes:
        check_condition(df, "apply_as_deletes", "the condition apply_as_deletes", settings.apply_as_deletes)
        # The mark of a row keeps NULL: the batch fails then, because its operation is unknown.
        df = df.select("*", sf.expr(settings.apply_as_deletes).alias(DELETE_MARK))
    return df.drop(*settings.except_column_list)


def trusts_order(df: DataFrame, settings: Settings) -> bool:
    """True if only the order of the stream says which change of a key is the newest.

    Kafka keeps the order of a key, also in records that were copied to files with their places. In output mode update,
    Spark itself makes the changes in their order.
    """
    placed = bool(settings.decode) and {PARTITION, OFFSET} <= set(df.columns)
    ordered = bool(settings.sequence_by) or placed or settings.output_mode is OutputMode.UPDATE
    return settings.has_changes and not ordered and any(source.name != KAFKA for source in sources_of(df))
