"""Prepared records in a folder: found whole by another process, or not at all."""

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from lakesink.sinks.record_folder import PreparedDirectory
from lakesink_protocol.identity import Batch, stream_batch

BATCH = stream_batch(4, "q1", start=[4], end=[5])
NEXT = stream_batch(5, "q1", start=[5], end=[6])
PAYLOADS = {"files": {"parts": ["a", "b"], "rows": 3}}
HOUR_MS = 3_600_000


@dataclass
class Process:
    """What one run of a driver sees of the folder."""

    folder: Path
    now_ms: int = 10**12

    def log(self) -> PreparedDirectory:
        return PreparedDirectory(str(self.folder / "records"), timedelta(hours=1), lambda: self.now_ms)

    def path(self, batch: Batch = BATCH) -> Path:
        return self.folder / "records" / f"{batch.batch_id}-{batch.fingerprint}.json"


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


def test_a_record_is_found_by_another_process_as_it_was_put(process: Process) -> None:
    assert process.log().find(BATCH) is None
    process.log().put(BATCH, PAYLOADS)
    assert process.log().find(BATCH) == PAYLOADS
    assert [path.name for path in (process.folder / "records").iterdir()] == [process.path().name]


@pytest.mark.parametrize("cut", [0, 1, 64, 65, 200, -1])
def test_a_torn_record_reads_as_absent(process: Process, cut: int) -> None:
    process.log().put(BATCH, PAYLOADS)
    process.path().write_bytes(process.path().read_bytes()[:cut])
    assert process.log().find(BATCH) is None


def test_a_record_that_was_changed_reads_as_absent(process: Process) -> None:
    process.log().put(BATCH, PAYLOADS)
    process.path().write_bytes(process.path().read_bytes().replace(b'"rows":3', b'"rows":4'))
    assert process.log().find(BATCH) is None


@pytest.mark.parametrize("other", [NEXT, replace(BATCH, query_id="q2"), replace(BATCH, fingerprint="0" * 32)])
def test_a_record_is_not_found_by_another_batch_even_under_its_name(process: Process, other: Batch) -> None:
    process.log().put(BATCH, PAYLOADS)
    if other.query_id == BATCH.query_id:
        process.path(other).write_bytes(process.path().read_bytes())
    assert process.log().find(other) is None


@pytest.mark.parametrize(("age_ms", "found"), [(0, True), (HOUR_MS, True), (HOUR_MS + 1, False), (-1, False)])
def test_a_record_is_used_while_it_is_young_and_never_if_it_comes_from_the_future(
    process: Process,
    age_ms: int,
    found: bool,  # noqa: FBT001 - a table of cases
) -> None:
    process.log().put(BATCH, PAYLOADS)
    process.now_ms += age_ms
    assert (process.log().find(BATCH) is not None) == found


def test_a_record_goes_when_a_later_batch_has_landed_and_no_other_file_does(process: Process) -> None:
    log = process.log()
    log.put(BATCH, PAYLOADS)
    log.landed(BATCH)
    assert process.path().exists()
    (process.folder / "records" / "4-else.json").write_text("not ours")
    log.put(NEXT, PAYLOADS)
    log.landed(NEXT)
    assert {path.name for path in (process.folder / "records").iterdir()} == {process.path(NEXT).name, "4-else.json"}


def test_a_record_that_somebody_else_removed_stops_nobody(process: Process) -> None:
    log = process.log()
    log.put(BATCH, PAYLOADS)
    log.landed(BATCH)
    process.path().unlink()
    log.landed(NEXT)


def test_any_file_system_of_fsspec_holds_records() -> None:
    PreparedDirectory("memory://records/of/mine").put(BATCH, PAYLOADS)
    assert PreparedDirectory("memory://records/of/mine").find(BATCH) == PAYLOADS
