"""Steps through Python code, to crash, read, or run a rival before each step, without threads or randomness.

A step is a line of the stepped code, or a further call on that line. Two calls on one line are therefore two steps, and
the moment between them is tested.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

OURS = __name__.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    number: int  # from 0
    place: str  # file and line, and the call for a further call on the line
    visit: int  # number of earlier visits of the place

    def is_at(self, other: "Step") -> bool:
        """True for the same step of another run, which may have taken another number of steps before."""
        return (self.place, self.visit) == (other.place, other.visit)

    def __str__(self) -> str:
        return f"step {self.number} ({self.place})"


@dataclass(slots=True)
class Stepper:
    """Calls back before each step of some packages, on one thread."""

    packages: tuple[str, ...]  # names of top-level packages or modules
    at_step: Callable[[Step], None]  # an exception in it is raised at the step
    taken: list[Step] = field(default_factory=list, init=False)  # steps so far
    _visits: Counter[str] = field(default_factory=Counter, init=False)
    _line_is_new: bool = field(default=False, init=False)

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """For `sys.settrace`: every line is a step."""
        if event == "call":
            return self.trace if self._is_stepped(frame) else None
        if event == "line":
            self._line_is_new = True
            self._step(frame, "")
        return self.trace

    def profile(self, frame: FrameType, event: str, called: Any) -> None:
        """For `sys.setprofile`: each further call on a line, into C or other packages, is a step."""
        if event == "c_call" and self._is_stepped(frame):
            self._call(frame, called.__name__)
        elif event == "call" and not self._is_stepped(frame):
            caller = frame.f_back
            if caller is not None and self._is_stepped(caller):
                self._call(caller, frame.f_code.co_name)

    def _call(self, frame: FrameType, name: str) -> None:
        first, self._line_is_new = self._line_is_new, False
        if not first:
            self._step(frame, f", before {name}")

    def _step(self, frame: FrameType, call: str) -> None:
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}{call}"
        step = Step(len(self.taken), place, self._visits[place])
        self._visits[place] += 1
        self.taken.append(step)
        self.at_step(step)

    def _is_stepped(self, frame: FrameType) -> bool:
        module = str(frame.f_globals.get("__name__"))
        ours = module == OURS or module.startswith(f"{OURS}.")
        return not ours and module.partition(".")[0] in self.packages


@contextmanager
def stepping(packages: tuple[str, ...], at_step: Callable[[Step], None]) -> Iterator[list[Step]]:
    """Call `at_step` before every step that this thread takes in the packages; yields the steps so far."""
    stepper = Stepper(packages, at_step)
    before, profiled = sys.gettrace(), sys.getprofile()
    sys.settrace(stepper.trace)
    sys.setprofile(stepper.profile)
    try:
        yield stepper.taken
    finally:
        sys.settrace(before)
        sys.setprofile(profiled)


def spread(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, evenly spread, including the first and the last."""
    if count <= most:
        return list(range(count))
    if most < 2:
        return [0][:most]
    return sorted({round(number * (count - 1) / (most - 1)) for number in range(most)})


def worth_trying(steps: Sequence[Step], most: int) -> list[Step]:
    """At most `most` of the steps, in order: the first visit of each place, then last visits while there is room."""
    first = [step for step in steps if step.visit == 0]
    if len(first) >= most:
        return [first[number] for number in spread(len(first), most)]
    last = [step for step in {step.place: step for step in steps}.values() if step.visit]
    chosen = [*first, *(last[number] for number in spread(len(last), most - len(first)))]
    return sorted(chosen, key=lambda step: step.number)
