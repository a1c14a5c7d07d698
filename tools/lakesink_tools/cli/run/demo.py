"""The command ``demo``: the main job on real flights, its driver killed twice, and the proof."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakesink_catalog.connect.catalog import HOME_VARIABLE
from lakesink_catalog.words import counted, number
from lakesink_tools.cli.output import NOT_WELL, OK, Report
from lakesink_tools.demo.next_steps import NextStep, next_steps
from lakesink_tools.demo.place import Place, check_machine, prepare

if TYPE_CHECKING:
    from lakesink_tools.demo.scenario import Ending


def demo(folder: Path, rows: int, *, no_kill: bool) -> Report:
    """Exit code 1: some claim does not hold. 2: the demo could not run to its end."""
    check_machine()
    from lakesink_tools.demo.scenario import Screen, run_demo  # imports the packages that were just looked for

    stage = prepare(folder)
    os.environ[HOME_VARIABLE] = str(stage.lakehouse)
    with Screen() as screen:
        ending = run_demo(stage, screen, row_limit=rows, kill=not no_kill)
    return _report(stage, ending, next_steps(stage, ending.as_of))


def _report(stage: Place, ending: "Ending", steps: Sequence[NextStep]) -> Report:
    verdict = "Every claim holds." if ending.proved else "NOT PROVED: see the claims with <<<."
    return Report(
        document=_document(stage, ending) | {"next": [asdict(step) for step in steps]},
        title=f"{counted(ending.rows, 'flight')} in {counted(ending.batches, 'batch')} by"
        f" {counted(ending.drivers, 'driver')}, {ending.killed} of them killed:"
        f" {counted(ending.recovered, 'batch')} recovered, {ending.skipped} skipped,"
        f" {counted(ending.orphan_files, 'orphan file')}, {ending.seconds:.0f} s. {verdict}",
        columns=("claim", "expected>", "found>", ""),
        rows=[
            (check.claim, _cell(check.expected), _cell(check.found), "" if check.holds else "<<<")
            for check in ending.checks
        ],
        hints=["", "What to try next:", *(line for step in steps for line in ("", f"# {step.what}", step.command))],
        exit_code=OK if ending.proved else NOT_WELL,
    )


def _cell(value: int | str) -> str:
    return value if isinstance(value, str) else number(value)


def _document(stage: Place, ending: "Ending") -> dict[str, Any]:
    facts = asdict(ending)
    batch_id, snapshot_id = facts.pop("as_of")
    return {
        "proved": ending.proved,
        **facts,
        "as_of": {"batch": batch_id, "snapshot": snapshot_id},
        "folder": str(stage.home),
    }
