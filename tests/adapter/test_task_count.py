"""How many tasks a batch is worth."""

import pytest

from lakesink.spark.rows.task_count import (
    FULL_TASK_BYTES,
    LEAST_TASK_BYTES,
    MOST_PARTITIONS,
    InputSize,
    TaskCount,
    Unit,
    closes_readers,
    input_size,
)

MIB = 1024 * 1024


def measured(arrow_bytes: int, *, rows: int, seconds: float = 0.0, cores: int = 8) -> TaskCount:
    count = TaskCount(cores)
    count.record(InputSize(Unit.ROWS, rows), arrow_bytes, seconds)
    return count


def test_small_partitions_are_joined_and_large_ones_are_not() -> None:
    count = measured(100, rows=1)
    assert count.tasks(InputSize(Unit.ROWS, 10), 32) == 1
    assert count.tasks(InputSize(Unit.ROWS, 10 * MIB // 100), 32) == 1
    assert count.tasks(InputSize(Unit.ROWS, 3 * LEAST_TASK_BYTES // 100 + 1), 32) == 3
    assert count.tasks(InputSize(Unit.ROWS, 9 * LEAST_TASK_BYTES // 100), 32) == 8  # a task for each core
    assert count.tasks(InputSize(Unit.ROWS, 12 * FULL_TASK_BYTES // 100 + 1), 32) == 12
    assert count.tasks(InputSize(Unit.ROWS, 100 * FULL_TASK_BYTES // 100), 32) == 32
    assert count.tasks(InputSize(Unit.ROWS, 0), 32) == 1


def test_there_are_never_more_tasks_than_partitions() -> None:
    count = measured(1, rows=1)
    assert count.tasks(InputSize(Unit.ROWS, 10**12), 3) == 3
    assert count.tasks(InputSize(Unit.ROWS, 1), 1000) == 1
    assert count.tasks(InputSize(Unit.ROWS, 1), 0) == 0


def test_until_a_batch_was_measured_not_too_many_partitions_are_joined() -> None:
    batch, partitions = InputSize(Unit.ROWS, 1), 10 * MOST_PARTITIONS
    count = TaskCount(8)
    assert count.tasks(batch, partitions) == 10
    count.record(batch, 100, 0.5)
    assert count.tasks(batch, partitions) == 1


def test_where_readers_stay_open_not_too_many_are_joined() -> None:
    count = TaskCount(8, closes_readers=False)
    count.record(InputSize(Unit.ROWS, 1), 100, 0.5)
    assert count.tasks(InputSize(Unit.ROWS, 1), 10 * MOST_PARTITIONS) == 10
    assert count.tasks(InputSize(Unit.ROWS, 1), MOST_PARTITIONS) == 1
    assert count.tasks(InputSize(Unit.ROWS, 1), 0) == 0


@pytest.mark.parametrize("version", ["4.1.0", "4.1.1", "4.1.1-vendor-0", "4.1", "unknown"])
def test_an_early_spark_keeps_readers_open(version: str) -> None:
    assert not closes_readers(version)


@pytest.mark.parametrize("version", ["4.1.2", "4.1.4", "4.2.0", "4.10.0", "5.0.0-preview1"])
def test_a_later_spark_closes_each_reader(version: str) -> None:
    assert closes_readers(version)


def test_a_query_that_computes_long_for_few_bytes_keeps_its_tasks() -> None:
    count = measured(1000, rows=100, seconds=500.0)
    count.record(InputSize(Unit.ROWS, 100), 1000, 50.0)
    assert count.tasks(InputSize(Unit.ROWS, 100), 32) == 32
    assert count.tasks(InputSize(Unit.ROWS, 10), 32) == 5
    assert count.tasks(InputSize(Unit.ROWS, 1), 32) == 1


def test_one_batch_that_was_filtered_to_nothing_does_not_make_the_next_ones_slow() -> None:
    batch = InputSize(Unit.ROWS, 100)
    count = measured(1000, rows=100, seconds=64.0)
    count.record(batch, 0, 0.02)
    count.record(batch, 1000, 64.0)
    assert count.tasks(batch, 32) == 32


def test_nothing_is_joined_before_it_is_known_what_a_batch_is() -> None:
    unknown = input_size(None, None)
    count = TaskCount(8)
    assert count.tasks(unknown, 32) == 32
    count.record(unknown, 1000, 0.1)
    assert count.tasks(unknown, 32) == 1
    assert TaskCount(8).tasks(input_size(10, None), 32) == 1
    assert TaskCount(8).tasks(input_size(None, 10), 32) == 1
    assert TaskCount(8, runs_functions=True).tasks(input_size(10, None), 32) == 32


def test_the_largest_of_the_last_batches_counts_and_an_empty_one_does_not() -> None:
    count = measured(100, rows=100)
    count.record(InputSize(Unit.ROWS, 1), FULL_TASK_BYTES, 0.0)
    count.record(InputSize(Unit.ROWS, 0), 0, 0.0)
    for _ in range(3):
        count.record(InputSize(Unit.ROWS, 1), 1, 0.0)
    assert count.tasks(InputSize(Unit.ROWS, 20), 32) == 20
    for _ in range(8):
        count.record(InputSize(Unit.ROWS, 1), 1, 0.0)
    assert count.tasks(InputSize(Unit.ROWS, 20), 32) == 1
