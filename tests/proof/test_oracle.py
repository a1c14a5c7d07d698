"""The oracle sees each way of being wrong, and nothing wrong in what is right."""

from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from proof.oracle import (
    Broken,
    Promise,
    Rows,
    SnapshotFacts,
    StatedFile,
    TableFacts,
    batches_contiguous,
    deletes_kept,
    ended_well,
    facts_of,
    files_whole,
    reader_honest,
    rows_once,
    untouched,
)
from testkit.builders import Lake, Stream, parquet_files

SENT: Rows = Counter([(0, 0), (0, 1), (1, 0)])
FILE = StatedFile("a", 10, 2)


def promises(broken: list[Broken]) -> set[Promise]:
    return {case.promise for case in broken}


def table(*batches: int | None, files: tuple[StatedFile, ...] = (FILE,)) -> TableFacts:
    """A chain of snapshots, the last of which has the files."""
    snapshots = {
        number: SnapshotFacts(number, number - 1 or None, batch, files if number == len(batches) else ())
        for number, batch in enumerate(batches, 1)
    }
    return TableFacts(len(batches) or None, snapshots)


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        (SENT, set()),
        (SENT - Counter([(0, 1)]), {Promise.NO_ROW_IS_LOST}),
        (SENT + Counter([(0, 1)]), {Promise.NO_ROW_IS_DOUBLED}),
        (SENT + Counter([(7, 7)]), {Promise.NO_ROW_IS_INVENTED}),
        (SENT - Counter([(0, 0)]) + Counter([(0, 1)]), {Promise.NO_ROW_IS_LOST, Promise.NO_ROW_IS_DOUBLED}),
        (Counter(), {Promise.NO_ROW_IS_LOST}),
    ],
)
def test_rows_are_compared_as_multisets(found: Rows, broken: set[Promise]) -> None:
    assert promises(rows_once(found, SENT)) == broken


@pytest.mark.parametrize("batches", [(), (0, 1, 2), (0, None, 1, None), (5, 6)])
def test_contiguous_batches_are_well(batches: tuple[int | None, ...]) -> None:
    assert batches_contiguous(table(*batches)) == []


@pytest.mark.parametrize("batches", [(0, 2), (0, 1, 1), (1, 0)])
def test_gaps_and_repetitions_are_seen(batches: tuple[int, ...]) -> None:
    assert promises(batches_contiguous(table(*batches))) == {Promise.BATCHES_ARE_CONTIGUOUS}


@pytest.mark.parametrize(
    ("files", "stored", "broken"),
    [
        ((FILE,), {"a": (10, 2)}, set()),
        ((FILE,), {}, {Promise.EVERY_FILE_IS_THERE}),
        ((FILE,), {"a": (9, 2)}, {Promise.EVERY_FILE_IS_AS_STATED}),
        ((FILE,), {"a": (10, 1)}, {Promise.EVERY_FILE_IS_AS_STATED}),
        ((FILE, FILE), {"a": (10, 2)}, {Promise.EVERY_FILE_IS_REFERENCED_ONCE}),
    ],
)
def test_files_are_looked_at(
    files: tuple[StatedFile, ...], stored: dict[str, tuple[int, int]], broken: set[Promise]
) -> None:
    assert promises(files_whole(table(0, files=files), stored.get)) == broken


BATCHES: list[Rows] = [Counter([(0, 0), (1, 0)]), Counter(), Counter([(0, 1)])]


@pytest.mark.parametrize(
    ("looks", "broken"),
    [
        ([[], [0], [0, 2]], set()),
        ([[0, 2], [0]], {Promise.READERS_NEVER_GO_BACK}),
        ([[2]], {Promise.READERS_SEE_WHOLE_BATCHES}),
        ([[0, 0]], {Promise.READERS_SEE_WHOLE_BATCHES}),
    ],
)
def test_readers_see_growing_prefixes(looks: list[list[int]], broken: set[Promise]) -> None:
    seen = [sum((BATCHES[batch] for batch in look), Counter()) for look in looks]
    assert promises(reader_honest(seen, BATCHES)) == broken


def test_half_a_batch_is_seen() -> None:
    assert promises(reader_honest([Counter([(0, 0)])], BATCHES)) == {Promise.READERS_SEE_WHOLE_BATCHES}


def test_only_what_is_referenced_must_not_be_touched() -> None:
    assert promises(untouched(["a", "b"], {"b"}.__contains__)) == {Promise.NOTHING_REFERENCED_IS_TOUCHED}
    assert untouched(["a"], {"b"}.__contains__) == []


@pytest.mark.parametrize(
    ("code", "broken"),
    [(None, set()), ("LAKESINK_GAP", set()), ("", {Promise.THE_RUN_ENDS}), ("X", {Promise.REFUSALS_ARE_RIGHT})],
)
def test_a_run_ends_or_stops_as_its_scenario_allows(code: str | None, broken: set[Promise]) -> None:
    assert promises(ended_well(code, ["LAKESINK_GAP"])) == broken


def test_facts_of_a_real_table_are_its_batches_and_files(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    Stream(lake).filled(3)
    facts = facts_of(lake.table(), "events")
    assert facts.batches() == [0, 1, 2]
    assert {file.path.removeprefix("file://") for file in facts.files} == {str(path) for path in parquet_files(lake)}
    assert files_whole(facts, {file.path: (file.size_bytes, 3) for file in facts.files}.get) == []


def test_a_snapshot_whose_manifests_are_gone_is_seen(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    Stream(lake).run(0)
    Path(urlsplit(lake.head().manifest_list).path).unlink()
    assert promises(files_whole(facts_of(lake.table(), "events"), lambda _: None)) == {Promise.EVERY_FILE_IS_THERE}


@pytest.mark.parametrize(
    ("other", "broken"),
    [
        (StatedFile("a", 10, 2, sequence_number=3, least_stated=2), set()),
        (StatedFile("b", 10, 2, sequence_number=9, least_stated=2), set()),
        (StatedFile("a", 10, 2, sequence_number=4, least_stated=2), {Promise.EVERY_FILE_KEEPS_ITS_DELETES}),
        (StatedFile("b", 10, 2, sequence_number=4, least_stated=5), {Promise.EVERY_FILE_KEEPS_ITS_DELETES}),
    ],
)
def test_a_file_keeps_the_number_by_which_deletes_apply_to_it(other: StatedFile, broken: set[Promise]) -> None:
    file = StatedFile("a", 10, 2, sequence_number=3, least_stated=1)
    snapshots = {number: SnapshotFacts(number, None, None, (one,)) for number, one in enumerate((file, other))}
    assert promises(deletes_kept(TableFacts(None, snapshots))) == broken
