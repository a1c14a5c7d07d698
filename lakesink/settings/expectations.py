"""Expectations as users write them: a name, a condition in SQL, and what happens to a batch with other rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakesink.rows.expectations import OnUnmet
from lakesink_protocol.quality import EXPECTATION_NAME, MOST_EXPECTATIONS

_LONGEST_CONDITION = 4_000


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition in Spark SQL that every row makes true."""

    condition: str
    on_unmet: OnUnmet = OnUnmet.FAIL


def parse_expectations(value: Any) -> dict[str, Expectation]:
    """Expectations by name, from the option's value; raises ValueError."""
    if not isinstance(value, Mapping) or not value or len(value) > MOST_EXPECTATIONS:
        raise ValueError(f"expected a mapping from 1 to {MOST_EXPECTATIONS} names to conditions")
    for name in value:
        if not isinstance(name, str) or not EXPECTATION_NAME.fullmatch(name):
            raise ValueError(f"the name {str(name)[:40]!r} is not 1 to 63 of A-Z a-z 0-9 _, beginning with a letter")
    if len({name.lower() for name in value}) != len(value):
        raise ValueError("two names differ only in case")
    return {name: _expectation(name, one) for name, one in value.items()}


def _expectation(name: str, value: Any) -> Expectation:
    condition, on_unmet = (value, OnUnmet.FAIL) if isinstance(value, str) else _pair(name, value)
    if not isinstance(condition, str) or not condition.strip() or len(condition) > _LONGEST_CONDITION:
        raise ValueError(f"{name} has no condition in SQL of at most {_LONGEST_CONDITION} characters")
    if on_unmet not in tuple(OnUnmet):
        raise ValueError(f"{name} says none of 'warn', 'quarantine' and 'fail' beside its condition")
    return Expectation(condition, OnUnmet(on_unmet))


def _pair(name: str, value: Any) -> tuple[Any, Any]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f"{name} is neither a condition nor a pair such as ('age >= 0', 'warn')")
    return value[0], value[1]
