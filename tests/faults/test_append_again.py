"""`append` for the same version again: the rows of the call that returns are those that landed, and they land once."""

from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.table import CommitTableResponse

from lakesink_protocol.errors import CommitUnresolved
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from testkit.builders import Apply, Lake, Stream, counted, expected
from testkit.maintenance import append_foreign

CORRECTED = 5
"""Rows of the second call; the first has three."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path, properties={"commit.retry.num-retries": "1"})


@pytest.fixture
def load(lake: Lake) -> Stream:
    return Stream(lake, "nightly", kind=SinkKind.TXN)


def fails_unresolved(load: Stream, version: int) -> None:
    """Two requests are sent, and neither is answered."""
    load.lake.catalog.faults = [load.lake.catalog.arrives_late] * 2
    with pytest.raises(CommitUnresolved) as error:
        load.run(version)
    assert "call append again with the same version" in error.value.action


def corrected(load: Stream, version: int) -> Outcome:
    return load.run(version, rows=CORRECTED)


@pytest.mark.parametrize("before", [False, True], ids=["first version", "later version"])
def test_the_rows_of_the_call_that_returns_are_those_that_landed(lake: Lake, load: Stream, *, before: bool) -> None:
    version = load_before(load) if before else 1
    fails_unresolved(load, version)
    outcome = corrected(load, version)
    assert isinstance(outcome, Committed)
    assert (outcome.recovered, outcome.rows) == (False, CORRECTED)
    assert counted(lake) == counted_before(before) + expected(version, rows=CORRECTED)


@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside others"])
@pytest.mark.parametrize("before", [False, True], ids=["first version", "later version"])
def test_a_request_that_lands_after_the_second_call_lands_nowhere(
    lake: Lake, load: Stream, *, before: bool, others: bool
) -> None:
    version = load_before(load) if before else 1
    fails_unresolved(load, version)
    assert isinstance(corrected(load, version), Committed)
    foreign = append_foreign(lake) if others else expected()
    for late in lake.catalog.late:
        with pytest.raises(Exception, match=r"has changed|was created concurrently"):
            late()
    assert counted(lake) == counted_before(before) + expected(version, rows=CORRECTED) + foreign
    assert isinstance(corrected(load, version), AlreadyCommitted)


@pytest.mark.parametrize("before", [False, True], ids=["first version", "later version"])
def test_a_request_that_lands_before_the_second_call_is_all_that_lands(
    lake: Lake, load: Stream, *, before: bool
) -> None:
    version = load_before(load) if before else 1
    fails_unresolved(load, version)
    lake.catalog.late[0]()
    writes = load.writes
    outcome = corrected(load, version)
    assert outcome == AlreadyCommitted(lake.head().snapshot_id)
    assert load.writes == writes, "the second call's rows are not evaluated"
    assert counted(lake) == counted_before(before) + expected(version)


def test_a_request_that_lands_while_the_second_call_writes_is_all_that_lands(
    lake: Lake, load: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    version = load_before(load)
    fails_unresolved(load, version)
    earlier = lake.catalog.late[0]

    def after_the_first(apply: Apply) -> CommitTableResponse:
        earlier()
        return apply()

    lake.catalog.faults = [after_the_first]
    assert isinstance(corrected(load, version), AlreadyCommitted)
    assert counted(lake) == expected(0) + expected(version)
    assert "lakesink.commit.by-another" in caplog.text


def test_a_crashed_job_that_runs_again_appends_once(lake: Lake, load: Stream) -> None:
    def dies(_: Apply) -> CommitTableResponse:
        raise KeyboardInterrupt

    lake.catalog.faults = [dies]
    with pytest.raises(KeyboardInterrupt):
        load.run(1)
    assert isinstance(load.run(1), Committed)
    assert isinstance(load.run(1), AlreadyCommitted)
    assert counted(lake) == expected(1)


def load_before(load: Stream) -> int:
    load.run(0)
    return 1


def counted_before(before: bool) -> Counter[tuple[int, int]]:  # noqa: FBT001 - a case
    return expected(0) if before else expected()
