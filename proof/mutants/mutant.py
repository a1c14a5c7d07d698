"""A mutant: one seeded bug of the product, and the means to put it in and to take it out again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from proof.content import PLAIN, Content


@dataclass(slots=True)
class Patches:
    """Puts other functions in the place of the product's own."""

    _undo: list[Callable[[], None]] = field(default_factory=list)

    def put(self, owner: Any, name: str, value: Any) -> Any:
        """Replace an attribute of a class or a module; returns what was there."""
        before = vars(owner)[name]
        self._undo.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)
        return before

    def undo(self) -> None:
        """All is as it was."""
        while self._undo:
            self._undo.pop()()


@dataclass(frozen=True, slots=True)
class Focus:
    """What the simulator needs to see a mutant soon; without it, it finds the same by chance and later.

    Attributes:
        faults: Faults, each in half of the places where it can happen.
        actions: What the operator and others do.
        branch: Branch that is written; any, if empty.
        content: What the rows are.
        end: Records in each source partition; as drawn, if empty.
        seed: One that saw it when this was written: where tests begin to look.
    """

    faults: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    branch: str = ""
    content: Content = PLAIN
    end: tuple[int, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug.

    Attributes:
        name: What it does wrong.
        breaks: The rule that it breaks, and how.
        seen_in: Who made this mistake.
        focus: What shows it in the simulator.
        scenario: The scenario of real processes that shows it, see `proof.mutants.scenarios`.
        put_in: Puts it in.
    """

    name: str
    breaks: str
    seen_in: str
    focus: Focus
    scenario: str
    put_in: Callable[[Patches], None]

    @contextmanager
    def active(self) -> Iterator[None]:
        """The product has the bug within this block, in this process."""
        patches = Patches()
        try:
            self.put_in(patches)
            yield
        finally:
            patches.undo()


def mutant(breaks: str, *, seen_in: str, focus: Focus, scenario: str) -> Callable[[Callable[[Patches], None]], Mutant]:
    """Make a mutant of the function that puts it in; its name is the function's."""

    def made(put_in: Callable[[Patches], None]) -> Mutant:
        return Mutant(put_in.__name__.replace("_", " "), breaks, seen_in, focus, scenario, put_in)

    return made
