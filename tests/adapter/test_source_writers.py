"""What ``format("lakesink")`` makes of rows and votes, without a session."""

from typing import Any

import pyarrow as pa
import pytest

from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.settings.settings import Settings
from lakesink.spark.source.source_tasks import PlannedTask, TaskMessage
from lakesink.spark.source.source_writers import Arriving, FinishedJob
from lakesink_protocol.errors import SettingsError, WriteError

STREAM: dict[str, Any] = {"sink_id": "orders", "checkpoint": "ck"}


def changes(deletes: str, **options: Any) -> Settings:
    return Settings.parse(STREAM | {"mode": "changes", "apply_as_deletes": deletes, **options})


def test_votes_are_used_once() -> None:
    written = FinishedJob([TaskMessage(0, "0.1.0", b"vote")])
    assert written({"it": None}).receipts("it") == [b"vote"]  # type: ignore[dict-item] # the writer plays no part
    with pytest.raises(WriteError) as error:
        written({})
    assert error.value.code == "LAKESINK_VOTES_INCOMPLETE"


def test_the_first_task_that_refuses_rows_ends_the_batch() -> None:
    said = [str(WriteError("KEY_NULL", f"Task {task} has a NULL.", action="Give it a key.")) for task in (0, 1)]
    messages = [TaskMessage(2, "0.1.0", b"vote"), *(TaskMessage(task, "0.1.0", b"", said[task]) for task in (1, 0))]
    with pytest.raises(WriteError, match=r"LAKESINK_KEY_NULL\] Task 0 has a NULL"):
        FinishedJob(messages)({"it": None})  # type: ignore[dict-item] # the writer plays no part


def test_a_job_without_messages_lacks_a_vote() -> None:
    votes = FinishedJob([])({"it": None})  # type: ignore[dict-item] # the writer plays no part
    with pytest.raises(WriteError, match="LAKESINK_VOTES_INCOMPLETE"):
        votes.check(["it"])


def test_the_format_takes_the_name_of_a_boolean_column_as_its_condition() -> None:
    rows = pa.schema([("id", pa.int64()), ("Gone", pa.bool_()), ("op", pa.string())])
    found = Arriving.of(rows, changes("gone", except_column_list="op"))
    assert (found.stored.names, found.deletes) == (["id"], "Gone")
    assert Arriving.of(rows, Settings.parse(STREAM)) == Arriving(rows)
    for condition in ("op", "op = 'd'", "nope"):
        with pytest.raises(SettingsError, match="which is no BOOLEAN column of the rows"):
            Arriving.of(rows, changes(condition))


def test_a_task_of_the_format_gets_that_column_as_the_mark() -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "gone": [True, None]})
    [marked] = PlannedTask("", None, None, deletes="gone").marked([rows])
    assert marked.to_pydict() == {"id": [1, 2], DELETE_MARK: [True, None]}
