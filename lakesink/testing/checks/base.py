"""What whoever inherits the suite supplies, and what every check starts from."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, ClassVar, ParamSpec

import pytest

from lakesink.testing.points import Died
from lakesink.testing.promises import BrokenPromise, Promise
from lakesink.testing.steps import Step, stepping, worth_trying
from lakesink.testing.stream import Sink, Stream

P = ParamSpec("P")

BATCHES = 3
FIRST_MIDDLE_LAST = tuple(range(BATCHES))


def pass_on(step: Step) -> None:
    """Do nothing at a step."""


class SinkUnderTest:
    """Supplies the sink.

    Attributes:
        stepped_packages: Top-level packages whose code is stepped through, line by line and call by call; that of the
            sink's class, if there are none.
        most_steps: Steps that a check tries at most, evenly spread; a warning says when that is not all of them.
        failpoints: Names with which the sink calls `lakesink.testing.reached`: its processes are killed there too.
    """

    stepped_packages: ClassVar[tuple[str, ...]] = ()
    most_steps: ClassVar[int] = 30
    failpoints: ClassVar[tuple[str, ...]] = ()

    @pytest.fixture
    def target(self, tmp_path: Any) -> Any:
        """An empty place for the sink to write to. Other processes get it too, so it must pickle: a path, a name."""
        raise NotImplementedError("supply the fixture `target`: an empty place for the sink to write to")

    def open_sink(self, target: Any) -> Sink:
        """The sink, as a process that has just started opens it. Called in child processes too: use no fixture."""
        raise NotImplementedError("supply `open_sink`: the sink, as a process that has just started opens it")

    def read_rows(self, target: Any) -> Iterable[tuple[int, int]]:
        """(batch, position) of every row that a reader sees now, also while a commit is under way: never wait."""
        raise NotImplementedError("supply `read_rows`: (batch, position) of every row that a reader sees now")

    @pytest.fixture
    def stream(self, target: Any) -> Stream:
        """A stream into the target."""
        return Stream(partial(self.open_sink, target), partial(self.read_rows, target))

    def packages_of(self, sink: Sink) -> tuple[str, ...]:
        """Whose code is stepped through."""
        return self.stepped_packages or (type(sink).__module__.partition(".")[0],)

    def steps_of_commit(self, stream: Stream, batch_id: int, at_step: Callable[[Step], None] = pass_on) -> list[Step]:
        """Prepare a batch and step through its commit.

        Args:
            stream: The stream.
            batch_id: The batch.
            at_step: Called before each step.

        Returns:
            The steps.
        """
        sink = stream.open_sink()
        transaction, prepared = stream.prepare(sink, batch_id)
        packages = self.packages_of(sink)
        with stepping(packages, at_step) as steps:
            sink.commit(transaction, prepared)
        assert steps, f"commit runs no line of {', '.join(packages)}: set stepped_packages"
        return steps

    def chosen(self, steps: Sequence[Step], what: str) -> list[Step]:
        """The steps that a check tries: `most_steps` at most. It prints how many, and warns if that is not all."""
        places, chosen = len({step.place for step in steps}), worth_trying(steps, self.most_steps)
        told = f"{what} takes {len(steps)} steps at {places} places"
        print(f"{told}; {len(chosen)} steps are tried")  # noqa: T201 - shown by pytest -rP, and beside a failure
        if len(chosen) < places:
            warnings.warn(f"{told}; {len(chosen)} of them are tried: set most_steps to try more", stacklevel=2)
        return chosen


def keeps(promise: Promise) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """The check is about this promise: whatever goes wrong in it is told as its breach.

    Args:
        promise: The promise.
    """

    def about(check: Callable[P, None]) -> Callable[P, None]:
        @wraps(check)
        def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                check(*args, **kwargs)
            except (Exception, Died) as found:
                raise BrokenPromise(promise, found) from found

        checked.promise = promise  # type: ignore[attr-defined] # for the documents
        return checked

    return about
