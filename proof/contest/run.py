"""Plays cases for sinks, in one Spark session where isolation allows, and gathers how they ended."""

import os
import platform
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import lakesink
from proof.contest.case import Case
from proof.contest.cases import CASES, GUARANTEES, PARTED
from proof.contest.play import StepMissed, play
from proof.contest.result import Result
from proof.contest.sinks import OURS, SINKS, Guarantee, Sink
from proof.contest.steps import executors_killed, killed_at_the_answer, two_drivers
from proof.drivers import session
from proof.oracle import ended_well
from proof.outcome import Progress
from proof.provenance import commit
from servers.jars import ICEBERG, ICEBERG_SPARK, fetched
from servers.missing import Missing
from servers.rest_reference import rest_reference

_LONG_STEPS = (killed_at_the_answer, two_drivers, executors_killed)
"""They start drivers of their own."""


@dataclass(frozen=True, slots=True)
class Contest:
    """What came of the cases.

    Attributes:
        results: One for each case and sink that was played, in the order of `CASES` and `SINKS`.
        not_run: Cases that were not, and why.
        versions: Of what was run.
        seconds: How long it all took.
    """

    results: tuple[Result, ...]
    not_run: tuple[str, ...]
    versions: Mapping[str, str]
    seconds: float

    @property
    def broken(self) -> tuple[str, ...]:
        """Where lakesink did not keep its promise, or a sink not what theory promises of it."""
        return tuple(f"{one.case} of {one.sink}: {what}" for one in self.results for what in broken_by(one))

    def result(self, case: str, sink: str) -> Result | None:
        """How a case ended for a sink; None if it was not played."""
        return next((one for one in self.results if (one.case, one.sink) == (case, sink)), None)

    def only(self, cases: Iterable[Case]) -> "Contest":
        """What came of these cases."""
        names = {case.name for case in cases}
        return replace(self, results=tuple(one for one in self.results if one.case in names))

    def together(self, earlier: "Contest") -> "Contest":
        """These results, and of an earlier run those of what was not played now."""
        known = {(one.case, one.sink): one for one in (*earlier.results, *self.results)}
        ordered = ((case, sink) for sink in SINKS for case in CASES)
        return replace(self, results=tuple(known[one] for one in ordered if one in known))

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        return {**asdict(self), "broken": self.broken}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "Contest":
        """What `to_json` wrote."""
        results = tuple(Result.from_json(one) for one in told["results"])
        return cls(results, tuple(told["not_run"]), told["versions"], told["seconds"])


def promised(result: Result) -> Guarantee:
    """What theory promises of a sink with the source of the case."""
    return result.of.promised(replays=CASES[result.case].replays)


def broken_by(result: Result) -> list[str]:
    """What is broken in a result; of sinks that are only compared with lakesink nothing is expected."""
    case = CASES[result.case]
    if case.watched:
        if result.stopped:
            return [f"the stream stopped with {result.stopped}"]
        parted = (result.sink, result.case) in PARTED
        as_told = (result.measured is not promised(result)) == parted
        return [] if as_told else [f"promised {promised(result).value}, seen {result.measured.value}"]
    if result.sink != OURS:
        return []
    refusals = [str(broken) for broken in ended_well(result.stopped or None, case.refusals)]
    return refusals if result.is_exact else [result.words, *refusals]


def run(
    progress: Progress,
    cases: Sequence[Case],
    sinks: Sequence[Sink] = tuple(SINKS.values()),
    seconds: float | None = None,
) -> Contest:
    """Play cases for sinks.

    Args:
        progress: Told what is played; called from several threads.
        cases: Which cases.
        sinks: Which sinks.
        seconds: Begin nothing new after that time; None for no bound.
    """
    started = time.monotonic()
    results: list[Result] = []
    not_run: list[str] = []
    with tempfile.TemporaryDirectory(prefix="lakesink-contest-") as made, ExitStack() as stack:
        in_jvm = {sink.name for sink in sinks if sink.in_jvm}
        machine = _Machine(Path(made), stack, needs_jars=any(in_jvm.intersection(case.sinks) for case in cases))

        def one(cases: Sequence[Case], sink: Sink) -> None:
            name = f"{', '.join(case.name for case in cases)} of {sink.name}"
            if seconds is not None and time.monotonic() - started > seconds:
                not_run.append(f"{name}: the time was used up")
                return
            progress(f"{', '.join(case.title for case in cases)}: {sink.title}")
            try:
                results.extend(machine.play(cases, sink))
            except (Missing, StepMissed) as error:
                not_run.append(f"{name}: {error}")

        for group, at_once in _groups(cases):
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(partial(one, group), (sink for sink in sinks if sink.name in group[0].sinks)))
    contest = Contest((), tuple(not_run), versions(), round(time.monotonic() - started, 1))
    return contest.together(replace(contest, results=tuple(results)))


def _groups(cases: Sequence[Case]) -> Iterator[tuple[Sequence[Case], int]]:
    """What is played together, the long ones last, and for how many sinks at once: a session has one branch."""
    alone = [case for case in cases if case not in GUARANTEES]
    yield from (([case], 1) for case in sorted(alone, key=lambda case: any(at in _LONG_STEPS for at in case.steps)))
    if killed := [case for case in cases if case in GUARANTEES]:
        yield killed, min(2, os.cpu_count() or 1)


class _Machine:
    """What the cases need: one session, and a server that starts when a case first asks for it."""

    def __init__(self, folder: Path, stack: ExitStack, *, needs_jars: bool) -> None:
        self._folder = folder
        self._stack = stack
        self._no_jars: Missing | None = None
        self._jars: tuple[Path, ...] = ()
        try:
            self._jars = fetched(ICEBERG_SPARK) if needs_jars else ()
        except Missing as error:
            self._no_jars = error
        self._spark: SparkSession = session("local[2]", self._jars, {}, folder)
        stack.callback(self._spark.stop)

    @cached_property
    def rest(self) -> str:
        folder = self._folder / "rest"
        folder.mkdir()
        return self._stack.enter_context(rest_reference(folder)).uri

    def play(self, cases: Sequence[Case], sink: Sink) -> list[Result]:
        if sink.in_jvm and self._no_jars is not None:
            raise self._no_jars
        return play(cases, sink, self._spark, self._folder, self._jars, lambda: self.rest)


def versions() -> dict[str, str]:
    """Of everything that is compared, and of what it ran on."""
    return {
        "lakesink": lakesink.__version__,
        "iceberg-spark-runtime-4.1_2.13": ICEBERG,
        **{name: version(name) for name in ("pyiceberg", "pyspark", "pyarrow")},
        "python": platform.python_version(),
        "commit": commit("lakesink", "catalog", "protocol", "examples", "proof"),
    }
