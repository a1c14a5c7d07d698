"""Small files of one partition and about one size are compacted together, within limits."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lakesink.compact.choose import (
    ENOUGH_FILES,
    MOST_BYTES,
    MOST_FILES,
    MOST_RESTS,
    MOST_ROWS,
    SMALL_BYTES,
    Pace,
    tier,
)
from lakesink.compact.choose import choose as choose_of
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_protocol.change import Content

SPEC, TARGET = 3, 512 * 2**20
FILE = LiveFile("file", Content.DATA, SPEC, (), 100, 5_000, 1, {}, {}, "", "manifest")


def files(count: int, name: str = "file", **others: Any) -> list[LiveFile]:
    """Files with growing sequence numbers."""
    return [replace(FILE, path=f"{name}-{at}", sequence_number=at + 1, **others) for at in range(count)]


def choose(
    data: Sequence[LiveFile], *limits: Any, deletes: Sequence[LiveFile] = (), **others: Any
) -> list[tuple[LiveFile, ...]]:
    return [group.files for group in choose_of(LiveFiles(tuple(data), tuple(deletes)), *limits, **others)]


def deletes_of(file: LiveFile, *rows: int) -> list[LiveFile]:
    """Delete files of a data file, with so many positions each."""
    of = replace(file, content=Content.POSITION_DELETES, referenced_data_file=file.path)
    return [replace(of, path=f"{file.path}-{at}-deletes", record_count=count) for at, count in enumerate(rows)]


def test_ten_small_files_become_one_and_nine_stay() -> None:
    assert choose(files(ENOUGH_FILES - 1), SPEC, TARGET) == []
    assert choose(files(ENOUGH_FILES), SPEC, TARGET) == [tuple(files(ENOUGH_FILES))]


@pytest.mark.parametrize(
    "other",
    [
        {"file_size_bytes": SMALL_BYTES + 1},
        {"record_count": MOST_ROWS // ENOUGH_FILES + 1},
        {"file_format": "ORC"},
        {"spec_id": SPEC + 1},
        {"partition": (b"a",)},
        {"file_size_bytes": 5_000 * 8},
    ],
    ids=["large", "of many rows", "no Parquet", "of another spec", "of another partition", "of another tier"],
)
def test_a_file_that_is_otherwise_does_not_count(other: dict[str, Any]) -> None:
    one_short = files(ENOUGH_FILES - 1)
    assert choose([*one_short, replace(FILE, path="other", **other)], SPEC, TARGET) == []
    assert choose([*one_short, replace(FILE, path="other", sequence_number=99)], SPEC, TARGET)


def test_a_file_that_cannot_be_rewritten_does_not_count() -> None:
    assert choose(files(ENOUGH_FILES), SPEC, TARGET, {"file-3"}) == []
    [group] = choose(files(ENOUGH_FILES + 1), SPEC, TARGET, {"file-3"})
    assert "file-3" not in {file.path for file in group}


def test_the_partition_with_the_most_files_comes_first() -> None:
    few, many = files(10, "few", partition=(b"a",)), files(12, "many", partition=(b"b",))
    assert choose([*few, *many], SPEC, TARGET) == [tuple(many), tuple(few)]


def test_older_files_are_rewritten_first_so_rows_stay_in_their_order() -> None:
    [group] = choose(files(ENOUGH_FILES)[::-1], SPEC, TARGET)
    assert [file.sequence_number for file in group] == list(range(1, ENOUGH_FILES + 1))


def test_one_compaction_reads_no_more_than_its_limits() -> None:
    [group] = choose(files(1_000), SPEC, TARGET)
    assert len(group) == MOST_FILES
    largest = choose(files(100, file_size_bytes=SMALL_BYTES), SPEC, TARGET)
    assert sum(file.file_size_bytes for group in largest for file in group) == MOST_BYTES
    of_many = [file for part in range(50) for file in files(10, f"of-{part}", partition=(bytes([part]),))]
    groups = choose(of_many, SPEC, TARGET)
    assert sum(map(len, groups)) == MOST_FILES
    assert {len(group) for group in groups} == {ENOUGH_FILES}


def test_a_compaction_after_a_batch_of_many_files_reads_as_many_again() -> None:
    of_many = [file for part in range(90) for file in files(10, f"of-{part}", partition=(bytes([part]),))]
    assert sum(map(len, choose(of_many, SPEC, TARGET, most_files=700))) == 700


def test_a_compacted_file_is_of_a_higher_tier() -> None:
    for size in (1, 100, 4_097, 30_000, 32_768, 32_769, SMALL_BYTES):
        assert tier(ENOUGH_FILES * size) > tier(size)
        assert tier(8 * size) == tier(size) + 1


@pytest.mark.parametrize("batches", [100, 1_000])
def test_few_files_are_left_after_many_batches(batches: int) -> None:
    """Each compacted file is as large as those that it replaces."""
    live: list[LiveFile] = []
    rewritten = 0
    for number in range(batches):
        live += files(1, f"batch-{number}", file_size_bytes=12_000)
        for group in choose(live, SPEC, TARGET):
            size = sum(file.file_size_bytes for file in group)
            rewritten += len(group)
            live = [file for file in live if file not in group]
            live.append(replace(FILE, path=f"compacted-{number}", file_size_bytes=size))
    assert len(live) < 4 * ENOUGH_FILES
    assert rewritten <= 1.2 * batches


def test_files_that_would_fill_a_file_of_the_target_size_are_not_small() -> None:
    """Else the same files would be written again after each batch."""
    target = 100_000
    assert choose(files(20, file_size_bytes=target // ENOUGH_FILES + 1), SPEC, target) == []
    assert choose(files(20, file_size_bytes=target // ENOUGH_FILES), SPEC, target)


def test_compactions_that_fail_rest_longer_and_longer_and_go_on_when_one_succeeds() -> None:
    pace, tries = Pace(), []
    for batch in range(300):
        if pace.is_due():
            tries.append(batch)
            pace.note(done=False)
    assert tries[:5] == [0, 3, 8, 17, 34]
    assert tries[-1] - tries[-2] == MOST_RESTS + 1
    pace.note(done=True)
    assert pace.is_due()
    assert pace.is_due()


LARGE = replace(FILE, path="large", file_size_bytes=SMALL_BYTES + 1, record_count=1_000)


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [((), False), ((499,), False), ((500,), True), ((300, 199), False), ((300, 200), True), ((1_000,), True)],
)
def test_a_larger_file_is_rewritten_when_half_of_its_rows_are_deleted(rows: Sequence[int], chosen: bool) -> None:  # noqa: FBT001
    assert choose([LARGE], SPEC, TARGET, deletes=deletes_of(LARGE, *rows)) == ([(LARGE,)] if chosen else [])


@pytest.mark.parametrize(
    "other",
    [
        {"file_size_bytes": MOST_BYTES + 1},
        {"record_count": MOST_ROWS + 1},
        {"file_size_bytes": SMALL_BYTES},
        {"file_format": "ORC"},
        {"spec_id": SPEC + 1},
        {"path": "unsuitable"},
    ],
    ids=["too large", "of too many rows", "small", "no Parquet", "of another spec", "unsuitable"],
)
def test_a_file_with_deleted_rows_that_is_otherwise_stays(other: dict[str, Any]) -> None:
    file = replace(LARGE, **other)
    assert choose([file], SPEC, TARGET, {"unsuitable"}, deletes=deletes_of(file, file.record_count - 1)) == []


def test_files_of_few_bytes_and_many_rows_are_rewritten_as_far_as_their_rows_allow() -> None:
    """The newest come first: the oldest are the likeliest to be unsuitable, which a new driver does not know."""
    many = files(5, file_size_bytes=1_000, record_count=MOST_ROWS // 2)
    deletes = [delete for file in many for delete in deletes_of(file, file.record_count)]
    assert choose(many, SPEC, TARGET, deletes=deletes) == [tuple(many[3:])]
    too_many = replace(many[4], record_count=MOST_ROWS + 1)
    assert choose([*many[:4], too_many], SPEC, TARGET, deletes=deletes) == [tuple(many[2:4])]


def test_files_with_deleted_rows_are_rewritten_together_by_partition_and_within_the_limits() -> None:
    large = {"file_size_bytes": MOST_BYTES // 4, "record_count": 10}
    first, second = files(3, "a", partition=(b"a",), **large), files(3, "b", partition=(b"b",), **large)
    deletes = [delete for file in (*first, *second) for delete in deletes_of(file, 9)]
    small = files(ENOUGH_FILES, file_size_bytes=1)
    groups = choose([*first[::-1], *small, *second], SPEC, TARGET, deletes=deletes)
    assert groups == [tuple(small), tuple(first)]
    assert choose([*first, *second], SPEC, TARGET, deletes=deletes) == [tuple(first), (second[-1],)]


def test_delete_files_that_name_several_data_files_do_not_count() -> None:
    several = [replace(delete, referenced_data_file="") for delete in deletes_of(LARGE, 1_000)]
    assert choose([LARGE], SPEC, TARGET, deletes=several) == []
