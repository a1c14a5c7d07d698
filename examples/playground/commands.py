"""The commands of the prompt. Each breaks or asks something, and then counts what became of the rows."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from servers.trino import TrinoFailed

from .application import Application
from .counting import Count, count, number_of_rows, rows
from .producer import EventSource, Truth
from .services import Services
from .setting import CATALOG, TABLE, Folder

LONGEST_SECONDS = 300
_MOST_LINES = 8
_RESTARTS = 5
_BATCHES_BACK = 3
_REWIND = re.compile(r"--to-batch (-?\d+)")


@dataclass(frozen=True, slots=True)
class Playground:
    """Everything that runs."""

    folder: Folder
    services: Services
    application: Application
    source: EventSource
    truth: Truth
    say: Callable[[str], None]

    def status(self) -> None:
        """What runs, and the state of the sink."""
        known = self.services
        processes = {
            "PostgreSQL": known.database.process,
            "S3": known.store.process,
            "REST": known.catalog.process,
            "Kafka": known.broker.process,
            "Trino": known.trino.process,
        }
        self.say(", ".join(f"{name} {process.pid}" for name, process in processes.items() if process))
        self.say(f"driver {self.application.pid}, the {self.application.drivers}. that was started")
        self._lakesink("status", TABLE, "--catalog", CATALOG)

    def rows(self) -> None:
        """Ask Trino for the newest rows."""
        for event in rows(self.services.trino, "id, at, amount", "ORDER BY id DESC LIMIT 5"):
            self.say("  " + "  ".join(map(str, event)))

    def kill(self) -> None:
        """SIGKILL to the driver, in the middle of its work; it is started again."""
        self.say(f"SIGKILL to the driver {self.application.pid}, its JVM and its Python workers.")
        self.application.kill()
        self.application.start()

    def broker(self) -> None:
        """SIGKILL to Kafka, which is started again."""
        self.say("SIGKILL to the broker.")
        self.services.broker.kill()
        self.services.broker.start()
        self.say("The broker runs again, on the log that it had.")

    def rollback(self) -> None:
        """Roll the table back behind lakesink's back, and do what its error says."""
        snapshots = self._snapshots()
        behind = min(_BATCHES_BACK, len(snapshots) - 1)
        self.say(f"Trino rolls the table back to snapshot {snapshots[behind]}, {behind} batches before the newest.")
        self._trino(f"rollback_to_snapshot({snapshots[behind]})")
        self._await_refusal()
        error = self.application.error()
        assert error is not None
        self.say(f"lakesink refuses the next batch:\n  {error[0]}\n  {error[1]}")
        [batch, *_] = _REWIND.findall(error[1]) or _REWIND.findall(error[0])
        self._lakesink("rewind", str(self.folder.checkpoint), "--to-batch", batch, "--yes")
        self.application.start()

    def expire(self) -> None:
        """Expire all snapshots but the newest and the tagged ones."""
        before = len(self._snapshots())
        with self.source.held():
            self._trino("expire_snapshots(retention_threshold => '0s')")
        self.say(f"{before} snapshots before, {len(self._snapshots())} after.")

    def audit(self) -> None:
        """Is every batch there, once, with all its files?"""
        self._lakesink("audit", TABLE, "--catalog", CATALOG, "--checkpoint", str(self.folder.checkpoint))

    def settled(self) -> Count:
        """Hold the events until the table has all that were produced; a driver that has ended is started again."""
        with self.source.held():
            produced, deadline = self.truth.ids(), time.monotonic() + LONGEST_SECONDS
            drivers = self.application.drivers
            while number_of_rows(self.services.trino) < len(produced) and time.monotonic() < deadline:
                self.show_news()
                if self.application.pid is None and self.application.drivers < drivers + _RESTARTS:
                    self._start_again()
                time.sleep(1)
            self.show_news()
            return count(self.services.trino, produced)

    def show_news(self) -> None:
        """The newest lines of lakesink."""
        news = list(self.application.news())
        if len(news) > _MOST_LINES:
            self.say(f"  ... {len(news) - _MOST_LINES} lines")
        for line in news[-_MOST_LINES:]:
            self.say(f"  {line}")

    def _start_again(self) -> None:
        error = self.application.error()
        self.say("The driver has ended; the next one starts." + (f"\n  {error[0]}\n  {error[1]}" if error else ""))
        self.application.start()

    def _await_refusal(self) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        while self.application.pid is not None:
            if time.monotonic() > deadline:
                raise TimeoutError("The driver was to refuse the next batch, and goes on.")
            time.sleep(0.2)

    def _snapshots(self) -> list[int]:
        kept = "WHERE is_current_ancestor ORDER BY made_current_at DESC"
        return [number for (number,) in rows(self.services.trino, "snapshot_id", kept, of="$history")]

    def _trino(self, procedure: str) -> None:
        session = {f"{CATALOG}.expire_snapshots_min_retention": "0s"}
        self.services.trino.sql(f"ALTER TABLE {CATALOG}.{TABLE} EXECUTE {procedure}", session)

    def _lakesink(self, *arguments: str) -> None:
        command = [sys.executable, "-c", "from lakesink_tools.cli.main import main; main()", *arguments]
        done = subprocess.run(  # noqa: S603 - our own command
            command, env=self.application.variables, capture_output=True, text=True, check=False
        )
        self.say(f"$ lakesink {' '.join(arguments)}")
        for line in (done.stdout + done.stderr).strip().splitlines():
            self.say(f"  {line}")


def commands(playground: Playground) -> Mapping[str, Callable[[], None]]:
    """The commands by their names, in the order of help."""
    known = (
        playground.status,
        playground.rows,
        playground.kill,
        playground.broker,
        playground.rollback,
        playground.expire,
        playground.audit,
    )
    return {command.__name__: command for command in known}


def run(playground: Playground, command: Callable[[], None]) -> Count | None:
    """Run one command and count; an error of a server is shown, and the playground goes on."""
    try:
        command()
        found = playground.settled()
    except (TrinoFailed, TimeoutError, RuntimeError) as error:
        playground.say(f"It did not work: {str(error).splitlines()[0]}")
        return None
    playground.say(str(found) + ("" if found.exact else "  <<<"))
    return found
