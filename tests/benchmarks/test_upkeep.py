"""What the workloads on maintenance make of their figures, and a day of a few real batches; nothing here is timed."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import charts, compacted, day, punctual
from benchmarks.compacted import LAKESINK, SPARK, TABLES, After
from benchmarks.day import BY_DAY, OFF, ON, SINKS, UPSERT
from benchmarks.oracle import WrongRows
from benchmarks.usage import Usage


def compacted_in(*seconds: float) -> list[After]:
    return [After(Usage(one, 2 * one, 2**30, 0, 2**20), 8, 2**29, 0) for one in seconds]


@pytest.mark.parametrize(("theirs", "reached"), [([20.0, 11.0, 8.0], True), ([9.0, 9.0, 30.0], False)])
def test_one_process_is_judged_by_the_median_of_pairs_with_spark(theirs: list[float], *, reached: bool) -> None:
    result = compacted.report({TABLES[0]: {LAKESINK: compacted_in(10.0, 10.0, 10.0), SPARK: compacted_in(*theirs)}}, 3)
    [goal] = result.goals
    assert goal.reached is reached
    assert result.rows[0][:9] == ("1,000 files of about 0.5 MiB", LAKESINK, 8, 512, 0, 10.0, 20.0, 1024, 1)


def test_a_delay_is_judged_by_its_p99_over_that_without_maintenance() -> None:
    late = {OFF: [float(one) for one in range(1, 101)], ON: [float(2 * one) for one in range(1, 101)]}
    result = punctual.report(late, [[(0.0, 0.0)], [(float(one), 1.0) for one in range(100)]], [0, 9], 2)
    assert [goal.measured for goal in result.goals] == [2.0, 2.0]
    assert result.rows[1] == (ON, 100, 102, 192, 200, 200, 9, 50, 99, 1, 1)


def test_a_day_of_real_batches_compacts_files_and_deletes_of_the_maintained_tables_alone(tmp_path: Path) -> None:
    result = day.measure(tmp_path / "day", print, batches=18)
    assert [row[:2] for row in result.rows] == [(kind, one) for kind in SINKS for one in (OFF, ON)]
    files = {(kind, one): hours[-1]["files"] for kind, days in result.raw.items() for one, hours in days.items()}
    for kind in SINKS:
        assert files[kind, ON] < files[kind, OFF]
    assert files[UPSERT, OFF] == 6
    assert files[BY_DAY, OFF] > 6
    assert [hour["hour"] for hour in result.raw[UPSERT][ON]] == [4, 8, 12, 16, 20, 24]
    drawn = charts.day(result.raw)
    assert all(f">{word}<" in drawn for word in (*SINKS, "maintenance on", "maintenance off"))


def test_a_table_of_a_day_with_other_rows_than_it_was_given_scores_nothing(tmp_path: Path) -> None:
    given: Any = day.rows_of(UPSERT, 0, day.BEGIN.date())
    stream = day.Stream.make(tmp_path, UPSERT, ON, lambda: int(day.BEGIN.timestamp() * 1000))
    stream.run(0, given)
    stream.check(given)
    with pytest.raises(WrongRows, match="upsert, maintenance on"):
        stream.check(given.slice(1))
