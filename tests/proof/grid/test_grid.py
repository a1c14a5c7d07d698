"""Cells run on real processes; a sink that is broken fails the cell that is about it."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from proof.grid.__main__ import main
from proof.grid.cells import (
    DOCUMENTS,
    EVENTS,
    IN_CALL,
    NOWHERE,
    ROWS,
    Blow,
    Cell,
    Company,
    Fault,
    Position,
    SparkBlow,
)
from proof.grid.figures import Verdict
from proof.grid.kills import last_step, random_kills
from proof.grid.run import machine, run
from proof.kills import main as kills
from servers.fault_proxy import HttpFault, Kind

HANDFUL = [
    Cell("after-prepared", Blow.KILL, Position.FIRST, Company.ALONE),
    Cell("before-call", Blow.ZOMBIE, Position.MIDDLE, Company.JAVA_EXPIRY),
    Cell("while-writing", Blow.DISK_FULL_LATER, Position.LAST, Company.PYICEBERG_EXPIRY),
    Cell(NOWHERE, HttpFault(Kind.STATUS, applied=True, status=503), Position.MIDDLE, Company.JAVA_EXPIRY),
    Cell(IN_CALL, HttpFault(Kind.LATE, seconds=8.0), Position.LAST, Company.FOREIGN),
]


def test_a_driver_dies_between_the_letters_of_documents_and_their_rows() -> None:
    figures = run(cells=[Cell("after-call", Blow.KILL, Position.MIDDLE, Company.FOREIGN, DOCUMENTS)], kills=0)
    assert figures.broken == []
    assert (figures.count(Verdict.OK), figures.logs_checked) == (1, 1)


def test_a_driver_and_a_replay_die_at_the_second_of_their_commits_and_each_change_is_told_once() -> None:
    figures = run(cells=[Cell("after-call", Blow.KILL, Position.MIDDLE, Company.FOREIGN, EVENTS, 2)], kills=0)
    assert figures.broken == []
    assert figures.kills_by_point == {"after-call": 2}


@pytest.mark.nightly
def test_a_handful_of_cells_holds() -> None:
    figures = run(seed=1, cells=HANDFUL, kills=0)
    assert figures.broken == []
    assert figures.count(Verdict.OK) == len(HANDFUL)
    assert figures.kills_by_point == {"after-prepared": 1, IN_CALL: 1}
    assert figures.recovery.count == 2
    assert figures.logs_checked == len(HANDFUL)
    assert figures.rest_server


FORGETFUL = """
import lakesink_catalog.commit.batch_commit as commit
from lakesink_protocol.verdict import Commit, Skip
decide = commit.decide
def forgetful(situation, accept=None):
    verdict = decide(situation, accept)
    return Commit(verdict.rule) if isinstance(verdict, Skip) else verdict
commit.decide = forgetful
"""
STOPS = """
import lakesink.sinks.iceberg.iceberg_sink as iceberg
def never(self, transaction, prepared):
    raise LookupError("no commit")
iceberg.IcebergSink.commit = never
"""


BRINGS_BACK = """
import lakesink.sinks.iceberg.iceberg_sink as iceberg
iceberg.REPLAY = "no application begins so"
"""


@pytest.mark.parametrize(
    ("mutant", "fault", "kind", "told"),
    [
        pytest.param(FORGETFUL, Blow.KILL, ROWS, "BROKEN: no row is doubled", id="forgets-what-it-committed"),
        pytest.param(STOPS, Blow.KILL, ROWS, "no driver got through", id="never-commits"),
        pytest.param(STOPS, Blow.EXCEPTION, ROWS, "the struck driver ended with 'LookupError'", id="ends-otherwise"),
        pytest.param(
            BRINGS_BACK,
            Blow.KILL,
            EVENTS,
            "BROKEN: no row is in the table that was never sent",
            marks=pytest.mark.soak,
            id="brings-deleted-rows-back",
        ),
    ],
)
def test_a_broken_sink_fails_its_cell(
    mutant: str, fault: Fault, kind: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"mutant_{abs(hash((mutant, fault)))}"
    (tmp_path / f"{name}.py").write_text(mutant)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with machine((name,)) as on:
        result = on.run_cell(Cell("after-call", fault, Position.MIDDLE, Company.ALONE, kind))
    assert result.verdict is Verdict.BROKEN
    assert any(told in why for why in result.why), result.why


def test_a_cell_that_cannot_be_run_is_explained_and_not_counted_as_a_fault() -> None:
    figures = run(cells=[Cell(IN_CALL, Blow.EXCEPTION, Position.FIRST, Company.ALONE)], kills=0)
    assert figures.count(Verdict.EXPLAINED) == 1
    assert figures.faults == 0


@pytest.mark.parametrize("by_key", [False, True], ids=["appended", "by-key"])
@pytest.mark.soak
def test_drivers_killed_at_random_moments_leave_every_row_once(tmp_path: Path, by_key: bool) -> None:  # noqa: FBT001 - pytest's
    told: list[str] = []
    found = random_kills(tmp_path, 5, 1, told.append, by_key=by_key)
    assert found.broken == ()
    assert found.drivers == 5
    assert sum(found.by_step.values()) == 5
    assert list(tmp_path.iterdir()) == []
    assert told[-1] == "5 of 5 random kills, 0 broken"


def test_a_kill_is_counted_where_its_driver_was() -> None:
    def trace(event: str) -> list[str]:
        return [json.dumps({"event": "begin", "batch_id": 3}), json.dumps({"event": event, "batch_id": 3})]

    keys, deletes = "numbers-3-00001-c54e.keys", "numbers-3-be88-deletes.parquet"
    assert last_step([], set()) == "nothing"
    assert last_step(trace("begin"), {"numbers-3-00001-c54e.parquet", deletes}) == "begin"
    assert last_step(trace("begin"), {"numbers-2-00001-c54e.keys"}) == "begin"
    assert last_step(trace("begin"), {keys}) == "begin, keys file"
    assert last_step(trace("look"), {keys}) == "look"
    for event in ("recorded", "recovered", "look"):
        assert last_step(trace(event), {deletes}) == f"{event}, delete files"
    assert last_step(trace("attempt"), {keys, deletes}) == "attempt"


@pytest.mark.soak
def test_the_command_of_kills_says_what_it_struck() -> None:
    done = CliRunner().invoke(kills, ["--kills", "1", "--seed", "4"])
    assert done.exit_code == 0
    assert done.stdout.startswith("SIGKILLs at random moments: 1, 0 of them on real Spark; 12 batches, none lost")


def test_the_command_says_how_it_went_and_names_what_it_does_not_know() -> None:
    done = CliRunner().invoke(main, ["--cell", "in the call / exception / first / alone"])
    assert done.exit_code == 0
    assert "1 explained" in done.output
    missing = CliRunner().invoke(main, ["--cell", "nothing like it"])
    assert missing.exit_code != 0


@pytest.mark.nightly
@pytest.mark.parametrize("blow", list(SparkBlow))
def test_cells_on_real_spark_hold(blow: SparkBlow) -> None:
    figures = run(cells=[Cell("while-writing", blow, Position.MIDDLE, Company.FOREIGN)], kills=0)
    assert figures.broken == []
