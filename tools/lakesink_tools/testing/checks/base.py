"""The base of every check, with the methods that a subclass of the suite supplies."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, ClassVar, ParamSpec

import pytest

from lakesink_protocol.two_phase import Durability
from lakesink_tools.testing.points import Died
from lakesink_tools.testing.promises import BrokenPromise, Promise
from lakesink_tools.testing.steps import Step, stepping, worth_trying
from lakesink_tools.testing.stream import Sink, Stream

P = ParamSpec("P")

BATCHES = 3
FIRST_MIDDLE_LAST = tuple(range(BATCHES))

OTHER = "by another process"
BY_PROCESS = pytest.mark.parametrize("by", ["by the same process", OTHER])


class SinkUnderTest:
    """Supplies the sink.

    Attributes:
        stepped_packages: Top-level packages whose code is stepped through, line by line and call by call; empty for the
            package of the sink's class.
        most_steps: Maximum number of steps that a check tries, evenly spread; a warning reports if steps are left out.
        failpoints: Names with which the sink calls `lakesink.testing.reached`: its processes are killed there too.
    """

    stepped_packages: ClassVar[tuple[str, ...]] = ()
    most_steps: ClassVar[int] = 30
    failpoints: ClassVar[tuple[str, ...]] = ()

    @pytest.fixture
    def target(self, tmp_path: Any) -> Any:
        """An empty place for the sink's data. It is pickled for other processes, so use a path or a name."""
        raise NotImplementedError("supply the fixture `target`: an empty place for the sink to write to")

    def open_sink(self, target: Any) -> Sink:
        """Open the sink, as a process that has just started. Child processes call this too, so use no fixture."""
        raise NotImplementedError("supply `open_sink`: the sink, as a process that has just started opens it")

    def read_rows(self, target: Any) -> Iterable[tuple[int, int]]:
        """(batch, position) of every row that a reader sees now. Never wait, because a commit may be running."""
        raise NotImplementedError("supply `read_rows`: (batch, position) of every row that a reader sees now")

    @pytest.fixture
    def stream(self, target: Any) -> Stream:
        """A stream into the target."""
        return Stream(partial(self.open_sink, target), partial(self.read_rows, target))

    def skip_unless_it_recovers(self, stream: Stream) -> None:
        """For checks of what a driver recovers that another one has prepared."""
        if stream.open_sink().durability is Durability.MUST_BE_REDONE:
            pytest.skip("a sink with MUST_BE_REDONE recovers nothing")

    def packages_of(self, sink: Sink) -> tuple[str, ...]:
        """The packages that are stepped through."""
        return self.stepped_packages or (type(sink).__module__.partition(".")[0],)

    def steps_of_commit(
        self, stream: Stream, batch_id: int, at_step: Callable[[Step], None] = lambda _: None
    ) -> list[Step]:
        """Prepare a batch and step through its commit; returns the steps."""
        sink = stream.open_sink()
        transaction, prepared = stream.prepare(sink, batch_id)
        packages = self.packages_of(sink)
        with stepping(packages, at_step) as steps:
            sink.commit(transaction, prepared)
        assert steps, f"commit runs no line of {', '.join(packages)}: set stepped_packages"
        return steps

    def chosen(self, steps: Sequence[Step], what: str) -> list[Step]:
        """At most `most_steps` steps for a check. Prints their number, and warns if places are left out."""
        places, chosen = len({step.place for step in steps}), worth_trying(steps, self.most_steps)
        summary = f"{what} takes {len(steps)} steps at {places} places"
        print(f"{summary}; {len(chosen)} steps are tried")  # noqa: T201 - shown by pytest -rP, and beside a failure
        if len(chosen) < places:
            warnings.warn(f"{summary}; {len(chosen)} of them are tried: set most_steps to try more", stacklevel=2)
        return chosen


def keeps(promise: Promise) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Mark a check of this promise: any failure in the check is reported as a violation of this promise."""

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
