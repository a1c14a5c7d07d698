"""What is shown at the end: the proof, and what to try next."""

from dataclasses import asdict, dataclass
from typing import Any

from lakesink_catalog.words import number
from lakesink_tools.cli.output import NOT_WELL, OK, Report
from lakesink_tools.demo.checks import Check
from lakesink_tools.demo.next_steps import NextStep, duckdb_command, lakesink_command
from lakesink_tools.demo.place import Place

from .proof import Sent
from .queries import DEPARTURES, EVENTS
from .setting import Setting
from .supervisor import Supervisor

_BUSIEST = "SELECT hour, origin, departures FROM departures_by_hour ORDER BY departures DESC LIMIT 5"


@dataclass(frozen=True, slots=True)
class Ending:
    """What the story came to.

    Attributes:
        setting: What it ran on.
        supervisor: What it has done.
        sent: What was sent.
        checks: Every claim.
        seconds: How long it took.
    """

    setting: Setting
    supervisor: Supervisor
    sent: Sent
    checks: tuple[Check, ...]
    seconds: float

    @property
    def proved(self) -> bool:
        """True if every claim holds."""
        return all(check.holds for check in self.checks)


def report(stage: Place, ending: Ending) -> Report:
    """The report of a story.

    Args:
        stage: Where it was told.
        ending: What it came to.
    """
    supervisor, sent = ending.supervisor, ending.sent
    steps = _next_steps(stage)
    verdict = "Every claim holds." if ending.proved else "NOT PROVED: see the claims with <<<."
    return Report(
        document=_document(stage, ending) | {"next": [asdict(step) for step in steps]},
        title=f"{number(sent.committed.total())} records committed and {number(sent.aborted)} aborted in"
        f" {'Kafka' if ending.setting.bootstrap else 'files'}, {supervisor.drivers} drivers,"
        f" {len(supervisor.killed)} SIGKILLs survived, seed {ending.setting.seed}, {ending.seconds:.0f} s. {verdict}",
        columns=("claim", "expected>", "found>", ""),
        rows=[
            (check.claim, f"{check.expected:,}", f"{check.found:,}", "" if check.holds else "<<<")
            for check in ending.checks
        ],
        hints=["", "What to try next:", *(line for step in steps for line in ("", f"# {step.what}", step.command))],
        exit_code=OK if ending.proved else NOT_WELL,
    )


def _document(stage: Place, ending: Ending) -> dict[str, Any]:
    supervisor = ending.supervisor
    return {
        "proved": ending.proved,
        "seed": ending.setting.seed,
        "committed": ending.sent.committed.total(),
        "aborted": ending.sent.aborted,
        "drivers": supervisor.drivers,
        "killed": supervisor.killed,
        "failed_by_themselves": supervisor.failures,
        "checks": [asdict(check) for check in ending.checks],
        "seconds": ending.seconds,
        "folder": str(stage.home),
    }


def _next_steps(stage: Place) -> list[NextStep]:
    events, hours = (str(stage.home / "checkpoints" / name) for name in ("events", "departures_by_hour"))
    return [
        NextStep("every batch, and which were recovered", lakesink_command(stage, "log", DEPARTURES, "--limit", "100")),
        NextStep(
            "is every batch of the events there, once",
            lakesink_command(stage, "audit", EVENTS, "--checkpoint", events),
        ),
        NextStep("and of the hours", lakesink_command(stage, "audit", DEPARTURES, "--checkpoint", hours)),
        NextStep("the busiest hours, by DuckDB", duckdb_command(stage, DEPARTURES, _BUSIEST)),
    ]
