"""When a sink tries to compact its table: after a batch on which files are due, and not at once after a failure."""

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from lakesink.compact.choose import ENOUGH_FILES
from lakesink.sinks.iceberg.compaction import Compaction, CompactionMemory
from lakesink.sinks.iceberg.rows_on_head import LocateMemory
from lakesink_catalog.commit.change_commit import Applied, ChangeCommit
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_catalog.manifests.merging import MergeMemory
from lakesink_protocol import events
from lakesink_protocol.change import Content, ContentFile
from lakesink_protocol.identity import SinkKey
from testkit.tasks import plan_for, table_in_memory

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True))


def small(files: int) -> LiveFiles:
    """So many small files."""
    made = (
        LiveFile(f"file-{at}", Content.DATA, 0, (), 9, 5_000, at + 1, {}, {}, "", "manifest") for at in range(files)
    )
    return LiveFiles(tuple(made), ())


@pytest.mark.parametrize(
    ("files", "tries"), [(ENOUGH_FILES, [1, 1, 1, 2, 2, 2, 2, 2, 3]), (ENOUGH_FILES - 1, [0] * 9)], ids=["due", "few"]
)
def test_after_each_failure_compactions_rest_for_twice_as_many_batches(
    tmp_path: Path, files: int, tries: list[int]
) -> None:
    loads: list[str] = []

    def load() -> Table:
        loads.append("once more")
        raise TimeoutError("no answer")

    seen, plan = LocateMemory(head=small(files)), plan_for(SCHEMA, tmp_path)
    compaction = Compaction(load, SinkKey("s"), plan, 1, seen, CompactionMemory(), MergeMemory(), Effects())
    found = []
    for _ in tries:
        compaction.compact()
        found.append(len(loads))
    assert found == tries


@pytest.mark.parametrize(("head", "known"), [(5, 6), (4, 5)], ids=["the batch", "another writer's"])
def test_merges_go_on_after_a_compaction_of_what_the_batch_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: int, known: int
) -> None:
    """The batch made snapshot 5, and the compaction of a head makes snapshot 6."""
    ended = small(ENOUGH_FILES).data
    made = ContentFile("new", 0, (), 72, 9_000, {}, {}, {}, {}, {}, {}, ())
    change = Change("main", head, 6, {}, added=(made,), ended=ended)
    monkeypatch.setattr(ChangeCommit, "run", lambda _, table, __: Applied(table, change))
    told: list[events.Event] = []
    merges, effects = MergeMemory(snapshot_id=5), Effects(emit=LISTENERS.also(told.append))
    seen, plan = LocateMemory(head=small(ENOUGH_FILES)), plan_for(SCHEMA, tmp_path)
    memory = CompactionMemory()
    Compaction(lambda: table_in_memory(SCHEMA), SinkKey("s"), plan, 1, seen, memory, merges, effects).compact()
    assert merges.snapshot_id == known
    assert told == [events.FilesCompacted(plan.batch_id, 6, ENOUGH_FILES, 1, 72)]
