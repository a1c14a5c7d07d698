"""What a check found, in one form for all of them, and the one place where a check's own failure becomes a finding."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.redact import describe, redact

T = TypeVar("T")


class Part(Enum):
    """What is looked at, in this order."""

    MACHINE = "machine"
    SPARK = "spark"
    CATALOG = "catalog"
    TABLE = "table"
    CHECKPOINT = "checkpoint"
    QUERY = "query"


class Standing(Enum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check.

    Attributes:
        part: What it belongs to.
        check: Its name: stable, one or two words.
        standing: How it ended.
        found: What was found: versions, places.
        fix: What to do, a command where there is one; empty if there is nothing to do.
        details: More of what was found, for JSON.
    """

    part: Part
    check: str
    standing: Standing
    found: str
    fix: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def without_secrets(self, known: Mapping[str, Any]) -> "Finding":
        """The same with every secret masked.

        Args:
            known: Properties whose secrets must not show in any form.
        """
        details = redact(self.details, known)
        return replace(self, found=redact(self.found, known), fix=redact(self.fix, known), details=details)


def attempt_all(part: Part, check: str, call: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """As `attempt`, for several checks in one: their findings, or the one that ended them."""
    found = attempt(part, check, lambda: list(call()))
    return [found] if isinstance(found, Finding) else found


def attempt(part: Part, check: str, call: Callable[[], T], known: Mapping[str, Any] | None = None) -> T | Finding:
    """What the call returns; or a failed finding, whatever it raised: a check never ends the others.

    Args:
        part: What the check belongs to.
        check: Its name.
        call: What to do.
        known: Properties whose secrets must not show.
    """
    try:
        return call()
    except LakesinkError as error:
        return Finding(part, check, Standing.FAILED, f"[{error.code}] {error.what}", error.action)
    except Exception as error:  # noqa: BLE001 - whatever a library raises is what the check found
        found = f"The check itself failed: {describe(error, known)}"
        return Finding(part, check, Standing.FAILED, found, "If this is not a matter of rights or network, report it.")
