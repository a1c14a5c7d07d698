"""Carries cases out for one sink, step by step, and has the oracle judge what is left."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import SparkSession

from proof.contest.case import Case
from proof.contest.driver import Orders, driver, run_streams
from proof.contest.place import Place
from proof.contest.reader import Reader
from proof.contest.result import Ending, Result, judge
from proof.contest.sinks import Sink
from proof.drivers import Driver
from servers.fault_proxy import FaultProxy, HttpFault, fault_proxy

STARTS = 3
"""A supervisor starts a stream that has failed so often in all."""


class StepMissed(Exception):
    """A step did not come about, so that the case shows nothing: a fault of this program, not of the sink."""


@dataclass(slots=True)
class Player:
    """Cases under way, whose streams share their drivers.

    Attributes:
        places: Where, one for each case.
        sink: Whose.
        spark: Runs what is not to be killed.
        jars: Of Iceberg, for drivers.
        proxy: Before the catalog, if that is a REST server.
        log: Of drivers.
        stopped: Errors of the newest run, one for each stream; empty where it ended well.
        errors: Errors that a restart overcame.
        publishing: What came of publishing.
    """

    places: Sequence[Place]
    sink: Sink
    spark: SparkSession
    jars: Sequence[Path]
    proxy: FaultProxy | None
    log: Path
    stopped: Sequence[str] = ()
    errors: list[str] = field(default_factory=list)
    publishing: str = ""

    @property
    def place(self) -> Place:
        """The only one."""
        [place] = self.places
        return place

    @property
    def spoilt(self) -> Event:
        """Set when a request was spoilt."""
        assert self.proxy is not None, "a case with a spoilt request needs a REST catalog"
        return self.proxy.met

    def run(self, files: int) -> None:
        """Run the streams; where one fails they are started again, as a supervisor would."""
        failed: list[str] = []
        for _ in range(STARTS):
            self.stopped = run_streams(self.spark, self._orders(files=files))
            if not any(self.stopped):
                self.errors += failed
                return
            failed += filter(None, self.stopped)

    def driver(self, variables: Mapping[str, str] | None = None, **told: Any) -> AbstractContextManager[Driver]:
        """A driver of its own for the streams; nothing of it outlives the block.

        Args:
            variables: Of its environment.
            told: See `Orders`.
        """
        return driver(self._orders(**told), self.jars, self.log, **variables or {})

    def arm(self, fault: HttpFault, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Have something go wrong with the next commit request."""
        self.spoilt.clear()
        assert self.proxy is not None
        self.proxy.arm(self.proxy.commits + 1, fault, meanwhile)

    def must(self, it_was: bool, otherwise: str) -> None:  # noqa: FBT001 - the condition itself
        """What has to be for the case to show something.

        Raises:
            StepMissed: It was not.
        """
        if not it_was:
            log = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""
            names = ", ".join(place.case.name for place in self.places)
            raise StepMissed(f"{names} of {self.sink.name}: {otherwise}. {log}")

    def _orders(self, **told: Any) -> list[Orders]:
        return [
            Orders(self.sink.name, place.target, replays=place.case.replays, wap_id=place.case.wap_id, **told)
            for place in self.places
        ]


def play(
    cases: Sequence[Case],
    sink: Sink,
    spark: SparkSession,
    folder: Path,
    jars: Sequence[Path] = (),
    rest: Callable[[], str] | None = None,
) -> list[Result]:
    """Cases of one sink with the same steps, side by side, in a folder of their own that is gone afterwards.

    Args:
        cases: The cases.
        sink: The sink.
        spark: Runs what is not to be killed.
        folder: Exists.
        jars: Of Iceberg; none if they cannot be had.
        rest: URI of a REST catalog, asked for if the cases need one.

    Raises:
        StepMissed: The cases did not come about, and not when they were tried once more either.
    """
    uri = rest() if rest is not None and cases[0].needs_rest else None
    for last_try in (False, True):
        name = f"{sink.name}{'-again' if last_try else ''}"
        (folder / name).mkdir()
        try:
            return _played(cases, sink, spark, folder / name, jars, uri)
        except StepMissed:  # Spark itself fails now and then where a machine is overloaded
            if last_try:
                raise
        finally:
            shutil.rmtree(folder / name)
    raise AssertionError("the last try returns or raises")


def _played(
    cases: Sequence[Case], sink: Sink, spark: SparkSession, root: Path, jars: Sequence[Path], rest: str | None
) -> list[Result]:
    started = time.monotonic()
    with ExitStack() as servers, ExitStack() as reading:
        proxy = servers.enter_context(fault_proxy(rest)) if rest is not None else None
        places = [_place(case, root, proxy) for case in cases]
        for place in places:
            place.create(with_table=sink.view is None)
        servers.enter_context(sink.server([place.target for place in places]))
        readers = [Reader(place, sink) if place.case.watched else None for place in places]
        for reader in filter(None, readers):
            reading.enter_context(reader.reading())
        player = Player(places, sink, spark, jars, proxy, root / "driver.log")
        for step in cases[0].steps:
            step(player)
        player.must(proxy is None or proxy.met.is_set(), "no commit came that could be spoilt")
        reading.close()
        seconds = round(time.monotonic() - started, 1)
        return [
            judge(place, sink, Ending(stopped, tuple(player.errors), player.publishing, seconds), reader)
            for place, stopped, reader in zip(places, player.stopped, readers, strict=True)
        ]


def _place(case: Case, root: Path, proxy: FaultProxy | None) -> Place:
    name = f"{root.name}-{case.name}".replace("-", "_")
    folder = root / case.name
    if proxy is not None:
        through, direct = ({"type": "rest", "uri": uri} for uri in (proxy.uri, proxy.target))
        return Place(folder, case, through, direct, name, f"{name}.numbers")
    sql = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    return Place(folder, case, sql, sql, name, "demo.numbers")
