"""Offsets as a batch states them, for JSON output."""

import json
import math
from typing import Any, NoReturn


def parsed_offsets(offsets: str) -> Any:
    """The document; the text itself if it is no JSON, None if there is none."""
    try:
        return json.loads(offsets, parse_constant=_no_number, parse_float=_finite) if offsets else None
    except (ValueError, RecursionError):
        return offsets


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
