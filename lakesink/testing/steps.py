"""Steps through Python code line by line: a crash between two lines, or a look at each, without threads or luck."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

OURS = __name__.rpartition(".")[0]


@dataclass(slots=True)
class Steps:
    """Lines stepped through so far.

    Attributes:
        count: How many.
    """

    count: int = 0


@contextmanager
def stepping(packages: tuple[str, ...], at_line: Callable[[int], None]) -> Iterator[Steps]:
    """Call `at_line` before every line that this thread runs inside the block in functions of the packages.

    Args:
        packages: Names of top-level packages or modules.
        at_line: Is given the number of the step, from 0. What it raises, the line raises.
    """
    steps = Steps()

    def line(_: FrameType, event: str, __: Any) -> Any:
        if event == "line":
            steps.count += 1
            at_line(steps.count - 1)
        return line

    def enter(frame: FrameType, _: str, __: Any) -> Any:
        module = str(frame.f_globals.get("__name__"))
        ours = module == OURS or module.startswith(f"{OURS}.")
        return line if not ours and module.partition(".")[0] in packages else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield steps
    finally:
        sys.settrace(before)


def spread(count: int, most: int) -> list[int]:
    """At most so many of the numbers below `count`, evenly spread, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(number * (count - 1) / (most - 1)) for number in range(most)})
