"""The client's words about a property that it refuses, without the values of properties. Pure.

Any value can be a secret, because a secret can stand beside the wrong property by mistake.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lakesink_protocol.redact import MASK, redact, shown

LONGEST = 300
_SHORTEST, _LONG = 4, 64
"""Shorter values are masked only between quotes: elsewhere they are parts of words. The client cuts long messages, so
everything behind the beginning of a long value is masked."""
_PREFIX = re.compile(r"^Failed to create (?:producer|consumer|admin client): ")
_QUOTED_VALUE = re.compile(r'Invalid value ".*" for configuration', re.DOTALL)
_NUMBER = re.compile(r'("[\w.]+") value \S+ is')
_CUT = 'Invalid value "'
_NAMES = r'`[a-z.]+`|property:? "[^"]*"'
_TEXTS = r'"[^"]*(?:"|$)'


def without_values(text: str, config: Mapping[str, Any]) -> str:
    """The message of the client, with names of properties and without values."""
    told = _QUOTED_VALUE.sub("Invalid value for configuration", _PREFIX.sub("", text.strip()))
    if _CUT in told:  # the client cuts its message after 512 bytes
        return "Invalid value for a configuration property"
    told = _NUMBER.sub(r"\1: its value is", told)
    longest_first = sorted(set(_pieces(config)), key=len, reverse=True)
    masked = re.compile("|".join([_NAMES, f"({'|'.join([*map(_pattern, longest_first), _TEXTS])})"]), re.DOTALL)
    told = masked.sub(lambda found: MASK if found[1] else found[0], told)
    return shown(redact(told, config), LONGEST).rstrip(".")


def _pieces(config: Mapping[str, Any]) -> Iterator[str]:
    """The values, and their parts: the client takes lists apart, and shows one element."""
    for value in filter(lambda value: not callable(value), config.values()):
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        for piece in (text, *re.split(r"[\s;,]+", text)):
            if len(piece) >= _SHORTEST and piece.lower() not in ("true", "false"):
                yield piece


def _pattern(value: str) -> str:
    return re.escape(value) if len(value) < _LONG else f"{re.escape(value[:_LONG])}.*"
