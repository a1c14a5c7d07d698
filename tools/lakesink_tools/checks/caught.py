"""Turns any exception of a library into a value, so that a failed check never ends the others."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def caught(call: Callable[[], T]) -> T | Exception:
    """Return the call's result, or the exception that it raised."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - catalogs, storages and broken packages raise exceptions of any class
        return error
