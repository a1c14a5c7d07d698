"""A catalog that keeps no history proves nothing of it; what upkeep has expired is as clean as it was."""

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lakesink_tools.audit.audit import audit
from testkit.builders import TABLE, Chance, Lake, Stream
from testkit.maintenance import expire, expire_like_java
from tests.audit.terminal import Run
from tests.certify.liars import KeepsOneSnapshot


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path, properties={"write.metadata.previous-versions-max": "1"})


def of_a_minute_ago() -> Chance:
    """A clock that is not ahead of the command's."""
    return Chance(now=itertools.count(time.time_ns() // 1_000_000 - 60_000, 1))


def forgetful(lake: Lake, sink_id: str = "events") -> Stream:
    place = {"uri": f"sqlite:///{lake.folder}/catalog.db", "warehouse": f"file://{lake.folder}/warehouse"}
    return Stream(lake, sink_id, catalog=KeepsOneSnapshot("test", **place), chance=of_a_minute_ago())


def test_a_history_that_was_never_kept_is_not_proven(lake: Lake, run: Run) -> None:
    stream = forgetful(lake)
    stream.filled(3)
    result = run("audit")
    title, *lines = result.stdout.splitlines()
    assert result.exit_code == 2
    assert title.startswith(f"{TABLE} in test: not proven: the catalog keeps no earlier snapshots")
    assert "clean" not in result.stdout
    assert "1 batch" not in title
    [note] = [line for line in lines if "cannot be listed" in line]
    assert "Batches before 2 cannot be listed: their snapshots are not kept by the catalog." in note
    assert "of these snapshots in the branch were checked: 2 files with 6 rows" in note
    assert "expired" not in result.stdout
    document = json.loads(run("audit", "--output", "json").stdout)
    assert (document["well"], document["looked_at"]["history_kept"], document["findings"]) == (False, False, [])


def test_a_sink_whose_last_batch_nothing_shows_is_assumed_and_not_proven(lake: Lake, run: Run) -> None:
    """The snapshot of the other sink is the only one that is there."""
    forgetful(lake).run(0)
    forgetful(lake, "others").run(0)
    result = run("audit", "--sink", "events")
    assert result.exit_code == 2
    assert "The catalog keeps no proof that its last batch, 0, is in the branch: assumed." in result.stdout
    assert "clean" not in result.stdout


def test_a_table_with_all_its_snapshots_is_clean_in_any_catalog(lake: Lake, run: Run) -> None:
    forgetful(lake).run(0)
    result = run("audit")
    assert result.exit_code == 0
    assert "clean: 1 batch, each there once" in result.stdout


@pytest.mark.parametrize("expires", [expire, expire_like_java])
def test_what_upkeep_has_expired_is_clean_as_before(
    lake: Lake, run: Run, expires: Callable[[Lake, list[int]], None]
) -> None:
    stream = Stream(lake, chance=of_a_minute_ago()).filled(3)
    expires(lake, [stream.snapshot_of(batch) for batch in range(2)])
    assert [snapshot.snapshot_id for snapshot in lake.table().metadata.snapshots] == [stream.snapshot_of(2)]
    result = run("audit")
    assert result.exit_code == 0
    assert "clean: 1 batch, each there once" in result.stdout
    assert "Batches before 2 cannot be listed: their snapshots have expired." in result.stdout
    assert audit(lake.table()).history_kept
