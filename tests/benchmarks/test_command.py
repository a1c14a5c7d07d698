"""`python -m benchmarks`: what is asked for is run, what cannot be is told, and wrong rows score nothing."""

from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from benchmarks.__main__ import asked, ending, main
from benchmarks.oracle import Fingerprint, WrongRows, files_fingerprint, fingerprint
from benchmarks.result import Goal, Result

ROWS = "(SELECT i AS id, 'text ' || i AS name, i / 7 AS price FROM range(1000) t(i))"


def test_a_workload_that_is_not_there_is_told_with_the_nearest() -> None:
    said = CliRunner().invoke(main, ["--only", "W2/kafka"])
    assert said.exit_code == 2
    assert "there is no workload 'W2/kafka'. Did you mean 'W2/Kafka'?" in said.output


@pytest.mark.parametrize(
    ("only", "keys"),
    [
        ("W2/all", ["W2/all"]),
        ("W1,W7", ["W1/13", "W1/100", "W7"]),
        ("W4", ["W4/history"]),
        ("W4/memory", ["W4/memory"]),
    ],
)
def test_workloads_are_asked_for_by_name_or_by_what_is_before_the_slash(only: str, keys: list[str]) -> None:
    assert asked(only) == keys


def test_what_takes_a_quarter_of_an_hour_runs_only_by_its_name() -> None:
    assert not {"W4/memory", "W10", "W11", "W12", "W13", "W14", "W15", "W16", "W17"} & set(asked(None))
    assert set(asked("W1,W2,W3,W4,W5,W6,W7,W8,W9,waterfall")) == set(asked(None))


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
