"""A checkpoint is judged by the rules that a stream goes by, from its own files."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from lakesink_tools.checks.doctor.checkpoint import check_checkpoint, coming_from
from lakesink_tools.checks.doctor.finding import Finding, Standing
from lakesink_tools.checks.doctor.table import check_table
from testkit.batches import Writer
from testkit.builders import Lake
from testkit.maintenance import roll_back


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """Batches 0 to 2 of query q1; batch n reads from n to n+1."""
    catalog = connect("lake", {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"})
    create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
    writer = Writer(catalog)
    for batch_id in range(3):
        writer.commit(batch_id)
    return writer


def checkpoint(folder: Path, *, planned: int, done: int, query: str = "q1", at: int = 0) -> str:
    """As Spark leaves it: offsets of batches up to `planned`, commits up to `done`."""
    root = folder / "checkpoint"
    for name, last in (("offsets", planned), ("commits", done)):
        (root / name).mkdir(parents=True)
        for batch_id in range(last + 1):
            lines = ["v1", "{}"] + ([json.dumps({"at": batch_id + 1 + at})] if name == "offsets" else [])
            (root / name / str(batch_id)).write_text("\n".join(lines))
            (root / name / f".{batch_id}.crc").write_bytes(b"crc")
    (root / "metadata").write_text(json.dumps({"id": query}))
    return str(root)


def looked(root: str, table: Table | None = None) -> dict[str, Finding]:
    return {finding.check: finding for finding in check_checkpoint(root, table)}


def test_a_checkpoint_tells_its_query_and_how_far_it_came(tmp_path: Path) -> None:
    root = checkpoint(tmp_path, planned=3, done=2)
    findings = looked(root)
    assert findings.keys() == {"readable"}
    assert findings["readable"].standing is Standing.OK
    assert findings["readable"].found == f"{root}: query q1, batch 2 done, batch 3 comes again"


@pytest.mark.parametrize(
    ("planned", "done", "standing", "words"),
    [
        (2, 2, Standing.OK, "batch 3 of sink events would be committed"),
        (3, 2, Standing.OK, "batch 3 of sink events would be committed"),
        (2, 1, Standing.OK, "batch 2 of sink events would be skipped: snapshot"),
        (4, 3, Standing.FAILED, "[LAKESINK_GAP]"),
        (4, 4, Standing.FAILED, "[LAKESINK_GAP]"),
        (0, 0, Standing.FAILED, "[LAKESINK_REWOUND]"),
    ],
)
def test_the_next_batch_is_judged_as_a_stream_would(
    writer: Writer, tmp_path: Path, planned: int, done: int, standing: Standing, words: str
) -> None:
    finding = looked(checkpoint(tmp_path, planned=planned, done=done), writer.load())["next batch"]
    assert finding.standing is standing
    assert words in finding.found
    assert bool(finding.fix) is (standing is Standing.FAILED)


def test_after_a_rewind_the_rolled_back_sink_is_no_failure_of_the_table(writer: Writer, tmp_path: Path) -> None:
    roll_back(Lake(tmp_path, writer.catalog, writer.table), writer.load().snapshots()[0].snapshot_id)  # type: ignore[arg-type] # any catalog
    before, rewound = (
        coming_from(checkpoint(tmp_path / name, planned=last, done=last)) for name, last in (("a", 2), ("b", 0))
    )
    for coming, standing in ((None, Standing.FAILED), (before, Standing.FAILED), (rewound, Standing.OK)):
        [sink] = [one for one in check_table("demo.events", writer.load(), coming) if one.check == "sinks"]
        assert sink.standing is standing
        assert "RolledBack" in sink.found
    assert "(RolledBack); the given checkpoint goes on with batch 1" in sink.found


def test_other_offsets_under_the_same_id_are_told(writer: Writer, tmp_path: Path) -> None:
    finding = looked(checkpoint(tmp_path, planned=2, done=1, at=5), writer.load())["next batch"]
    assert "[LAKESINK_BATCH_CHANGED]" in finding.found


def test_the_checkpoint_of_another_query_fails(writer: Writer, tmp_path: Path) -> None:
    finding = looked(checkpoint(tmp_path, planned=2, done=2, query="q2"), writer.load())["next batch"]
    assert finding.standing is Standing.FAILED
    assert "has not written to the table (its sinks: events)" in finding.found


def test_a_new_checkpoint_beside_a_sink_warns(writer: Writer, tmp_path: Path) -> None:
    finding = looked(checkpoint(tmp_path, planned=-1, done=-1, query="q2"), writer.load())["next batch"]
    assert finding.standing is Standing.WARNING
    assert "a new sink id would begin with it" in finding.found


def test_what_is_no_checkpoint_fails(tmp_path: Path) -> None:
    findings = looked(str(tmp_path / "nowhere"))
    assert findings["readable"].standing is Standing.FAILED
    assert "LAKESINK_CHECKPOINT_UNREADABLE" in findings["readable"].found


def test_a_checkpoint_on_storage_without_a_package_is_skipped(writer: Writer) -> None:
    finding = looked("made-up://bucket/checkpoint", writer.load())["readable"]
    assert finding.standing is Standing.SKIPPED
    assert "cannot be read from here" in finding.found


def test_a_checkpoint_in_the_table_s_folder_warns(writer: Writer) -> None:
    folder = Path(writer.load().location().removeprefix("file://"))
    finding = looked(checkpoint(folder, planned=2, done=2), writer.load())["place"]
    assert finding.standing is Standing.WARNING
    assert "orphan cleanup" in finding.found


def test_a_folder_that_this_user_cannot_write_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = checkpoint(tmp_path, planned=0, done=0)
    monkeypatch.setattr("os.access", lambda *_: False)  # whoever runs the tests may be root, who may write anywhere
    assert looked(root)["place"].standing is Standing.WARNING
