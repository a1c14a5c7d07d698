"""One keyword option, and the readers that options of several themes share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, TypeVar

from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import NAME_PATTERN
from lakesink_protocol.redact import MASK, contains_secret, redact
from lakesink_protocol.suggest import did_you_mean, sentence

LONGEST_TEXT = 1024
LONGEST_COLUMN_BYTES = 255
_LONGEST_CONDITION = 4_000
Word = TypeVar("Word", bound=str)


@dataclass(frozen=True, slots=True)
class Option:
    """One keyword option.

    Attributes:
        read: Parses the user's value; raises ValueError with a hint.
        table_property: Table property that the option overrides; empty if none.
    """

    name: str
    read: Callable[[Any], Any]
    doc: str
    type: str = "text"
    default: str = "none"
    table_property: str = ""

    def parse(self, value: Any) -> Any:
        """The value, parsed; raises SettingsError."""
        try:
            return self.read(value)
        except ValueError as error:
            text = value if isinstance(value, str) else ""
            shown = MASK if contains_secret(self.name, text) or self.name == "catalog_properties" else _shown(value)
            why = f"The option {self.name} is {shown}: {sentence(redact(str(error)))}"
        raise self.invalid(why)

    def invalid(self, what: str) -> SettingsError:
        """The error for a value; the description of the option says what is valid."""
        return SettingsError("OPTION_INVALID", what, action=f"{self.name} ({self.type}): {self.doc}")


def option_unknown(where: str, name: object, known: Iterable[str], hint: str = "", groups: str = "") -> SettingsError:
    """The error for an option that does not exist; `groups` are names of which only the beginning is known."""
    near = hint or did_you_mean(str(name), known)
    options = f"{', '.join(known)}{groups}"
    return SettingsError.of("OPTION_UNKNOWN", where=where, name=str(name)[:60], near=near, options=options)


def read_text(value: Any) -> str:
    """Text that can be printed."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > LONGEST_TEXT:
        raise ValueError("expected text without control characters")
    return value


def read_place(value: Any) -> str:
    """A path or URI."""
    return read_text(fspath(value) if isinstance(value, PathLike) else value)


def read_sql(value: Any, trouble: str = "expected a condition") -> str:
    """A condition in Spark SQL; `trouble` is what the error says of another value."""
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_CONDITION:
        raise ValueError(f"{trouble} in SQL of at most {_LONGEST_CONDITION} characters")
    return value


def read_name(value: Any) -> str:
    """The name of a sink or a reader."""
    if not isinstance(value, str) or not NAME_PATTERN.fullmatch(value):
        raise ValueError("expected 1 to 64 characters A-Z a-z 0-9 . _ -, beginning with a letter or digit")
    return value


def one_of(words: Iterable[Word]) -> Callable[[Any], Word]:
    """A reader of one of some words."""
    known = tuple(words)

    def read(value: Any) -> Word:
        if value not in known:
            *others, last = (f"'{word}'" for word in known)
            raise ValueError(f"expected {', '.join(others)} or {last}")
        return known[known.index(value)]

    return read


def _shown(value: Any) -> str:
    if not isinstance(value, (str, int, float)):
        return f"a {type(value).__name__}"
    if isinstance(value, int) and value.bit_length() > 64:  # Python does not print all of them
        return "a very large int"
    text = redact(repr(value))
    return text if len(text) <= 40 else f"{text[:37]}..."
