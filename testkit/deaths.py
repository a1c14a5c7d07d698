"""What befalls a driver at a request to its catalog, in the process of a test: faults for `FaultyCatalog`."""

from collections.abc import Callable
from typing import Any

Apply = Callable[[], Any]


class Killed(BaseException):
    """SIGKILL: nothing of the driver goes on."""


def dies_before(_: Apply) -> Any:
    """The request does not leave."""
    raise Killed


def dies_after(apply: Apply) -> Any:
    """The request lands."""
    apply()
    raise Killed


def answer_is_lost(apply: Apply) -> Any:
    """The request lands, and nobody hears of it."""
    apply()
    raise TimeoutError


def until_it_lives(run: Callable[[], object]) -> None:
    """Start a driver again until it does not die."""
    while True:
        try:
            run()
            return
        except Killed:
            continue
