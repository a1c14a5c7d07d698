"""What is known of a query before it starts: its checkpoint, its output mode, its sources, and its functions."""

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakesink.checkpoint.query_facts import (
    LONGEST_NAME,
    MOST_NAMES,
    Functions,
    Source,
    gives_uncommitted,
    is_lenient,
    replay_of,
)
from lakesink.settings.option_types import OutputMode
from lakesink.spark.hadoop import hadoop_of
from lakesink.spark.query import items
from lakesink.spark.spark_errors import telling_line, whole_text
from lakesink_catalog.words import cut
from lakesink_protocol.errors import QueryError, SettingsError
from lakesink_protocol.redact import redact
from lakesink_protocol.suggest import sentence

FAIL_ON_DATA_LOSS = "failOnDataLoss"
PARSE_MODE, CORRUPT_COLUMN = "mode", "columnNameOfCorruptRecord"
SERVERS, ISOLATION_LEVEL = "kafka.bootstrap.servers", "kafka.isolation.level"
MAX_REASON = 100
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PYTHON = frozenset({"PythonUDF", "PythonUDAF", "PythonUDTF"})


def plan_of(rows: DataFrame) -> Any:
    """The analysed plan of a DataFrame, in the JVM."""
    return rows._jdf.queryExecution().analyzed()  # PySpark has no public access to a plan


def absolute_checkpoint(session: SparkSession, checkpoint: str) -> str:
    """The checkpoint as an absolute path or URI; a local relative path counts from Python's working folder."""
    if _SCHEME.match(checkpoint) or posixpath.isabs(checkpoint):
        return checkpoint
    hadoop, conf = hadoop_of(session)
    system = str(hadoop.FileSystem.getDefaultUri(conf).toString())
    if not system.startswith("file:"):
        raise SettingsError.of("CHECKPOINT_RELATIVE", checkpoint=checkpoint, system=system)
    return posixpath.abspath(checkpoint)


def check_checkpoint(session: SparkSession, checkpoint: str) -> None:
    """Check that Spark has a file system for the checkpoint's location, without reading from it."""
    location = absolute_checkpoint(session, checkpoint)
    hadoop, conf = hadoop_of(session)
    try:
        hadoop.Path(location).getFileSystem(conf)
    except (Py4JError, PySparkException) as error:
        why = cut(redact(telling_line(whole_text(error))), MAX_REASON)
    else:
        return
    raise SettingsError.of("CHECKPOINT_INVALID", checkpoint=redact(checkpoint)[:60], why=sentence(why))


def check_output_mode(rows: DataFrame, mode: OutputMode) -> None:
    """Let Spark judge a query's output mode before it starts, and say what else lakesink has for aggregations."""
    spark = rows.sparkSession.sparkContext._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    of_spark = getattr(spark.streaming.OutputMode, mode.value.capitalize())()
    try:
        spark.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan_of(rows), of_spark)
    except Py4JError:  # not a public API
        return
    except PySparkException as error:
        if str(error.getCondition()).startswith("STREAMING_OUTPUT_MODE."):
            # Spark says at the start what else it cannot do.
            raise QueryError.of("OUTPUT_MODE.aggregates", mode=mode.value) from None


def sources_of(rows: DataFrame) -> list[Source]:
    """The streaming sources in a DataFrame's plan; starts nothing."""
    corrupt = str(rows.sparkSession.conf.get(f"spark.sql.{CORRUPT_COLUMN}"))
    found = []
    for leaf in filter(lambda leaf: leaf.isStreaming(), items(plan_of(rows).collectLeaves())):
        name = _source_name(leaf)
        uncommitted = gives_uncommitted(name, option_of(leaf, ISOLATION_LEVEL))
        replay = replay_of(name, option_of(leaf, FAIL_ON_DATA_LOSS))
        found.append(Source(name.partition("[")[0], replay, uncommitted, _is_lenient(leaf, corrupt)))
    return found


def places_of(rows: DataFrame) -> list[str]:
    """Where each streaming source reads: servers of Kafka, a folder, or the catalog of a table; empty if unknown."""
    leaves = filter(lambda leaf: leaf.isStreaming(), items(plan_of(rows).collectLeaves()))
    folders = ((leaf, _source_name(leaf).partition("[")[2].removesuffix("]")) for leaf in leaves)
    return [folder or option_of(leaf, SERVERS) or option_of(leaf, "catalog") or "" for leaf, folder in folders]


def option_of(leaf: Any, key: str) -> str | None:
    """One option of a streaming source by name. No other value is read, because it may be a secret."""
    try:
        value = leaf.extraOptions().get(key)
    except Py4JError:  # a relation of Data Source V1
        return _first_interface_option(leaf, key)
    return None if value is None else str(value)


def _is_lenient(leaf: Any, corrupt: str) -> bool:
    try:
        file_format = str(leaf.dataSource().className())
    except Py4JError:  # it reads no files
        return False
    kept = option_of(leaf, CORRUPT_COLUMN) or corrupt
    keeps_corrupt = any(str(column.name()) == kept for column in items(leaf.output()))
    return is_lenient(file_format, option_of(leaf, PARSE_MODE), keeps_corrupt=keeps_corrupt)


def _source_name(leaf: Any) -> str:
    try:
        return str(leaf.sourceName())
    except Py4JError:  # a relation without a source name: a memory stream, a custom node
        return str(leaf.nodeName())


def _first_interface_option(leaf: Any, key: str) -> str | None:
    try:
        found = leaf.dataSource().caseInsensitiveOptions().get(key)
    except Py4JError:  # neither V1 nor V2: a node of Spark or of a library
        return None
    return str(found.get()) if found.isDefined() else None


def functions_of(rows: DataFrame) -> Functions:
    """Non-deterministic expressions, without `current_timestamp()`: Spark logs a batch's time with its offsets."""
    python, plan = _python_pattern(rows), plan_of(rows)
    unstable: dict[str, None] = {}
    trusted: dict[str, None] = {}

    def matters(node: Any) -> bool:
        return not node.deterministic() or bool(node.containsPattern(python))

    try:
        for expression in _expressions(plan, matters):
            if not expression.deterministic():
                if all(child.deterministic() for child in _children(expression)):
                    unstable[_name(expression)] = None
            elif _kind(expression) in _PYTHON:
                trusted[_name(expression)] = None
    except Py4JError:  # a custom node without the usual methods can contain anything
        return Functions(unstable=("a plan that cannot be read",))
    return Functions(tuple(unstable)[:MOST_NAMES], tuple(trusted)[:MOST_NAMES])


def runs_python(rows: DataFrame) -> bool:
    """True if Python functions compute the rows of a DataFrame, streaming or not."""
    return bool(plan_of(rows).containsPattern(_python_pattern(rows)))


def _python_pattern(rows: DataFrame) -> Any:
    jvm = rows.sparkSession.sparkContext._jvm
    assert jvm is not None
    return jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()


def _expressions(plan: Any, matters: Callable[[Any], bool]) -> Iterator[Any]:
    """Every expression that matters or contains one that matters; other branches are skipped."""
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        if not matters(node):
            continue
        nodes += _children(node)
        found = [expression for expression in items(node.expressions()) if matters(expression)]
        while found:
            expression = found.pop()
            yield expression
            found += [child for child in _children(expression) if matters(child)]


def _children(node: Any) -> list[Any]:
    return items(node.children())


def _name(expression: Any) -> str:
    """A function's own name, else the SQL name of the expression."""
    if _kind(expression) in _PYTHON:
        return str(expression.name())[:LONGEST_NAME]
    try:
        return str(expression.udfName().get())[:LONGEST_NAME]
    except Py4JError:  # not a user's function, or one without a name
        return str(expression.prettyName())[:LONGEST_NAME]


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())
