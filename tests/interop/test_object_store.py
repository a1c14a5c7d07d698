"""Warehouse and checkpoint on S3: drivers die, keys are refused, the store goes away, and every row is there once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.s3 import S3, s3
from testkit.harness import added_files, expected, own_snapshots
from tests.interop.object_stream import BUCKET, object_stream

pytestmark = pytest.mark.interop

KILLS = (
    ("before-prepared", 0, "committed"),
    ("after-prepared", 1, "recovered"),
    ("before-call", 2, "recovered"),
    ("after-call", 3, "committed"),
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3]:
    with s3(tmp_path / "s3", BUCKET) as running:
        yield running


def test_a_driver_killed_again_and_again_leaves_every_row_once(server: S3, tmp_path: Path) -> None:
    stream = object_stream(tmp_path / "stream", server)
    batches = len(KILLS) + 1
    stream.add_files(0, batches)
    prepared = {}
    for failpoint, batch, outcome in KILLS:
        with stream.held(failpoint, batch) as driver:
            driver.kill()
        if outcome == "recovered":
            prepared[batch] = stream.prepared_paths(batch)
    assert stream.run() == 0, stream.log()

    assert stream.rows() == expected(range(batches))
    table = stream.load()
    marks = {batch: (outcome, snapshot) for batch, outcome, snapshot in own_snapshots(table)}
    assert [marks[batch][0] for batch in range(batches)] == [outcome for _, _, outcome in KILLS] + ["committed"]
    for batch, paths in prepared.items():
        assert added_files(table, marks[batch][1]) == paths
    assert files_with(tmp_path, server.secret_key, server.access_key) == []


def test_a_refused_key_and_a_dead_store_end_the_query_by_name_and_the_next_one_goes_on(
    server: S3, tmp_path: Path
) -> None:
    stream = object_stream(tmp_path / "stream", server)
    stream.make_table({"commit.retry.num-retries": "2"})
    stream.add_files(0, 4)
    old = server.secret_key
    with stream.held("before-prepared", 1) as driver:
        server.kill()
        server.secret_key = f"{old}-2"
        server.start()
        assert driver.goes_on() == 1
    assert "[LAKESINK_STORAGE_REJECTED]" in stream.log()

    mended = object_stream(tmp_path / "stream", server)
    with mended.held("before-call", 2) as driver:
        server.kill()
        assert driver.goes_on() == 1
    assert "[LAKESINK_COMMIT_UNRESOLVED]" in mended.log()
    server.start()
    assert mended.run() == 0, mended.log()

    assert mended.rows() == expected(range(4))
    outcomes = [(batch, outcome) for batch, outcome, _ in own_snapshots(mended.load())]
    assert outcomes == [(0, "committed"), (1, "committed"), (2, "recovered"), (3, "committed")]
    assert files_with(tmp_path, old, server.access_key) == []


def files_with(folder: Path, *secrets: str) -> list[Path]:
    """Table, records, checkpoint, database and logs: all are below one folder."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert len(found) > 50
    return [path for path in found if any(secret.encode() in path.read_bytes() for secret in secrets)]
