"""A driver that is killed while it maintains its table: the batch before is in the table, and is not repeated."""

from pathlib import Path

import pytest

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.ledger import COMPACTED
from tests.processes.test_changelog_killed import OPTIONS, Changes, expected

pytestmark = pytest.mark.driver

BATCHES = 14
PLAIN = {name: value for name, value in OPTIONS.items() if name != "changelog_table"}


@pytest.mark.parametrize("place", ["after-rewrite", "before-compaction"])
def test_a_driver_killed_before_the_commit_of_a_compaction_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    stream = Changes(tmp_path, adapter="stream", options=PLAIN | {"except_column_list": "gone"})
    monkeypatch.setenv("LAKESINK_HOME", str(stream.home))
    stream.add_files(0, BATCHES)
    stream.killed_at(place)
    assert stream.run() == 0, stream.log()

    table = load_table(connect(create=False), stream.table)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected(BATCHES)
    summaries = [one.summary for one in table.metadata.snapshots if one.summary]
    assert any(COMPACTED in summary.additional_properties for summary in summaries)
    audited = lakesink.audit_table(stream.table)
    assert not audited.findings
    assert [sink.batches for sink in audited.sinks] == [BATCHES]
