"""The simulator replays what it has found, holds no grudge against what is right, and has real faults in it."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from lakesink.read import steps
from lakesink_protocol.row_changes import ChangeCounts, Mode
from proof.changes import Changing
from proof.content import Content
from proof.simulator import run as run_of_seeds
from proof.simulator.__main__ import main
from proof.simulator.changing import draw_changes, draw_features
from proof.simulator.replays import ABSENT
from proof.simulator.run import run
from proof.simulator.scenario import OF_DOCUMENTS, OF_LETTERS, Scenario
from proof.simulator.simulate import Report, simulate
from testkit.examples import seeds

SEEDS = seeds(40)


def without_compactions(random: Random) -> Scenario:
    """The worlds of seeds that were found before streams compacted small files."""
    return replace(draw_changes(random), maintenance=False)


@pytest.fixture(scope="module")
def reports() -> list[Report]:
    return [simulate(seed) for seed in SEEDS]


def test_no_promise_is_broken(reports: list[Report]) -> None:
    for report in reports:
        assert not report.broken, "\n".join([f"seed {report.seed}", *report.story, *map(str, report.broken)])


def test_faults_and_deeds_of_every_kind_happen(reports: list[Report]) -> None:
    faults = sum((report.faults for report in reports), Counter[str]())
    done = sum((report.done for report in reports), Counter[str]())
    outcomes = sum((report.outcomes for report in reports), Counter[str]())
    assert {"answer lost", "request late", "write torn", "load stale", "executor lost after upload"} <= faults.keys()
    assert {"kill", "freeze", "twin", "roll back", "foreign append", "expiry"} <= done.keys()
    assert {"recovered", "already committed", "LAKESINK_ROLLED_BACK"} <= outcomes.keys()


@pytest.mark.soak
def test_drivers_wait_for_turns_pass_over_one_that_stands_still_and_come_to_an_end() -> None:
    crowd = Scenario({"answer lost": 0.1}, ("twin", "freeze", "twin", "kill", "freeze"), end=(4, 4), most=1)
    reports = [simulate(seed, lambda _: crowd) for seed in seeds(40)]
    assert [report.broken for report in reports if report.broken] == []
    outcomes = sum((report.outcomes for report in reports), Counter[str]())
    assert {"killed", "waited for a turn", "passed over a turn"} <= outcomes.keys()


ROLLED_BACK = Scenario(
    {}, ("roll back", "restore the checkpoint", "roll back", "lose the checkpoint"), end=(6, 6), most=2
)


def test_readers_have_each_row_once_if_the_table_is_rolled_back_and_what_refusals_say_is_done() -> None:
    reports = [simulate(seed, lambda _: ROLLED_BACK) for seed in seeds(60)]
    assert [report.broken for report in reports if report.broken] == []
    done = sum((report.done for report in reports), Counter[str]())
    refused = {f"reader refused: LAKESINK_READ_{code}" for code in ("BATCH_CHANGED", "ROLLED_BACK")}
    assert {"micro-batch", "reader killed", "reader taken back", "reader begun anew", *refused} <= done.keys()


def test_a_reader_that_takes_any_batch_of_a_number_for_the_one_it_has_read_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbered = lambda step, position: step.mark is not None and step.mark.batch_id == position.batch_id  # noqa: E731
    monkeypatch.setattr(steps, "is_batch_of", numbered)
    assert any(simulate(seed, lambda _: ROLLED_BACK).broken for seed in seeds(15))


CONTENTS = [
    pytest.param(Content(aside_every=2), id="letters"),
    pytest.param(Content(follows="add"), id="documents"),
    pytest.param(Content(aside_every=3, follows="widen"), id="documents-and-letters"),
]


@pytest.mark.parametrize("content", CONTENTS)
def test_letters_and_columns_come_with_their_batches_whatever_happens(content: Content) -> None:
    happens = (*OF_LETTERS, "change the schema") if content.aside_every else (*OF_DOCUMENTS, "change the schema")
    scenario = Scenario({"answer lost": 0.2, "request late": 0.1}, happens, end=(6, 6), most=2, content=content)
    reports = [simulate(seed, lambda _: scenario) for seed in seeds(6)]
    assert [report.broken for report in reports if report.broken] == []
    outcomes = sum((report.outcomes for report in reports), Counter[str]())
    letters, evolutions = (sum(getattr(one, name) for one in reports) for name in ("letters", "evolutions"))
    assert (letters > 0, evolutions > 0) == (content.aside_every > 0, content.follows != "")
    assert ("killed at the commit of letters" in outcomes) == (content.aside_every > 0)
    assert ("killed at the commit of schema" in outcomes) == (not content.aside_every)


@pytest.fixture(scope="module")
def changed() -> list[Report]:
    return [simulate(seed, draw_changes) for seed in seeds(16)]


def test_the_table_is_what_the_changes_leave_that_are_applied_to_a_dictionary(changed: list[Report]) -> None:
    for report in changed:
        assert not report.broken, "\n".join([f"seed {report.seed}", *report.story, *map(str, report.broken)])


def test_every_kind_of_change_and_of_another_writers_commit_happens(changed: list[Report]) -> None:
    changes, done, outcomes = (
        sum((getattr(report, kind) for report in changed), Counter[str]()) for kind in ("changes", "done", "outcomes")
    )
    assert {one.name for one in fields(ChangeCounts)} <= changes.keys()
    others = {f"foreign {operation}" for operation in ("append", "overwrite", "delete", "replace")}
    assert {*others, "replace in vain", "change of the partitioning", "roll back"} <= done.keys()
    assert {"recovered", "already committed", "killed"} <= outcomes.keys()


@pytest.fixture(scope="module")
def featured() -> list[Report]:
    return [simulate(seed, draw_features) for seed in seeds(16)]


def test_each_change_of_a_document_is_told_as_it_was_and_replayed_once(featured: list[Report]) -> None:
    for report in featured:
        assert not report.broken, "\n".join([f"seed {report.seed}", *report.story, *map(str, report.broken)])


def test_columns_letters_and_replays_meet_deaths_between_the_commits_of_a_batch(featured: list[Report]) -> None:
    outcomes = sum((report.outcomes for report in featured), Counter[str]())
    assert {"killed", "recovered", "replay done", f"replay: {ABSENT}"} <= outcomes.keys()
    assert any(outcome.startswith("killed at the commit of") for outcome in outcomes)
    assert all(sum(getattr(report, kind) for report in featured) for kind in ("letters", "evolutions"))


@pytest.mark.parametrize(("seed", "undone"), [(710078, 0), (710118, 0), (716723, 1)])
def test_letters_and_replays_go_back_with_the_table_as_messages_say(seed: int, undone: int) -> None:
    report = simulate(seed, draw_features)
    assert report.done["roll back"] > 0
    assert report.done["take replays back"] == undone
    assert report.broken == ()


FEATURED = Scenario(
    {"answer lost": 0.2, "request late": 0.1},
    ("kill between the commits", "replay", "kill after the changelog", "twin", "replay", "kill"),
    end=(6, 6),
    most=2,
    content=Content(
        aside_every=2,
        follows="widen",
        changing=Changing(Mode.CHANGES, salt=26, has_ties=False),
    ),
)


@pytest.mark.parametrize(("on_absent", "logs"), [("fail", True), ("insert", False)])
def test_events_are_put_aside_whole_logged_and_replayed_whatever_happens(on_absent: str, *, logs: bool) -> None:
    scenario = replace(FEATURED, content=replace(FEATURED.content, on_absent=on_absent, logs=logs))
    assert [broken for seed in seeds(3) for broken in simulate(seed, lambda _: scenario).broken] == []


@pytest.mark.parametrize("seed", [412, 898, 1665, 3067, 7236, 56475, 56927, 61955, 62735])
def test_what_a_seed_once_found_is_mended(seed: int) -> None:
    assert not simulate(seed).broken


@pytest.mark.soak
def test_a_seed_tells_the_same_story_in_any_process() -> None:
    told = "from proof.simulator.simulate import simulate\nprint(*simulate(7).story, sep='\\n')"
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    story = subprocess.run([sys.executable, "-c", told], env=environment, capture_output=True, text=True, check=True)
    assert story.stdout.splitlines() == list(simulate(7).story)


@pytest.mark.soak
def test_every_seed_of_a_range_is_run_and_counted() -> None:
    result = run(1000, 20)
    assert (result.first, result.seeds, result.well) == (1000, 20, True)
    assert result.rows > 0
    assert (result.lost, result.doubled) == (0, 0)


def test_without_time_there_is_nothing_to_be_proud_of() -> None:
    assert not run(0, 0).well


@pytest.mark.soak
def test_the_command_stops_in_time_and_leaves_a_line_for_each_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_of_seeds, "SEEDS_AT_ONCE", 2)
    reports = tmp_path / "reports.jsonl"
    told = ["--first", "7", "--changes", "--reports", str(reports), "--output", "json"]
    done = [CliRunner().invoke(main, [*told, *more]) for more in (["--seeds", "3"], ["--minutes", "0"])]
    assert [one.exit_code for one in done] == [0, 0]
    few, started = (json.loads(one.stdout) for one in done)
    assert (few["seeds"], started["seeds"]) == (3, 2 * (os.cpu_count() or 1))
    assert few["changes"]["upserts"] > 0
    lines = [json.loads(line) for line in reports.read_text().splitlines()]
    assert sorted(line["seed"] for line in lines[:3]) == [7, 8, 9]
    assert len(lines) == few["seeds"] + started["seeds"]
    assert not any(line["broken"] for line in lines)


@pytest.mark.parametrize("seed", [3000382, 3001486, 3001560, 4006677, 4007030, 4024836, 4035652])
def test_a_batch_that_changed_no_row_may_be_missing_where_expiry_hides_its_rollback(seed: int) -> None:
    assert simulate(seed, without_compactions).broken == ()


@pytest.mark.parametrize("seed", [4000921, 4007754, 4019864])
def test_what_a_seed_of_changes_once_found_is_mended(seed: int) -> None:
    """An operator began behind the table where expiry hides the refused batch, or rewound a new checkpoint."""
    assert simulate(seed, without_compactions).broken == ()


def test_another_engine_fails_if_expiry_deletes_what_it_reads() -> None:
    assert simulate(4049562, without_compactions).done["append in vain"] > 0
