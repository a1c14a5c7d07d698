"""The one loop for every change of a target: attempt it until the target shows it. Pure: what an attempt does is given.

Every attempt looks at the target as it is now, decides, builds and sends. An answer that is not a proven yes proves
nothing, so the next attempt looks, and after the last attempt one more look says what the target shows.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from lakesink_protocol.errors import BatchRefused
from lakesink_protocol.redact import describe
from lakesink_protocol.retry import RetryPolicy, Waiting, attempts

NOT_SHOWN = "the answer did not show it"
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Fenced(Protocol[R_co]):
    """One change of one target."""

    def attempt(self, number: int, /) -> R_co | None:
        """Look, decide, build and send. None if the target's answer does not show the change.

        Raises:
            GivenUp: No attempt may be made any more.
        """

    def look(self, number: int, /) -> R_co | None:
        """What the target shows after so many attempts; None if it does not show the change."""

    def unsure(self, number: int, error: Exception, /) -> str:
        """Say in words why an attempt proved nothing. An error that is certain is raised again."""


class GivenUp(Exception):
    """No attempt may be made any more; its text says why. What was sent before is still looked for."""


class MustBeWrittenAgain:
    """The target moved on since the change was prepared: it is to be prepared again."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """The target was not seen to have the change.

    Attributes:
        trouble: The last one, in words.
        attempts: How many were made.
    """

    trouble: str
    attempts: int


def fenced(change: Fenced[R], policy: RetryPolicy, waiting: Waiting) -> R | Unseen:
    """Attempt a change until the target shows it, or attempts run out.

    Args:
        change: What each attempt does.
        policy: Bounds of the attempts.
        waiting: Clock and sleep.

    Raises:
        Exception: What `Fenced.unsure` raises again, and a refusal of the target's history.
    """
    number, trouble = 0, ""
    for number in attempts(policy, waiting):
        try:
            found = change.attempt(number)
        except GivenUp as end:
            trouble = str(end)
            break
        except Exception as error:  # noqa: BLE001 - whatever a catalog or a store raises is neither yes nor no
            trouble = change.unsure(number, error)
        else:
            if found is not None:
                return found
    try:
        found = change.look(number)
    except BatchRefused:
        raise
    except Exception as error:  # noqa: BLE001 - a look that fails proves nothing
        trouble, found = trouble or describe(error), None
    return Unseen(trouble or NOT_SHOWN, number) if found is None else found
