"""A directory that an older lakesink wrote is read, and its stream goes on in it."""

import json
import tarfile
from pathlib import Path

import pytest

import lakesink
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import expected
from testkit.directory import Stream

WRITTEN = sorted(Path(__file__).parent.glob("written-by-*.tar.xz"))
"""By each version: commits 0 to 2, and batch 3 of two tasks prepared by a driver that died."""


@pytest.fixture(params=WRITTEN, ids=lambda path: path.name)
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> Stream:
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path, filter="data")
    return Stream(tmp_path / "out")


def test_what_an_older_version_committed_is_read_and_gone_on_with(stream: Stream) -> None:
    assert stream.counted() == expected(0, 1, 2)
    assert stream.run(2) == AlreadyCommitted(2)
    for number in (3, 4):
        assert isinstance(stream.run(number), Committed)
    assert stream.counted() == expected(0, 1, 2, 3, 4)


def test_a_marker_of_an_older_version_that_is_torn_is_noticed_at_the_first_start(stream: Stream) -> None:
    stream.marker_path(0).write_bytes(b"")
    with pytest.raises(lakesink.BatchRefused, match="commit 0 is incomplete"):
        stream.run(3)
    with pytest.raises(CatalogError, match="commit 0 is incomplete"):
        lakesink.committed_files(stream.directory)


def test_a_batch_that_an_older_version_prepared_is_published_if_all_its_parts_are_there(stream: Stream) -> None:
    """Its record does not state when the first part was made: the parts are looked for before the marker is created."""
    [path] = (stream.root / "prepared").glob("3-*.json")
    [payload] = json.loads(path.read_text().partition("\n")[2])["participants"].values()
    sink = stream.sink()
    begun = sink.begin(stream.batch(3))
    assert not isinstance(begun, AlreadyCommitted)
    found = sink.recover(begun, payload)
    assert found is not None
    stream.part_files()[-1].unlink()
    assert sink.commit(begun, found) is None
