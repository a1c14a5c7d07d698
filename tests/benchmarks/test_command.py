"""`python -m benchmarks`: what is asked for is run, what cannot be is told, and wrong rows score nothing."""

from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from benchmarks.__main__ import asked, ending, main, set_by
from benchmarks.oracle import Fingerprint, WrongRows, files_fingerprint, fingerprint
from benchmarks.result import Goal, Result
from benchmarks.works import WORKS, Work

ROWS = "(SELECT i AS id, 'text ' || i AS name, i / 7 AS price FROM range(1000) t(i))"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--only", "W2/kafka"], "there is no work 'W2/kafka'. Did you mean 'W2/Kafka'?"),
        (["--only", "scale/writer"], "there is no work 'scale/writer'. Did you mean 'scale/writers'?"),
        (["--only", "W1", "--set", "round=9"], "there is no setting 'round'. Did you mean 'rounds'?"),
        (["--only", "W1", "--set", "rounds=many"], "rounds is a number, not 'many'"),
    ],
)
def test_a_work_or_a_setting_that_is_not_there_is_told_with_the_nearest(given: list[str], told: str) -> None:
    said = CliRunner().invoke(main, given)
    assert said.exit_code == 2
    assert told in said.output


def test_every_work_is_listed_with_what_it_needs_and_what_can_be_set() -> None:
    lines = CliRunner().invoke(main, ["--list"]).output.splitlines()
    assert [line.split()[0] for line in lines] == list(WORKS)
    assert "[Spark; kills=6]" in next(line for line in lines if line.startswith("W7 "))


def test_a_work_gets_the_settings_that_it_has(tmp_path: Path) -> None:
    settings = set_by(["rounds=9", "scale=0.5", "kills=100"], asked("W1,W7"))
    assert settings == {"rounds": 9, "scale": 0.5, "kills": 100}
    work = Work("W0", "", lambda folder, _, kills=6: Result(folder.name, str(kills), (), ()))
    assert work.measure(tmp_path, print, settings) == Result("W0", "100", (), ())


@pytest.mark.parametrize(
    ("only", "keys"),
    [
        ("W2/all", ["W2/all"]),
        ("W1,W7", ["W1/13", "W1/100", "W7"]),
        ("W4", ["W4/history"]),
        ("W4/memory", ["W4/memory"]),
        ("scale", [name for name in WORKS if name.startswith("scale/")]),
        ("commits", ["commits"]),
    ],
)
def test_workloads_are_asked_for_by_name_or_by_what_is_before_the_slash(only: str, keys: list[str]) -> None:
    assert [work.name for work in asked(only)] == keys


def test_what_takes_a_quarter_of_an_hour_runs_only_by_its_name() -> None:
    named = asked("W1,W2,W3,W4,W5,W6,W7,W8,W9,waterfall")
    assert {work.name for work in asked(None)} == {work.name for work in named}


def test_a_workload_that_failed_is_no_goal_reached() -> None:
    goal = Goal("W1, speed", 1.25, 1.3, at_least=True)
    assert ending([Result("W1", "", (), (), (goal,))]) == "All 1 goals reached."
    assert ending([Result("W5", "", (), ())]) == "No goal was set for this."
    assert ending([Result("W1", "", (), (), (goal,)), Result("W2", "", (), (), failed=True)]) == "Not measured: W2."


@pytest.mark.parametrize(
    "other",
    [
        f"(SELECT * FROM {ROWS} WHERE id <> 500)",
        f"(SELECT * FROM {ROWS} UNION ALL SELECT * FROM {ROWS} WHERE id = 500)",
        f"(SELECT * REPLACE (CASE id WHEN 500 THEN 'text' ELSE name END AS name) FROM {ROWS})",
        f"(SELECT * REPLACE (nullif(name, 'text 500') AS name) FROM {ROWS})",
        f"(SELECT * REPLACE (CASE id WHEN 500 THEN 501 ELSE id END AS id) FROM {ROWS})",
    ],
    ids=["lost", "doubled", "other text", "NULL", "another row's key"],
)
def test_a_row_that_is_lost_doubled_or_altered_is_seen(other: str) -> None:
    with pytest.raises(WrongRows, match="a sink wrote"):
        fingerprint(ROWS).check("a sink", fingerprint(other))


def test_the_same_rows_in_another_order_in_files_are_the_same(tmp_path: Path) -> None:
    for part in range(2):
        backwards = f"SELECT price, name, id FROM {ROWS} WHERE id % 2 = {part} ORDER BY id DESC"
        duckdb.execute(f"COPY ({backwards}) TO '{tmp_path / str(part)}.parquet' (FORMAT parquet)")
    fingerprint(ROWS).check("a sink", files_fingerprint(sorted(map(str, tmp_path.iterdir()))))
    assert files_fingerprint([]) == Fingerprint(0, 0)
