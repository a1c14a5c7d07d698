"""Errors of Spark jobs, parsed from Spark's text: errors that lakesink raised in a task are raised again unchanged.

No Java exception may leave a batch function: Spark searches its whole text with a recursive pattern, which can overflow
the stream's stack and kill the query without an error message.
"""

import re
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from lakesink_catalog.words import cut
from lakesink_protocol.errors import CatalogError, LakesinkError, QueryError, SettingsError, WriteError
from lakesink_protocol.redact import describe, redact, safe_cause

JAVA_ERRORS = (Py4JError, PySparkException)
"""PySpark's exceptions for errors in the JVM."""

MAX_TEXT = 200_000
MAX_LINE = 120
MAX_NOTE = 3_000
MAX_CAUSES = 10

INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling ...: java.lang.InterruptedException"

_RAISED_BY_LAKESINK = re.compile(
    r"\[LAKESINK_(?P<code>[A-Z0-9_]+)\] (?P<what>.*)(?P<details>(?:\n  - .*)*)"
    r"\n  Data: (?P<data>.*)\n  Do: (?P<action>.*)(?P<choices>(?:\n    - .*)*)"
)
_KIND = re.compile(r"\b(\w+): \Z")
_KINDS = {kind.__name__: kind for kind in (SettingsError, CatalogError, QueryError, WriteError)}
_EXECUTOR_PYTHON = (
    re.compile(r"ModuleNotFoundError: (?P<fact>No module named '(?:pyarrow|lakesink(?:_catalog|_protocol)?)\b[^']*')"),
    re.compile(r"(?P<fact>\[(?:PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION)\] .{0,120})"),
    re.compile(r"(?P<fact>\[PYTHON_VERSION_MISMATCH\] .{0,120})"),
    re.compile(r"(?P<fact>Cannot run program \"[^\"]{0,120}\")"),
    re.compile(r"AttributeError: (?P<fact>(?:Can't get attribute|module) .{0,80}lakesink.{0,80})"),
    re.compile(r"ImportError: (?P<fact>.{0,80}lakesink.{0,80})"),
)
_PYTHON_FAILURE = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(?P<line>\S.*)$", re.MULTILINE)
_JAVA_ERROR = re.compile(r"^: (?P<line>\S.*)$", re.MULTILINE)
"""Of an error without a cause: Py4J's own first line names only the call."""
_JAVA_CAUSE = re.compile(r"^Caused by: (?P<line>.*)$", re.MULTILINE)
_INTERRUPTIONS = frozenset(
    {"java.io.InterruptedIOException", "java.lang.InterruptedException", "java.nio.channels.ClosedByInterruptException"}
)


class QueryStopped(CancelledError):
    """``query.stop()`` interrupted a batch. Spark recognises an intended stop by this text."""

    def __init__(self) -> None:
        super().__init__(INTERRUPTED)


def job_error(text: str) -> LakesinkError:
    """The error to raise for a failed job; `text` is Spark's whole report, with stack traces."""
    text = text[:MAX_TEXT]
    own = _own_error(text)
    if own is not None:
        return own
    for pattern in _EXECUTOR_PYTHON:
        if found := pattern.search(text):
            return WriteError.of("EXECUTOR_PYTHON", found=_short(found["fact"]))
    error = WriteError.of("JOB_FAILED", text=_short(_harmless(telling_line(text))))
    error.add_note(_harmless(text))
    return error


def without_secrets(error: Exception) -> Exception:
    """The error itself, or a replacement without secrets if a message in its chain contains one."""
    if safe_cause(error) is error:
        return error
    return WriteError.of("UNEXPECTED", error=describe(error))


@contextmanager
def presentable() -> Iterator[None]:
    """Let errors leave without secrets; lakesink's own errors also without a traceback."""
    try:
        yield
    except LakesinkError as error:
        raise error.with_traceback(None) from None
    except Exception as error:  # noqa: BLE001 - no error may leave with a secret
        raise without_secrets(error) from None


def is_interruption(error: BaseException) -> bool:
    """True if the JVM's thread was interrupted, which is how Spark stops a query."""
    return any(name in _INTERRUPTIONS for name in _java_classes(error))


def whole_text(error: BaseException) -> str:
    """Everything that Spark reports about an error from the JVM."""
    try:
        return str(error)
    except Py4JError:  # the JVM has ended and cannot return the stack trace
        return type(error).__name__


def _own_error(text: str) -> LakesinkError | None:
    raised = list(_RAISED_BY_LAKESINK.finditer(text))
    if not raised:
        return None
    last = raised[-1]
    named = _KIND.search(text[max(0, last.start() - MAX_LINE) : last.start()])
    kind = _KINDS.get(named[1] if named else "", WriteError)
    details, choices = (last[name].split(mark)[1:] for name, mark in (("details", "\n  - "), ("choices", "\n    - ")))
    return kind(last["code"], last["what"], data=last["data"], action=choices or last["action"], details=details)


def _harmless(text: str) -> str:
    """The start of a text, without secrets and without the words that trigger Spark's recursive pattern."""
    return redact(text[:MAX_NOTE]).replace("py4j.protocol.Py4JJavaError", "Py4JJavaError")


def telling_line(text: str) -> str:
    """The line that names the reason: a task's Python exception, else the innermost Java error, else the first line."""
    for pattern in (_PYTHON_FAILURE, _JAVA_CAUSE, _JAVA_ERROR):
        found = [match["line"] for match in pattern.finditer(text)]
        if found:
            return str(found[-1])
    return next((line for line in text.splitlines() if line.strip()), "no reason given")


def _short(text: str) -> str:
    return cut(text.strip().partition("\n")[0].rstrip("."), MAX_LINE)


def _java_classes(error: BaseException) -> Iterator[str]:
    """Class names of a Java exception and its causes; PySpark's own exceptions keep theirs in `_origin`."""
    java: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    for _ in range(MAX_CAUSES):
        if java is None:
            return
        yield str(java.getClass().getName())
        java = java.getCause()
