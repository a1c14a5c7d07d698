"""Manifests of tables that are changed by key: engines plan each of them, so they are merged soon."""

from pathlib import Path

import pytest

from lakesink.settings.table_settings import DEFAULTS_OF_CHANGES, MIN_COUNT_TO_MERGE
from testkit.builders import Lake
from testkit.change_table import ChangeStream, Reference, rows_of, upsert_lake

BATCHES = 27


def most_data_manifests(lake: Lake) -> int:
    """Of all snapshots, while batches of changes come."""
    stream = ChangeStream(lake, seed=3, options={"maintenance": "off"})  # a compaction merges manifests too
    reference, most = Reference(), 0
    for number in range(BATCHES):
        stream.run(number)
        reference.apply(stream.changes(number))
        table = lake.table()
        snapshot = table.current_snapshot()
        assert snapshot is not None
        most = max(most, sum(one.content == 0 for one in snapshot.manifests(table.io)))
    assert rows_of(lake) == reference.table
    return most


@pytest.mark.parametrize(
    ("properties", "few"),
    [({}, True), ({MIN_COUNT_TO_MERGE: "100"}, False)],
    ids=["by default", "if the table has the property"],
)
@pytest.mark.dear
def test_data_manifests_of_a_changed_table_are_merged_soon(
    tmp_path: Path,
    properties: dict[str, str],
    few: bool,  # noqa: FBT001
) -> None:
    lake = upsert_lake(tmp_path, properties=properties)
    most = most_data_manifests(lake)
    assert (most <= DEFAULTS_OF_CHANGES[MIN_COUNT_TO_MERGE] + 2) == few
