"""What a sink does after a batch of changes that it does not after others: it removes keys files."""

from decimal import Decimal
from pathlib import Path
from unittest.mock import Mock

import pytest

from lakesink.sinks.iceberg import rows_on_head
from lakesink_protocol import events
from testkit.builders import Lake, Stream
from testkit.change_table import Change, ChangeStream, upsert_lake


def test_what_is_located_before_the_commit_is_not_located_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Mock(wraps=rows_on_head.read_batch)
    monkeypatch.setattr(rows_on_head, "read_batch", found)
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
