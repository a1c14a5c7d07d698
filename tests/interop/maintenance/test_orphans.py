"""Orphans are removed while a prepared batch waits for its driver to come back: a whole batch, or none of it."""

from datetime import timedelta
from pathlib import Path

import pytest

from lakesink_catalog.failpoints import VARIABLE, FailpointReached
from lakesink_protocol.outcome import Committed, Outcome
from servers.spark_sql import SparkFailed
from servers.trino import TrinoFailed
from testkit.builders import TABLE, Stream, counted, expected, parquet_files
from tests.interop.maintenance.lake import Lake
from tests.interop.maintenance.others import SHORTEST_OF_SPARK, ago, make_old
from tests.interop.maintenance.plain import plain_stream
from tests.interop.readers.engines import CATALOG

pytestmark = pytest.mark.interop
FILES = 3


@pytest.mark.parametrize(("old", "recovered"), [(0, True), (1, False), (FILES, False)])
def test_a_prepared_batch_is_committed_whole_or_written_again_whole(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    old: int,
    recovered: bool,  # noqa: FBT001 - what is expected
) -> None:
    with plain_stream(lake) as stream:
        stream.run(0)
        waiting = sorted(die_prepared(stream, monkeypatch))
        for path in waiting[:old]:
            make_old(path, timedelta(days=2))
        lake.call("remove_orphan_files", TABLE, older_than=ago(SHORTEST_OF_SPARK))
        assert [path.exists() for path in waiting] == [False] * old + [True] * (FILES - old)
        goes_on(stream, recovered=recovered)


def test_a_prepared_batch_all_of_which_trino_took_is_written_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with plain_stream(lake) as stream:
        stream.run(0)
        waiting = die_prepared(stream, monkeypatch)
        lake.execute("remove_orphan_files(retention_threshold => '0s')", TABLE)
        assert not any(path.exists() for path in waiting)
        assert not list(stream.lake.folder.rglob("lakesink/events/*/1-*.json"))
        goes_on(stream, recovered=False)


def test_both_engines_refuse_an_age_that_takes_prepared_batches(lake: Lake) -> None:
    with plain_stream(lake) as stream:
        stream.run(0)
        with pytest.raises(SparkFailed, match="interval less than 24 hours"):
            lake.call("remove_orphan_files", TABLE, older_than=ago(timedelta(hours=23)))
        a_day = f"ALTER TABLE {CATALOG}.{TABLE} EXECUTE remove_orphan_files(retention_threshold => '1d')"
        with pytest.raises(TrinoFailed, match=r"shorter than the minimum retention configured in the system \(7.00d\)"):
            lake.trino.sql(a_day)
        lake.trino.sql(a_day, {f"{CATALOG}.remove_orphan_files_min_retention": "1d"})


def die_prepared(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """A driver dies when batch 1 is prepared; returns its files."""
    before = parquet_files(stream.lake)
    monkeypatch.setenv(VARIABLE, "after-prepared@1=raise")
    with pytest.raises(FailpointReached):
        run(stream)
    monkeypatch.delenv(VARIABLE)
    return parquet_files(stream.lake) - before


def run(stream: Stream) -> Outcome:
    """Batch 1, by a driver that has just started."""
    batch = stream.batch(1)
    return stream.run_with(stream.sink(), batch, job=stream.write(batch, tasks=FILES))


def goes_on(stream: Stream, *, recovered: bool) -> None:
    outcome = run(stream)
    assert isinstance(outcome, Committed)
    assert outcome.recovered == recovered
    assert isinstance(stream.run(2), Committed)
    assert counted(stream.lake) == expected(0, 2) + expected(1, rows=3 * FILES)
