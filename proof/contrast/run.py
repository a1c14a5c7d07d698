"""Plays cases for sinks, in one Spark session where isolation allows, and gathers how they ended."""

import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lakesink
from proof.contrast.cases import CASES, Case
from proof.contrast.engine import Engine
from proof.contrast.play import StepMissed, play
from proof.contrast.result import Result
from proof.contrast.sinks import SINKS
from proof.drivers import session
from proof.oracle import ended_well
from servers.jars import ICEBERG, ICEBERG_SPARK, JarsMissing, fetched
from servers.rest_reference import rest_reference

OURS = "lakesink"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Contrast:
    """What came of the cases.

    Attributes:
        results: One for each case and sink that was played, in the order of `CASES`.
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
        """Where lakesink did not keep its promise, or refused what it should have taken."""
        return tuple(f"{result.case}: {what}" for result in self.results for what in broken_by(result))

    def of(self, case: str, sink: str) -> Result | None:
        """How a case ended for a sink; None if it was not played."""
        found = [result for result in self.results if (result.case, result.sink) == (case, sink)]
        return found[0] if found else None

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        return {**asdict(self), "broken": self.broken, "results": [result.to_json() for result in self.results]}


def broken_by(result: Result) -> list[str]:
    """What is broken in a result of lakesink; nothing is expected of the others."""
    if result.sink != OURS:
        return []
    allowed = next(case.refusals for case in CASES if case.name == result.case)
    refusals = [str(broken) for broken in ended_well(result.stopped or None, allowed)]
    return refusals if result.is_exact else [result.words, *refusals]


def run(
    seconds: float | None,
    seed: int,
    progress: Progress,
    *,
    cases: Sequence[Case] = CASES,
    sinks: Sequence[str] = tuple(SINKS),
) -> Contrast:
    """Play cases for sinks.

    Args:
        seconds: Begin nothing new after that time; None for no bound.
        seed: Not used: nothing here is left to chance. Every part of the proof takes one.
        progress: Told what is played.
        cases: Which cases.
        sinks: Names of sinks.
    """
    del seed
    started = time.monotonic()
    results: dict[tuple[str, str], Result] = {}
    not_run: list[str] = []
    with _machine(needs_jars=any(SINKS[sink].in_jvm for sink in sinks)) as machine:
        for case in sorted(cases, key=lambda case: case.has_own_drivers):
            for sink in (sink for sink in sinks if sink in case.sinks):
                if seconds is not None and time.monotonic() - started > seconds:
                    not_run.append(f"{case.name} of {sink}: the time was used up")
                    continue
                progress(f"{case.title}: {SINKS[sink].title}")
                try:
                    results[case.name, sink] = machine.play(case, sink)
                except (JarsMissing, StepMissed) as error:
                    not_run.append(f"{case.name} of {sink}: {error}")
    ordered = [results[case.name, sink] for case in cases for sink in sinks if (case.name, sink) in results]
    return Contrast(tuple(ordered), tuple(not_run), versions(), round(time.monotonic() - started, 1))


class _Machine:
    """What the cases need: one session, and servers that start when a case first asks for them."""

    def __init__(self, folder: Path, stack: ExitStack, *, needs_jars: bool) -> None:
        self._folder = folder
        self._stack = stack
        self._needs_jars = needs_jars

    @cached_property
    def engine(self) -> Engine:
        self._no_jars, jars = _jars() if self._needs_jars else (None, ())
        spark = session("local[2]", jars, {}, self._folder)
        self._stack.callback(spark.stop)
        return Engine(spark, jars)

    @cached_property
    def rest(self) -> str:
        folder = self._folder / "rest"
        folder.mkdir()
        return self._stack.enter_context(rest_reference(folder)).uri

    def play(self, case: Case, sink: str) -> Result:
        engine = self.engine
        if SINKS[sink].in_jvm and self._no_jars is not None:
            raise self._no_jars
        return play(case, sink, engine, self._folder, lambda: self.rest)


@contextmanager
def _machine(*, needs_jars: bool) -> Iterator[_Machine]:
    with tempfile.TemporaryDirectory(prefix="lakesink-contrast-") as folder, ExitStack() as stack:
        yield _Machine(Path(folder), stack, needs_jars=needs_jars)


def _jars() -> tuple[JarsMissing | None, tuple[Path, ...]]:
    try:
        return None, fetched(ICEBERG_SPARK)
    except JarsMissing as error:
        return error, ()


def versions() -> dict[str, str]:
    """Of everything that is compared, and of what it ran on."""
    return {
        "lakesink": lakesink.__version__,
        "iceberg-spark-runtime-4.1_2.13": ICEBERG,
        "pyiceberg": version("pyiceberg"),
        "pyspark": version("pyspark"),
        "pyarrow": version("pyarrow"),
        "python": platform.python_version(),
    }
