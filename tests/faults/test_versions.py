"""What a newer lakesink has written stops an older one by name, and nothing is written; wherever the version stands."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakesink_catalog.read.history import sinks
from lakesink_protocol.errors import BatchRefused, Reason
from lakesink_protocol.ledger import LEDGER_VERSION
from lakesink_protocol.outcome import Committed
from testkit.builders import Lake, Stream, counted, expected
from testkit.maintenance import append_foreign, edit_metadata, set_property

NEWER = LEDGER_VERSION + 1


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    stream = Stream(Lake.make(tmp_path))
    stream.run(0)
    stream.run(1)
    return stream


def newer_entry(stream: Stream) -> None:
    text = stream.lake.table().properties[stream.key.ledger_property]
    set_property(stream.lake, stream.key.ledger_property, json.dumps({**json.loads(text), "version": NEWER, "new": 1}))


def newer_marks(stream: Stream, *, from_batch: int = 0) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        for snapshot in metadata["snapshots"]:
            if int(snapshot["summary"].get("lakesink.batch-id", -1)) >= from_batch:
                snapshot["summary"]["lakesink.version"] = str(NEWER)

    edit_metadata(stream.lake, edit)


def newer_marks_whose_entry_is_lost(stream: Stream) -> None:
    newer_marks(stream)
    set_property(stream.lake, stream.key.ledger_property, None)


def newer_marks_over_an_older_entry(stream: Stream) -> None:
    older = stream.lake.table().properties[stream.key.ledger_property]
    stream.run(2)
    newer_marks(stream, from_batch=2)
    set_property(stream.lake, stream.key.ledger_property, older)


def both(stream: Stream) -> None:
    newer_entry(stream)
    newer_marks(stream)


@pytest.mark.parametrize("batch_id", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "written", [newer_entry, both, newer_marks_whose_entry_is_lost, newer_marks_over_an_older_entry]
)
def test_a_newer_version_is_named_and_nothing_is_written(
    stream: Stream, written: Callable[[Stream], None], batch_id: int
) -> None:
    written(stream)
    append_foreign(stream.lake)
    rows, writes = counted(stream.lake), stream.writes
    with pytest.raises(BatchRefused) as caught:
        stream.run(batch_id)
    assert caught.value.reason is Reason.LEDGER_DAMAGED
    assert f"version {NEWER}" in caught.value.what.replace("'", "")
    assert re.search(rf"this lakesink reads (version )?{LEDGER_VERSION}", caught.value.what)
    assert "update lakesink" in caught.value.action
    assert (counted(stream.lake), stream.writes) == (rows, writes)


def test_the_status_tells_it_too(stream: Stream) -> None:
    newer_entry(stream)
    assert [state.trouble for state in sinks(stream.lake.table())] == [Reason.LEDGER_DAMAGED]


def test_newer_marks_of_another_sink_stop_nobody(stream: Stream) -> None:
    both(stream)
    beside = Stream(stream.lake, "beside", query="query-2")
    assert isinstance(beside.run(0), Committed)
    assert counted(stream.lake) == expected(0, 1) + expected(0)
