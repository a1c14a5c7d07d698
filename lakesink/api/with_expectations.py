"""Lets Spark evaluate expectations: one more BOOLEAN column for each, in the query's own pass over the rows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType

from lakesink.rows.expectations import Expected, is_mark
from lakesink.settings.options import option_invalid
from lakesink.settings.options_of_rows import Expectation, parse_expectations
from lakesink_catalog.words import cut
from lakesink_protocol.redact import redact, shown

_LONGEST = 170
"""A first line has less than 200 characters, with the code of the error."""


def with_expectations(df: DataFrame, expect: Mapping[str, str | Sequence[str]]) -> DataFrame:
    """The rows with their expectations, for ``format("lakesink")``; `stream` and `append` take the option `expect`.

    Not for documents that lakesink decodes: Spark evaluates the conditions before.

    Args:
        df: Streaming or batch DataFrame. Do not change its columns afterwards.
        expect: As the option `expect`: conditions by name, each alone or with ``"warn"`` or ``"fail"``.

    Raises:
        SettingsError: A name is malformed, or Spark cannot evaluate a condition on these rows.
    """
    try:
        return marked(df, parse_expectations(expect))
    except ValueError as error:
        raise option_invalid("expect", str(error)) from None


def marked(df: DataFrame, expectations: Mapping[str, Expectation]) -> DataFrame:
    """The rows with a mark for each expectation; unchanged if there are none."""
    taken = {column.lower() for column in df.columns if is_mark(column)}
    marks = []
    for name, expectation in expectations.items():
        check_condition(df, "expect", f"the expectation {name}", expectation.condition)
        mark = Expected(name, expectation.on_unmet).mark
        if mark.lower() in taken:
            raise option_invalid("expect", f"The rows have an expectation {name} already.")
        marks.append(sf.coalesce(sf.expr(expectation.condition), sf.lit(False)).alias(mark))  # noqa: FBT003
    return df.select("*", *marks) if marks else df


def check_condition(df: DataFrame, option: str, what: str, condition: str) -> None:
    """Check that Spark can evaluate a condition beside the rows: alone, an aggregate would be valid."""
    try:
        with checked_sql():
            kind = df.select("*", sf.coalesce(sf.expr(condition))).schema.fields[-1].dataType
    except PySparkException as error:
        begin = f"Spark cannot evaluate {what}: "
        raise option_invalid(option, f"{begin}{reason_in(error, _LONGEST - len(begin))}") from None
    if not isinstance(kind, BooleanType):
        is_kind = f"is {kind.simpleString().upper()}, not a condition (BOOLEAN)"
        raise option_invalid(option, f"{what[:1].upper()}{what[1:]} {is_kind}.")


def reason_in(error: PySparkException, longest: int) -> str:
    """The first line of Spark's message that has words, cut between two words; of a wrong name, Spark's suggestion."""
    given = error.getMessageParameters() or {}
    line = next((line for line in str(error).splitlines() if line.strip()), "no reason given")
    if "proposal" in given:  # it is the end of a long message
        wrong = given.get("objectName") or given.get("fieldName") or "such name"
        line = f"there is no {wrong}. Did you mean {given['proposal']}?"
    return shown(cut(redact(line), longest), longest)  # redacted before it is cut: half a secret is not recognised


@contextmanager
def checked_sql() -> Iterator[None]:
    """Within this block, Spark does not log what is wrong with SQL, as eight kilobytes of JSON: an error says it."""
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
