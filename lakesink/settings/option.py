"""One keyword option, and the readers that options of several themes share."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

LONGEST_TEXT = 1024
LONGEST_COLUMN_BYTES = 255
Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Option:
    """One keyword option.

    Attributes:
        read: Parses the user's value; raises ValueError with a hint.
        table_property: Table property that the option overrides; empty if none.
    """

    name: str
    type: str
    read: Callable[[Any], Any]
    default: str
    doc: str
    table_property: str = ""
    stream_only: bool = False


def read_text(value: Any) -> str:
    """Text that can be printed."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > LONGEST_TEXT:
        raise ValueError("expected text without control characters")
    return value


def one_of(words: type[Word]) -> Callable[[Any], Word]:
    """A reader of one of some words."""

    def read(value: Any) -> Word:
        if value not in tuple(words):
            *others, last = (f"'{word}'" for word in words)
            raise ValueError(f"expected {', '.join(others)} or {last}")
        return words(value)

    return read
