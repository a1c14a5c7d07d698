"""What Spark says about SQL that a user wrote, for an error of one line."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from lakesink_catalog.words import cut
from lakesink_protocol.redact import redact, shown


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
