"""Failpoints for two-phase sinks, and a conformance suite that checks the promises of a sink.

`reached` and `FAILPOINTS` have no dependencies, so a sink may use them. The suite needs pytest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakesink_catalog.failpoints import ACTIONS, FAILPOINTS, Failpoint, FailpointReached, reached

if TYPE_CHECKING:
    from lakesink_tools.testing.conformance import SinkConformance
    from lakesink_tools.testing.promises import BrokenPromise, Promise
    from lakesink_tools.testing.tagged_rows import ROWS

__all__ = [
    "ACTIONS",
    "FAILPOINTS",
    "ROWS",
    "BrokenPromise",
    "Failpoint",
    "FailpointReached",
    "Promise",
    "SinkConformance",
    "reached",
]

_HOMES = {
    "ROWS": "lakesink_tools.testing.tagged_rows",
    "BrokenPromise": "lakesink_tools.testing.promises",
    "Promise": "lakesink_tools.testing.promises",
    "SinkConformance": "lakesink_tools.testing.conformance",
}


def __getattr__(name: str) -> Any:
    """Import the suite at its first use: a sink that uses only failpoints needs no pytest."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "pytest":
            raise
        raise ImportError(f"lakesink.testing.{name} needs pytest: pip install pytest") from error


def __dir__() -> list[str]:
    return sorted(__all__)
