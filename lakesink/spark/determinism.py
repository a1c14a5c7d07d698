"""Finds non-deterministic expressions in a query's plan, without running anything."""

from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from lakesink.checkpoint.query_facts import LONGEST_NAME, MOST_NAMES, Functions
from lakesink.spark.query import items, plan_of

_PYTHON = frozenset({"PythonUDF", "PythonUDAF", "PythonUDTF"})


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
