"""Keeps driver and broker alive, and kills them: what a process manager does, and what a bad day does."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from lakesink_catalog.errors import LakesinkError
from lakesink_tools.checks.child import child, end
from lakesink_tools.demo.place import Place
from lakesink_tools.demo.process import driver_environment
from servers.kafka import KafkaBroker

from .queries import EVENTS
from .setting import Setting

Process = subprocess.Popen[str]
_MOST_FAILURES = 10
_BATCH = re.compile(rf" lakesink\.batch\.[a-z-]+ table={re.escape(EVENTS)} .*\bbatch=(\d+)(?: |$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL to come.

    Attributes:
        victim: ``driver`` or ``broker``.
        after: Not before this part of the work is done, 0 to 1.
        delay_seconds: And then so much later.
    """

    victim: str
    after: float
    delay_seconds: float


def plan_kills(victims: Sequence[str], seed: int) -> list[Kill]:
    """One for each, in an order and at moments that only the seed knows, spread over the first four fifths."""
    chance = Random(seed)  # noqa: S311 - a story, not a secret
    shuffled = chance.sample(victims, len(victims))
    moments = ((number + chance.random()) / len(victims) * 0.8 for number in range(len(victims)))
    return [Kill(victim, after, chance.random()) for victim, after in zip(shuffled, moments, strict=True)]


@dataclass(slots=True)
class Supervisor:
    """Runs the producer once, and drivers until one has ended well.

    Attributes:
        setting: What they run on.
        place: The folder, and the catalog in it.
        broker: None for files.
        say: Is told what happens.
        kills: Those to come.
        killed: Victims so far.
        drivers: Drivers that were started.
        failures: Of these, how many failed by themselves, as when the broker was away for too long.
    """

    setting: Setting
    place: Place
    broker: KafkaBroker | None
    say: Callable[[str], None]
    kills: list[Kill]
    killed: list[str] = field(default_factory=list)
    drivers: int = 0
    failures: int = 0

    def run(self) -> None:
        """Run until everything has been sent, every kill has happened, and a driver has ended well after that.

        Raises:
            LakesinkError: The producer has failed, or drivers fail again and again.
        """
        with self._child("producer") as producer:
            while self._one_driver(producer) != 0:
                self.say(f"Driver {self.drivers} is gone; the next one starts.")

    def _one_driver(self, producer: Process) -> int:
        self.drivers += 1
        before, begun = len(self.killed), self._log_size()
        with self._child("driver") as driver:
            while driver.poll() is None:
                time.sleep(0.1)
                self._look_after(producer)
                if self.kills and self._done(begun) >= self.kills[0].after:
                    self._strike(self.kills.pop(0), driver)
        if driver.returncode != 0 and "driver" not in self.killed[before:]:
            self._count_failure()
        return driver.returncode

    def _look_after(self, producer: Process) -> None:
        match producer.poll():
            case None:
                return
            case 0 if not self.kills:
                self.setting.finish.touch()
            case 0:
                return
            case code:
                raise self._broken(f"The producer ended with exit code {code}.", "producer")

    def _strike(self, kill: Kill, driver: Process) -> None:
        time.sleep(kill.delay_seconds)
        self.killed.append(kill.victim)
        self.say(f"SIGKILL to the {kill.victim}.")
        if kill.victim == "driver":
            end(driver)
            driver.wait()
            return
        assert self.broker is not None
        self.broker.kill()
        self.broker.start()

    def _done(self, begun: int) -> float:
        """The part of the work that is done, if this driver has done any of it."""
        with self._log("driver").open(errors="replace") as log:
            log.seek(begun)
            batches = _BATCH.findall(log.read())
        return (int(batches[-1]) + 1) / self.setting.fewest_batches if batches else -1

    def _count_failure(self) -> None:
        self.failures += 1
        if self.failures > _MOST_FAILURES:
            raise self._broken(f"{self.failures} drivers failed by themselves.", "driver")

    def _broken(self, what: str, module: str) -> LakesinkError:
        said = self._log(module).read_text(errors="replace").splitlines()
        return LakesinkError(
            "DEMO_FAILED",
            what,
            data="The tables hold the batches that were committed before, each once.",
            action=f"Read the end of {self._log(module)}. {next((line for line in said if '[LAKESINK_' in line), '')}",
        )

    def _log(self, module: str) -> Path:
        return self.setting.home / f"{module}.log"

    def _log_size(self) -> int:
        log = self._log("driver")
        return log.stat().st_size if log.exists() else 0

    @contextmanager
    def _child(self, module: str) -> Iterator[Process]:
        environment = driver_environment(self.place.lakehouse)
        with self._log(module).open("a") as log, child(self.setting.command(module), environment, log) as process:
            yield process
