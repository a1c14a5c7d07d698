"""Scenarios of real processes, as data: each is clean as the product is, and shows what some mutant does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proof.content import EVERYTHING, ROWS_OF_EVERYTHING, ROWS_OF_UPSERTED, UPSERTED
from proof.mutants import steps
from proof.mutants.mutant import Mutant
from proof.mutants.stage import MAIN, TIMEOUT_SECONDS, Ending, judge, stage
from proof.mutants.steps import Step, run
from proof.oracle import Broken
from servers.fault_proxy import HttpFault, Kind

MODULE = "proof.mutants.switched_on"
VARIABLE = "LAKESINK_PROOF_MUTANT"
LATE_SECONDS = TIMEOUT_SECONDS + 2.5
OLD_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario.

    Attributes:
        name: What happens.
        steps: The same in steps.
        ending: How it has to end.
        stream: Fields of the `Stream`.
        branch: Branch that is written.
        over_http: Drivers use a REST catalog behind a proxy.
    """

    name: str
    steps: tuple[Step, ...]
    ending: Ending = field(default_factory=Ending)
    stream: Mapping[str, Any] = field(default_factory=dict)
    branch: str = MAIN
    over_http: bool = False


def play(scenario: Scenario, folder: Path, mutant: Mutant | None = None) -> list[Broken]:
    """Play a scenario and judge what it left.

    Args:
        scenario: The scenario.
        folder: Made for it and removed.
        mutant: What is put into every driver process; None for the product as it is.
    """
    stream = dict(scenario.stream)
    if mutant is not None:
        stream |= {"modules": (MODULE,), "environment": {VARIABLE: mutant.name}}
    with stage(folder, stream, over_http=scenario.over_http, branch=scenario.branch) as at:
        with at.reader.reading():
            for step in scenario.steps:
                step(at)
        return judge(at, scenario.ending)


OF_DOCUMENTS: Mapping[str, Any] = {"content": EVERYTHING, "rows": ROWS_OF_EVERYTHING, "options": {}}


OF_UPSERTS: Mapping[str, Any] = {"content": UPSERTED, "rows": ROWS_OF_UPSERTED, "options": {}}


def scenario_named(name: str) -> Scenario:
    """The scenario of this name."""
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


_NOT_APPLIED = HttpFault(Kind.DROP, applied=False)

SCENARIOS = (
    Scenario("killed after the commit", (run("after-call@1=kill"), run())),
    Scenario(
        "killed after the commit on a branch",
        (run("after-call@1=kill"), run()),
        stream={"options": {"branch": "audited"}},
        branch="audited",
    ),
    Scenario("killed before the record", (run("before-prepared@1=kill"), run())),
    Scenario("the record is torn", (run("after-prepared@1=kill"), steps.tear_record, run())),
    Scenario(
        "the table is replaced before the restart",
        (run("after-prepared@0=kill"), steps.replace_table, run()),
        Ending("LAKESINK_TABLE_REPLACED", left=0),
    ),
    Scenario("a driver comes back before its commit", (steps.stopped("before-prepared@1=stop", run()), run())),
    Scenario("a driver comes back in the middle of a file", (steps.stopped("while-writing@1=stop", run()), run())),
    Scenario("two drivers in the same call", (steps.two_drivers_in_one_call(1), run())),
    Scenario(
        "held up while an orphan cleaner runs",
        (steps.stopped("after-prepared@1=stop", steps.wait(OLD_SECONDS + 0.5), steps.clean_orphans), run()),
        stream={"options": {"prepared_max_age": f"{OLD_SECONDS} s"}},
    ),
    Scenario("batches without rows", (run(),), stream={"rows": 0}),
    Scenario(
        "files are added again before a merge",
        (steps.merge_early, run("before-prepared@2=kill"), steps.add_again, run()),
    ),
    Scenario(
        "expired between crash and restart",
        (run("after-call@1=kill"), steps.foreign, steps.foreign, steps.expire, run()),
    ),
    Scenario("rolled back with the checkpoint", (run(), steps.roll_back(0), steps.rewind(0), run())),
    Scenario("rolled back behind a record", (run(), steps.roll_back(1), steps.rewind(1), run())),
    Scenario(
        "rolled back, and the evidence expired",
        (run(), steps.roll_back(0), steps.foreign, steps.expire, steps.rewind(0), run()),
        Ending("LAKESINK_ROLLED_BACK", left=2),
        stream={"batches": 2},
    ),
    Scenario(
        "the checkpoint is lost and the source cut otherwise",
        (run(), steps.lose_checkpoint, steps.source_cut(batches=2, rows=3), run()),
        Ending("LAKESINK_NEW_CHECKPOINT", left=2),
        stream={"batches": 1},
    ),
    Scenario(
        "the checkpoint is restored and the source cut otherwise",
        (run(), steps.rewind(0), steps.source_cut(batches=2, rows=3), run()),
        Ending("LAKESINK_BATCH_CHANGED", left=4),
        stream={"batches": 2},
    ),
    Scenario("the transport sends twice", (steps.spoil({2: HttpFault(Kind.TWICE)}), run()), over_http=True),
    Scenario("503 after the commit", (steps.spoil({2: HttpFault(Kind.STATUS, status=503)}), run()), over_http=True),
    Scenario("the request is lost", (steps.spoil({3: _NOT_APPLIED}), run()), over_http=True),
    Scenario(
        "the catalog is gone after the commit",
        (steps.catalog_gone_after(2), steps.catalog_comes_back_after(run()), run()),
        over_http=True,
    ),
    Scenario(
        "an earlier attempt lands late",
        (
            steps.spoil({2: HttpFault(Kind.LATE, seconds=LATE_SECONDS), **dict.fromkeys(range(3, 7), _NOT_APPLIED)}),
            run(),
            steps.answered(2),
            run(),
        ),
        over_http=True,
    ),
    Scenario("killed before the letters", (run("after-prepared@1=kill"), run()), stream=OF_DOCUMENTS),
    Scenario("killed between letters and rows", (run("after-call@1=kill"), run()), stream=OF_DOCUMENTS),
    Scenario(
        "a replay puts other rows aside",
        (run("after-call@1=kill"), steps.tear_record, steps.put_other_rows_aside, run()),
        Ending("LAKESINK_DEAD_LETTERS_DIFFER", left=4, letters=1),
        stream=OF_DOCUMENTS,
    ),
    Scenario("rows are replaced and deleted in each batch", (run(),), stream=OF_UPSERTS),
    Scenario("a record of changes is recovered", (run("after-prepared@1=kill"), run()), stream=OF_UPSERTS),
    Scenario(
        "a compaction between locating and the commit",
        (steps.stopped("after-locate@1=stop", steps.compact), run()),
        stream=OF_UPSERTS,
    ),
    Scenario(
        "a compaction that began before a batch",
        (run("before-prepared@1=kill"), steps.compact_over(run("before-prepared@2=kill")), run()),
        stream=OF_UPSERTS,
    ),
    Scenario(
        "another partitioning between two batches",
        (run("before-prepared@1=kill"), steps.change_partitioning, run()),
        stream=OF_UPSERTS,
    ),
    Scenario("killed before a record with new columns", (run("before-prepared@1=kill"), run()), stream=OF_DOCUMENTS),
    Scenario(
        "another adds the column before the restart",
        (run("after-prepared@1=kill"), steps.another_adds("a"), run()),
        stream=OF_DOCUMENTS,
    ),
    Scenario(
        "another evolves before the restart",
        (run("after-prepared@1=kill"), steps.another_adds("b"), run()),
        stream=OF_DOCUMENTS,
    ),
)
