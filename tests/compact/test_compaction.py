"""When a sink tries to compact its table: after a batch on which files are due, and not at once after a failure."""

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from lakesink.compact.choose import ENOUGH_FILES
from lakesink.sinks.iceberg.compaction import Compaction, CompactionMemory
from lakesink.sinks.iceberg.rows_on_head import LocateMemory
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_catalog.manifests.merging import MergeMemory
from lakesink_protocol.change import Content
from lakesink_protocol.identity import SinkKey
from testkit.tasks import plan_for

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True))


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

    small = [
        LiveFile(f"file-{at}", Content.DATA, 0, (), 9, 5_000, at + 1, {}, {}, "", "manifest") for at in range(files)
    ]
    seen, plan = LocateMemory(head=LiveFiles(tuple(small), ())), plan_for(SCHEMA, tmp_path)
    compaction = Compaction(load, SinkKey("s"), plan, 1, seen, CompactionMemory(), MergeMemory(), Effects())
    found = []
    for _ in tries:
        compaction.compact()
        found.append(len(loads))
    assert found == tries
