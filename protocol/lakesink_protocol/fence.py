"""The one loop for every change of a target: attempt it until the target shows it. Pure: attempts are injected.

Every attempt reads the current target, decides, builds and sends. Only a proven success counts: after any other
answer, the next attempt reads the target again. After the last attempt, the target is read once more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from lakesink_protocol.errors import BatchRefused, WriteError
from lakesink_protocol.redact import describe, safe_cause
from lakesink_protocol.retry import Attempts, RetryPolicy, Waiting

_OF_THE_PROGRAM = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError,
    RecursionError, TypeError, ValueError,
)  # fmt: skip
NOT_SHOWN = "the answer did not show it"
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Fenced(Protocol[R_co]):
    """One change of one target."""

    def attempt(self, number: int, /) -> R_co | None:
        """Read the target, decide, build and send. None if the target's answer does not show the change.

        Raises `GivenUp` if no further attempt is allowed, `LostRace` if another writer was quicker.
        """

    def look(self, number: int, /) -> R_co | None:
        """The result that the target shows after this many attempts; None if it does not show the change."""

    def unsure(self, number: int, error: Exception, /) -> str:
        """Describe why the result of an attempt is unknown. A final error is raised again, see `check_sent`."""


class GivenUp(Exception):
    """No further attempt is allowed; the text gives the reason. The target is still read once more.

    Attributes:
        action: What to do about it; empty if the usual advice is right.
    """

    def __init__(self, what: str, action: str = "") -> None:
        self.action = action
        super().__init__(what)


class LostRace(Exception):
    """Another writer was quicker, and it is proven that the attempt changed nothing.

    Attributes:
        took_ms: How long the attempt took, without its wait for a turn.
    """

    def __init__(self, what: str, took_ms: int) -> None:
        self.took_ms = took_ms
        super().__init__(what)


class MustBeWrittenAgain:
    """The target changed since the change was prepared, so the change must be prepared again."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """The target does not show the change; `trouble` describes the last failure, `action` see `GivenUp`."""

    trouble: str
    attempts: int
    action: str = ""


def is_of_the_program(error: BaseException | None) -> bool:
    """True for an error in code, which another attempt repeats. HTTP clients raise some for answers, as OSErrors."""
    return isinstance(error, _OF_THE_PROGRAM) and not isinstance(error, OSError)


def not_sent(error: Exception, known: Mapping[str, Any] | None = None) -> WriteError:
    """The error for an attempt that ended with an error in code before any request was sent."""
    return WriteError.of("COMMIT_FAILED", error=describe(error, known))


def check_sent(error: Exception, *, sent: bool, known: Mapping[str, Any] | None = None) -> None:
    """Raise `not_sent` for an error in code if no request was sent. After a request, the result is unknown."""
    if not sent and is_of_the_program(error):
        raise not_sent(error, known) from safe_cause(error, known)


def fenced(change: Fenced[R], policy: RetryPolicy, waiting: Waiting) -> R | Unseen:
    """Attempt a change until the target shows it, or attempts run out. Final errors and refusals are raised."""
    number, trouble, action = 0, "", ""
    attempts = Attempts(policy, waiting)
    for number in attempts:
        try:
            found = change.attempt(number)
        except GivenUp as end:
            trouble, action = str(end), end.action
            break
        except Exception as error:  # noqa: BLE001 - whatever a catalog or a store raises is neither yes nor no
            trouble = change.unsure(number, error)
            if isinstance(error, LostRace):
                attempts.lost(error.took_ms)
        else:
            if found is not None:
                return found
    try:
        found = change.look(number)
    except BatchRefused:
        raise
    except Exception as error:  # noqa: BLE001 - a look that fails proves nothing
        trouble, found = trouble or describe(error), None
    return Unseen(trouble or NOT_SHOWN, number, action) if found is None else found
