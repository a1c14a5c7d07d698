"""A branch has one past, whether its snapshots are retained or only earlier metadata files show them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lakesink_catalog.read.earlier import past_under
from lakesink_catalog.read.past import retained
from lakesink_catalog.snapshots import head_of
from lakesink_tools.audit.scan import pasts_of
from testkit.builders import TABLE, Lake, Stream
from testkit.maintenance import expire, expire_like_java


@pytest.mark.parametrize("expires", [expire, expire_like_java], ids=["PyIceberg", "Java"])
def test_earlier_metadata_shows_the_commits_that_expired(expires: Callable[[Lake], None], tmp_path: Path) -> None:
    stream = Stream(Lake.make(tmp_path)).filled(4)
    before = pasts_of(retained(stream.lake.table()))["main"]
    assert before.is_complete
    expires(stream.lake)
    table = stream.lake.table()
    left = pasts_of(retained(table))["main"]
    assert not left.is_complete
    assert len(left.commits) < len(before.commits)
    whole = past_under(table, TABLE, head_of(table, "main"))
    assert whole.is_complete
    assert [one.mark for one in whole.commits] == [one.mark for one in before.commits]
    assert [one.added for one in whole.commits] == [one.added for one in before.commits]
    assert [one.snapshot_id for one in whole.commits if one.is_retained] == [one.snapshot_id for one in left.commits]
