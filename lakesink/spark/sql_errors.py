"""What Spark says about SQL that a user wrote, for an error of one line."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from lakesink_protocol.redact import redact, shown


def reason_in(error: PySparkException, longest: int) -> str:
    """The first line of Spark's message that has words, cut between two words."""
    line = next((line for line in str(error).splitlines() if line.strip()), "no reason given")
    whole = redact(line)  # before it is cut: half a secret is not recognised
    return shown(textwrap.shorten(whole, longest, placeholder=" ...", break_on_hyphens=False), longest)


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
