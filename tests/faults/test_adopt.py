"""A stream that Iceberg's own sink wrote: refused until it is adopted, and then each batch once, whoever crashed."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakesink.settings.settings import Settings
from lakesink_catalog.read.history import sinks
from lakesink_protocol.errors import BatchRefused, CatalogError, Reason
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_tools.operate.adopt import Adopted, Takeover
from testkit.builders import Apply, Lake, Stream, counted, expected
from testkit.maintenance import append_foreign, expire, roll_back

ALL = "every batch is done"


@dataclass(frozen=True)
class Moving:
    """One query on one checkpoint, written by Iceberg's own sink or by lakesink."""

    lake: Lake
    stream: Stream
    checkpoint: Path

    def planned(self, batch_id: int) -> None:
        """Spark has logged what the batch reads."""
        for number in range(batch_id + 1):
            self._log("offsets", number, str(number + 1))

    def done(self, batch_id: int) -> None:
        """Spark has logged that the batch is done."""
        self.planned(batch_id)
        for number in range(batch_id + 1):
            self._log("commits", number, "")

    def by_iceberg(self, batch_id: int, *, query: str = "query-1", branch: str = "main") -> None:
        """What that sink leaves: rows, and its query and epoch in the summary."""
        self.planned(batch_id)
        marks = {"spark.sql.streaming.queryId": query, "spark.sql.streaming.epochId": str(batch_id)}
        [rows] = self.stream.rows(batch_id, range(3))
        self.lake.table().append(pa.Table.from_batches([rows]), snapshot_properties=marks, branch=branch)

    def by_lakesink(self, batch_id: int) -> Any:
        self.planned(batch_id)
        done = self.stream.run(batch_id)
        self.done(batch_id)
        return done

    def takeover(self, load: Callable[[], Any] | None = None) -> Takeover:
        settings = Settings.parse(
            {"sink_id": self.stream.sink_id, "checkpoint": str(self.checkpoint), "branch": self.stream.branch}
        )
        return Takeover(load or self.lake.table, settings, self.stream.chance.effects())

    def adopt(self) -> Adopted:
        takeover = self.takeover()
        return takeover.run(takeover.find())

    def refused(self) -> str:
        with pytest.raises(CatalogError) as caught:
            self.adopt()
        assert caught.value.code == "LAKESINK_ADOPT_REFUSED"
        return str(caught.value)

    def _log(self, folder: str, batch_id: int, line: str) -> None:
        (self.checkpoint / folder).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": self.stream.query}))
        (self.checkpoint / folder / str(batch_id)).write_text(f"v1\n{{}}\n{line}")


@pytest.fixture
def moving(tmp_path: Path) -> Moving:
    lake = Lake.make(tmp_path)
    return Moving(lake, Stream(lake), tmp_path / "checkpoint")


def refusal_of(moving: Moving, batch_id: int) -> BatchRefused:
    with pytest.raises(BatchRefused) as caught:
        moving.stream.run(batch_id)
    assert caught.value.reason is Reason.UNKNOWN_HISTORY
    return caught.value


@pytest.mark.parametrize("last", [0, 2])
@pytest.mark.parametrize("logged", [True, False])
def test_the_stream_goes_on_after_the_last_epoch(moving: Moving, last: int, logged: bool) -> None:  # noqa: FBT001 - a case
    for batch_id in range(last + 1):
        moving.by_iceberg(batch_id)
    moving.done(last if logged else last - 1)
    append_foreign(moving.lake)
    coming = last + 1 if logged else last
    assert f"batches up to {last} of this checkpoint" in refusal_of(moving, coming).what
    assert "accept=" not in refusal_of(moving, coming).action

    files = counted(moving.lake)
    adopted = moving.adopt()
    assert (adopted.batch_id, adopted.already, adopted.comes_again) == (last, False, not logged)
    assert counted(moving.lake) == files
    [mark] = moving.stream.marks()
    assert (mark.batch_id, mark.outcome, mark.accepted) == (last, "accepted", f"UnknownHistory:{last}@none:skip")
    again = moving.adopt()
    assert (again.already, again.snapshot_id) == (True, adopted.snapshot_id)

    replayed = moving.takeover().find()
    assert moving.stream.run(replayed) == AlreadyCommitted(adopted.snapshot_id)
    assert isinstance(moving.by_lakesink(last + 1), Committed)
    assert counted(moving.lake) - files == expected(last + 1)


def test_what_expiry_takes_after_the_adoption_does_not_matter(moving: Moving) -> None:
    moving.by_iceberg(0)
    moving.done(0)
    moving.adopt()
    append_foreign(moving.lake)
    expire(moving.lake)
    assert isinstance(moving.by_lakesink(1), Committed)
    assert [state.trouble for state in sinks(moving.lake.table())] == [None]


def test_where_expiry_took_the_epochs_a_human_says_it_once(moving: Moving) -> None:
    moving.by_iceberg(0)
    moving.by_iceberg(1)
    moving.done(1)
    append_foreign(moving.lake)
    expire(moving.lake)
    rows = counted(moving.lake)
    assert "The branch has no batch that Iceberg's own sink wrote" in moving.refused()
    word = "UnknownHistory:2@none:commit"
    assert f'accept="{word}"' in refusal_of(moving, 2).action
    moving.planned(2)
    moving.stream.run(2, accept=word)
    assert isinstance(moving.by_lakesink(3), Committed)
    assert counted(moving.lake) - rows == expected(2, 3)


def test_each_of_several_writers_is_adopted_by_its_own_epoch(moving: Moving) -> None:
    moving.by_iceberg(0)
    moving.by_iceberg(1)
    moving.done(1)
    moving.lake.table().append(
        pa.Table.from_batches(moving.stream.rows(50, range(3))),
        snapshot_properties={"spark.sql.streaming.queryId": "query-2", "spark.sql.streaming.epochId": "7"},
    )
    assert moving.adopt().batch_id == 1
    moving.by_lakesink(2)
    assert counted(moving.lake) == expected(0, 1, 2, 50)


def test_a_stream_into_a_branch_is_adopted_there(moving: Moving) -> None:
    append_foreign(moving.lake)
    moving.lake.table().manage_snapshots().create_branch(moving.lake.head().snapshot_id, "aud").commit()
    moving.stream.branch = "aud"
    moving.by_iceberg(0, branch="aud")
    moving.done(0)
    assert moving.adopt().batch_id == 0
    assert isinstance(moving.by_lakesink(1), Committed)
    assert moving.lake.head().snapshot_id != moving.lake.head("aud").snapshot_id


def test_a_batch_that_is_planned_and_not_in_the_table_is_written(moving: Moving) -> None:
    moving.by_iceberg(0)
    moving.done(0)
    moving.planned(1)
    assert moving.adopt().comes_again is False
    assert isinstance(moving.by_lakesink(1), Committed)
    assert counted(moving.lake) == expected(0, 1)


def test_a_checkpoint_that_does_not_fit_is_refused_in_words(moving: Moving) -> None:
    moving.done(1)
    assert "The branch has no batch that Iceberg's own sink wrote" in moving.refused()
    moving.by_iceberg(0, query="query-2")
    assert "The branch has no batch that Iceberg's own sink wrote" in moving.refused()
    moving.by_iceberg(0)
    assert "ends with batch 0 of this checkpoint, but Spark completed batch 1" in moving.refused()
    assert "rewind <checkpoint> --to-batch 0" in moving.refused()
    moving.by_iceberg(1)
    moving.by_iceberg(2)
    (moving.checkpoint / "offsets" / "2").unlink()
    assert "has batch 2 of this checkpoint, which ends with batch 1" in moving.refused()
    assert sinks(moving.lake.table()) == []


def test_a_query_that_goes_on_writing_is_seen_before_the_commit(moving: Moving) -> None:
    moving.by_iceberg(0)
    takeover = moving.takeover()
    batch = takeover.find()
    moving.by_iceberg(1)
    with pytest.raises(CatalogError, match="wrote batch 1 of this checkpoint meanwhile"):
        takeover.run(batch)
    assert sinks(moving.lake.table()) == []


def test_a_query_that_goes_on_writing_is_seen_in_every_attempt(moving: Moving) -> None:
    moving.by_iceberg(0)

    def others_first(apply: Apply) -> Any:
        moving.by_iceberg(1)
        return apply()

    moving.lake.catalog.faults = [others_first]
    takeover = moving.takeover()
    with pytest.raises(Exception, match="meanwhile"):
        takeover.run(takeover.find())
    assert sinks(moving.lake.table()) == []


@pytest.mark.parametrize("landed", [True, False])
def test_an_answer_that_is_lost_is_looked_for(moving: Moving, landed: bool) -> None:  # noqa: FBT001 - a case
    moving.by_iceberg(0)
    moving.done(0)

    def lose(apply: Apply) -> Any:
        if landed:
            apply()
        raise TimeoutError("no answer")

    moving.lake.catalog.faults = [lose]
    assert moving.adopt().batch_id == 0
    assert len(moving.stream.marks()) == 1
    assert isinstance(moving.by_lakesink(1), Committed)


def test_after_a_rollback_below_the_adoption_the_stream_is_adopted_again(moving: Moving) -> None:
    moving.by_iceberg(0)
    kept = moving.lake.head().snapshot_id
    moving.by_iceberg(1)
    moving.done(1)
    moving.adopt()
    moving.by_lakesink(2)
    roll_back(moving.lake, kept)
    assert "batches up to 0" in refusal_of(moving, 0).what
    assert "rewind <checkpoint> --to-batch 0" in moving.refused()
    for folder in ("offsets", "commits"):
        for batch_id in (1, 2):
            (moving.checkpoint / folder / str(batch_id)).unlink()
    assert moving.adopt().batch_id == 0
    moving.by_lakesink(1)
    assert counted(moving.lake) == expected(0, 1)


def test_there_and_back_and_there_again(moving: Moving) -> None:
    moving.by_iceberg(0)
    moving.done(0)
    moving.adopt()
    moving.by_lakesink(1)
    moving.by_iceberg(2)
    moving.done(2)
    refusal_of(moving, 3)
    [state] = sinks(moving.lake.table())
    assert state.trouble is Reason.UNKNOWN_HISTORY
    assert moving.adopt().batch_id == 2
    moving.by_lakesink(3)
    assert counted(moving.lake) == expected(0, 1, 2, 3)


def test_a_batch_that_both_have_written_is_told(moving: Moving) -> None:
    moving.by_iceberg(0)
    moving.done(0)
    moving.adopt()
    moving.by_lakesink(1)
    moving.by_iceberg(1)
    moving.by_iceberg(2)
    moving.done(2)
    refusal_of(moving, 3)
    assert "has written batch 1, which the table already had: its rows are doubled" in moving.refused()
    assert counted(moving.lake) == expected(0, 1, 2) + expected(1)
