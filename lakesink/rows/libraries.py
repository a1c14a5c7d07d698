"""The oldest PyArrow and DuckDB that pass the tests: earlier ones treat some values wrongly, see decision 0060.

pip checks the same versions. Executors may have other packages than pip has seen, so tasks check them again.
"""

import re
from collections.abc import Mapping

from lakesink_protocol.errors import WriteError

OLDEST: Mapping[str, str] = {"duckdb": "2.0", "pyarrow": "25.0"}
_LEADING_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)*")


def version_numbers(version: str) -> list[int]:
    """The leading numbers of a version, without zeros at their end: 4.1 and 4.1.0 are the same."""
    leading = _LEADING_NUMBERS.match(version)
    numbers = [int(part) for part in leading[0].split(".")] if leading else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def is_too_old(library: str, version: str) -> bool:
    """True if a version is below the oldest that is allowed."""
    return version_numbers(version) < version_numbers(OLDEST[library])


def check_library(library: str, version: str) -> None:
    """Refuse to write with a version below the oldest that is allowed."""
    if is_too_old(library, version):
        raise WriteError.of("LIBRARY_TOO_OLD", library=library, version=version, oldest=OLDEST[library])
