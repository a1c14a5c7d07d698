"""The result of a check, and the one place that turns a failure of a check into a finding."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.redact import describe, redact
from lakesink_tools.checks.caught import caught

T = TypeVar("T")


class Part(Enum):
    """What is checked, in this order."""

    MACHINE = "machine"
    SPARK = "spark"
    CATALOG = "catalog"
    TABLE = "table"
    CHECKPOINT = "checkpoint"
    QUERY = "query"


class Standing(Enum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check."""

    part: Part
    check: str  # stable name, one or two words
    standing: Standing
    found: str  # versions and places
    fix: str = ""  # what to do, if possible a command; empty if there is nothing to do
    details: Mapping[str, Any] = field(default_factory=dict)  # additional facts for JSON

    def without_secrets(self, known: Mapping[str, Any]) -> "Finding":
        """The finding with every secret masked; `known` are properties whose secrets must not show."""
        details = redact(self.details, known)
        return replace(self, found=redact(self.found, known), fix=redact(self.fix, known), details=details)


def attempt_all(part: Part, check: str, call: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """As `attempt`, for a call that yields several findings."""
    found = attempt(part, check, lambda: list(call()))
    return [found] if isinstance(found, Finding) else found


def attempt(part: Part, check: str, call: Callable[[], T], known: Mapping[str, Any] | None = None) -> T | Finding:
    """The call's result; or a failed finding if it raises, because a check must never end the others.

    Secrets of the `known` properties do not show.
    """
    match caught(call):
        case LakesinkError() as error:
            return Finding(part, check, Standing.FAILED, f"[{error.code}] {error.what}", error.action)
        case Exception() as error:
            found = f"The check itself failed: {describe(error, known)}"
            return Finding(part, check, Standing.FAILED, found, "Check rights and network; else report it.")
        case result:
            return result
