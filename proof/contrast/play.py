"""Carries a case out for one sink, step by step, and has the oracle judge what is left."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import assert_never

from proof.contrast.cases import Case
from proof.contrast.driver import Orders, catalog_conf, named
from proof.contrast.engine import Engine, freeze, thaw
from proof.contrast.place import Place
from proof.contrast.result import Ending, Result, judge
from proof.contrast.steps import (
    Arrive,
    BackUp,
    ExecutorsKilled,
    Expire,
    Happening,
    KilledAtTheAnswer,
    LoseCheckpoint,
    MainMoves,
    OthersAppend,
    Publish,
    Restore,
    Run,
    Spoil,
    Step,
    TidyUp,
    TwoDrivers,
    Unlog,
)
from proof.drivers import said, wait_until
from proof.processes.evidence import local
from servers.fault_proxy import FaultProxy, HttpFault, Kind, fault_proxy
from servers.spark_cluster import spark_cluster

FOUR_TASKS = {"spark.sql.files.minPartitionNum": "4"}
"""One for each of the four files."""
STARTS = 3
"""A supervisor starts a stream that has failed so often in all."""


class StepMissed(Exception):
    """A step did not come about, so that the case shows nothing: a fault of this program, not of the sink."""


def play(case: Case, sink: str, engine: Engine, folder: Path, rest: Callable[[], str]) -> Result:
    """One case of one sink, in a folder of its own that is gone afterwards.

    Args:
        case: The case.
        sink: Name of the sink.
        engine: Runs the streams.
        folder: Exists.
        rest: URI of a REST catalog, asked for if the case needs one.

    Raises:
        StepMissed: The case did not come about.
    """
    root = folder / f"{case.name}-{sink}"
    started = time.monotonic()
    with _proxied(rest() if case.needs_rest else None) as proxy:
        place = _place(case, sink, root, proxy)
        place.create()
        player = Player(place, sink, engine, proxy)
        for step in case.steps:
            player.do(step)
        if proxy is not None and not proxy.met.is_set():
            raise StepMissed(f"{case.name} of {sink}: no commit came that could be spoilt")
        ending = Ending(player.stopped, tuple(player.errors), player.publishing, time.monotonic() - started)
        result = judge(place, sink, ending)
    shutil.rmtree(root)
    return result


@dataclass(slots=True)
class Player:
    """A case under way.

    Attributes:
        place: Where.
        sink: Whose.
        engine: Runs the streams.
        proxy: Before the catalog, if that is a REST server.
        stopped: Error of the newest run; empty if it ended well.
        errors: Errors that a restart overcame.
        publishing: What came of publishing.
    """

    place: Place
    sink: str
    engine: Engine
    proxy: FaultProxy | None
    stopped: str = ""
    errors: list[str] = field(default_factory=list)
    publishing: str = ""

    def do(self, step: Step) -> None:
        """Carry out one step."""
        match step:
            case Run():
                self._run(step.files)
            case Spoil():
                self._arm(step.fault)
            case KilledAtTheAnswer():
                self._killed_at_the_answer()
            case TwoDrivers():
                self._two_drivers()
            case ExecutorsKilled():
                self._executors_killed()
            case Publish():
                self._publish()
            case _:
                happen(step, self.place)

    def _orders(self, files: int = 1) -> Orders:
        place = self.place
        return Orders(self.sink, place.target, str(place.source), files, place.case.wap_id)

    def _run(self, files: int) -> None:
        for _ in range(STARTS):
            self.stopped = self.engine.run(self._orders(files))
            if not self.stopped:
                return
            self.errors.append(self.stopped)
        del self.errors[-STARTS:]

    def _arm(self, fault: HttpFault, meanwhile: Callable[[], None] = lambda: None) -> FaultProxy:
        assert self.proxy is not None, "a case with a spoilt request needs a REST catalog"
        self.proxy.met.clear()
        self.proxy.arm(self.proxy.commits + 1, fault, meanwhile)
        return self.proxy

    def _killed_at_the_answer(self) -> None:
        proxy = self._arm(HttpFault(Kind.SILENCE))
        with self.engine.driver(self._orders(), self._log) as driver:
            self._must(wait_until(proxy.met.is_set, driver), "the driver ended before its commit")

    def _two_drivers(self) -> None:
        seconds: list[str] = []
        with self.engine.driver(self._orders(), self._log) as first:

            def meanwhile() -> None:
                freeze(first)
                with self.engine.driver(self._orders(), self._log) as second:
                    seconds.append(said(second))
                thaw(first)

            self._arm(HttpFault(Kind.SLOW), meanwhile)
            self.errors += [error for error in (said(first), *seconds) if error]
        self._must(bool(seconds), "the first driver ended before its commit")

    def _executors_killed(self) -> None:
        with spark_cluster(self.place.root / "cluster") as cluster:
            conf = {**cluster.conf, **FOUR_TASKS}
            orders = replace(self._orders(files=4), master=cluster.master, slowly=True, conf=conf)
            with self.engine.driver(orders, self._log) as driver:
                self._must(wait_until(self._has_whole_file, driver), "the driver ended before a file was whole")
                executors = cluster.executors()
                self._must(bool(executors), "there were no executors")
                for pid in executors:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                error = said(driver)
        self.errors += [error] if error else []

    def _has_whole_file(self) -> bool:
        data = local(self.place.load().location()) / "data"
        return any(path.read_bytes()[-4:] == b"PAR1" and path.stat().st_size > 8 for path in data.rglob("*.parquet"))

    def _publish(self) -> None:
        spark, target = self.engine.spark, self.place.target
        for name, value in catalog_conf(target).items():
            spark.conf.set(name, value)
        call = f"CALL {target.catalog}.system.publish_changes('{target.table}', '{self.place.case.wap_id}')"
        try:
            spark.sql(call).collect()
        except Exception as error:  # noqa: BLE001 - whatever comes of it is the answer
            self.publishing = named(error)

    def _must(self, it_was: bool, otherwise: str) -> None:  # noqa: FBT001 - the condition itself
        if not it_was:
            log = self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""
            raise StepMissed(f"{self.place.case.name} of {self.sink}: {otherwise}. {log}")

    @property
    def _log(self) -> Path:
        return self.place.root / "driver.log"


def happen(step: Happening, place: Place) -> None:
    """What happens while no driver runs."""
    match step:
        case Arrive():
            place.arrive(range(step.first, step.last))
        case TidyUp():
            place.tidy_up(range(step.first, step.last))
        case Unlog():
            place.unlog()
        case BackUp():
            place.back_up()
        case Restore():
            place.restore()
        case LoseCheckpoint():
            place.lose_checkpoint()
        case OthersAppend():
            place.others_append()
        case MainMoves():
            place.main_moves()
        case Expire():
            place.expire()
        case _:
            assert_never(step)


def _place(case: Case, sink: str, root: Path, proxy: FaultProxy | None) -> Place:
    name = f"{sink}_{case.name.replace('-', '_')}"
    if proxy is not None:
        through, direct = ({"type": "rest", "uri": uri} for uri in (proxy.uri, proxy.target))
        return Place(root, case, through, direct, name, f"{name}.numbers")
    sql = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"}
    return Place(root, case, sql, sql, name, "demo.numbers")


@contextmanager
def _proxied(target: str | None) -> Iterator[FaultProxy | None]:
    with fault_proxy(target) if target is not None else nullcontext() as proxy:
        yield proxy
