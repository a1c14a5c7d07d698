"""What a sink does after a batch of changes that it does not after others: it compacts, and removes keys files."""

from decimal import Decimal
from pathlib import Path
from unittest.mock import Mock

import pytest

from lakesink.sinks.iceberg import keyed_changes
from lakesink.sinks.iceberg.compaction import Compaction
from lakesink.sinks.iceberg.rows_on_head import read_batch
from lakesink_protocol import events
from testkit.builders import Lake, Stream
from testkit.change_table import Change, ChangeStream, upsert_lake


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batches after which a compaction was tried."""
    found: list[int] = []
    monkeypatch.setattr(Compaction, "compact", lambda self: found.append(self.plan.batch_id))
    return found


def test_no_compaction_follows_a_batch_that_appends(lake: Lake, followed: list[int]) -> None:
    Stream(lake).run(0)
    assert followed == []


@pytest.mark.parametrize("wanted", [True, False])
def test_a_compaction_follows_a_batch_of_changes_if_it_is_wanted(
    tmp_path: Path, followed: list[int], *, wanted: bool
) -> None:
    ChangeStream(upsert_lake(tmp_path), options={"compact_small_files": wanted}).run_changes(0, [[]])
    assert followed == [0] * wanted


def test_what_is_located_before_the_commit_is_not_located_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Mock(wraps=read_batch)
    monkeypatch.setattr(keyed_changes, "read_batch", found)
    tasks = [[Change(key, 0, "a", "v", Decimal(1))] for key in (1, 2)]
    ChangeStream(upsert_lake(tmp_path)).run_changes(0, tasks)
    assert found.call_count == 1


def test_keys_files_are_kept_until_the_next_batch_has_landed(tmp_path: Path) -> None:
    stream = ChangeStream(upsert_lake(tmp_path))
    for batch in range(2):
        stream.run_changes(batch, [[Change(1, batch, "a", "v", Decimal(1))]])
        [kept] = [path.name for path in stream.lake.files() if path.suffix == ".keys"]
        assert kept.startswith(f"events-{batch}-")


def test_no_keys_files_of_a_stream_that_appends_are_looked_for(lake: Lake) -> None:
    told: list[events.Event] = []
    stream = Stream(lake)
    stream.listeners = stream.listeners.also(told.append)
    for batch in range(2):
        stream.run(batch)
    assert [event for event in told if isinstance(event, events.RecordKept)] == []
