"""Checkpoints as Spark 4.2 and 4.3 write them, kept in ``checkpoints``: what is read from each is the same."""

import shutil
from pathlib import Path

import pytest

from lakesink.checkpoint.folder import Checkpoint, FsspecFiles
from lakesink_protocol.errors import QueryError
from lakesink_protocol.identity import Batch, digest
from lakesink_tools.audit.checkpoint import read_done
from lakesink_tools.checks.doctor.checkpoint import next_batch
from lakesink_tools.operate.rewind import RewindableCheckpoint

SAMPLES = Path(__file__).parent / "checkpoints"
VERSIONS = ("4.2", "4.3")


@pytest.fixture(params=VERSIONS)
def samples(request: pytest.FixtureRequest) -> Path:
    """The samples of one version of Spark."""
    return SAMPLES / str(request.param)


def _checkpoint(root: Path, folders: tuple[int, ...] | None = None) -> Checkpoint:
    return Checkpoint(FsspecFiles(str(root)), folders)


def _batch(root: Path, batch_id: int, folders: tuple[int, ...] | None = None) -> Batch:
    checkpoint = _checkpoint(root, folders)
    return checkpoint.batch("q", batch_id, checkpoint.offsets(batch_id))


def _batches(root: Path, last: int) -> list[Batch]:
    return [_batch(root, batch_id) for batch_id in range(last + 1)]


def test_the_fingerprint_does_not_depend_on_the_version_of_the_log(samples: Path) -> None:
    assert _batches(samples / "version-2", 1) == _batches(samples / "version-1", 1)


@pytest.mark.parametrize("upgraded", [(1,), (0,), (0, 1)])
def test_the_fingerprint_survives_an_upgrade_in_place(samples: Path, tmp_path: Path, upgraded: tuple[int, ...]) -> None:
    root = shutil.copytree(samples / "version-1", tmp_path / "checkpoint")
    for batch_id in upgraded:
        shutil.copy(samples / "version-2" / "offsets" / str(batch_id), root / "offsets" / str(batch_id))
    assert _batches(root, 1) == _batches(samples / "version-1", 1)


@pytest.mark.parametrize("upgraded", [(), (1,), (0,), (0, 1)])
def test_a_single_source_is_the_same_with_and_without_its_name(tmp_path: Path, upgraded: tuple[int, ...]) -> None:
    root = shutil.copytree(SAMPLES / "4.2" / "one-name", tmp_path / "checkpoint")
    for batch_id in upgraded:
        shutil.copy(SAMPLES / "4.3" / "one-name" / "offsets" / str(batch_id), root / "offsets" / str(batch_id))
    assert _batches(root, 1) == _batches(SAMPLES / "4.3" / "one-name", 1)


def test_each_batch_starts_where_the_one_before_ended_while_sources_come_go_and_change_places(samples: Path) -> None:
    batches = _batches(samples / "names-by-key", 4)
    assert [batch.start for batch in batches[1:]] == [batch.end for batch in batches[:-1]]
    assert len({batch.fingerprint for batch in batches}) == 5
    assert batches[3].offsets == '{"alpha":{"logOffset":2},"gamma":{"logOffset":0}}'


def test_a_source_that_comes_back_is_refused_by_name(samples: Path) -> None:
    with pytest.raises(QueryError, match="Source 'beta' was in batch 2") as caught:
        _batch(samples / "names-by-key", 5)
    assert caught.value.code == "LAKESINK_SOURCE_CAME_BACK"
    assert "--to-batch 4" in caught.value.action


def test_what_named_sources_read_is_in_the_fingerprint(samples: Path, tmp_path: Path) -> None:
    root = shutil.copytree(samples / "names-by-key", tmp_path / "checkpoint")
    before = _batch(root, 1)
    log = root / "sources" / "alpha" / "1"
    log.write_text(log.read_text().replace("1.json", "2.json"))
    assert _batch(root, 1).fingerprint != before.fingerprint


def test_named_sources_that_are_kept_by_position_are_refused() -> None:
    with pytest.raises(QueryError) as caught:
        _batch(SAMPLES / "4.2" / "names", 1)
    assert caught.value.code == "LAKESINK_SOURCES_BY_POSITION"


def test_a_source_read_twice_has_its_own_folder_in_a_log_by_key(samples: Path) -> None:
    root = samples / "read-twice"
    assert _batch(root, 1, (0, 1, 0, 2)).offsets == '[null,{"logOffset":0},{"logOffset":1}]'
    with pytest.raises(QueryError, match="file source 1 lacks entry 1"):
        _batch(root, 1, (1, 0, 1, 2))
    with pytest.raises(QueryError) as caught:
        _checkpoint(root).check_folders(_checkpoint(root).offsets(1))
    assert caught.value.code == "LAKESINK_SOURCE_READ_TWICE"


@pytest.mark.parametrize("name", ["names-by-key", "one-name", "sinks", "state-ids", "version-1", "version-2"])
def test_audit_and_doctor_read_it(samples: Path, name: str) -> None:
    root = samples / name
    done = read_done(str(root))
    assert done.ends == {batch_id: digest(_checkpoint(root).offsets(batch_id).by_source) for batch_id in done.batches}
    coming = next_batch(_checkpoint(root))
    assert (coming.batch.batch_id, coming.planned) == (done.batches[-1] + 1, False)
    assert coming.batch.start == done.ends[done.batches[-1]]


@pytest.mark.parametrize("name", ["names-by-key", "sinks", "state-ids"])
def test_a_rewind_takes_back_logs_of_every_version(samples: Path, name: str, tmp_path: Path) -> None:
    root = shutil.copytree(samples / name, tmp_path / "checkpoint")
    place = RewindableCheckpoint(str(root))
    place.rewind(place.plan(0))
    assert sorted(path.name for path in (root / "offsets").iterdir()) == ["0"]
    assert _batch(root, 0) == _batch(samples / name, 0)
    assert next_batch(_checkpoint(root)).batch.batch_id == 1


def test_a_version_never_seen_stops_every_reader(samples: Path, tmp_path: Path) -> None:
    root = shutil.copytree(samples / "names-by-key", tmp_path / "checkpoint")
    log = root / "offsets" / "5"
    log.write_text(log.read_text().replace("v2", "v3", 1))
    (root / "commits" / "5").unlink()
    for read in (lambda: _batch(root, 5), lambda: next_batch(_checkpoint(root))):
        with pytest.raises(QueryError, match="'v3'; this lakesink reads v1 and v2") as caught:
            read()
        assert caught.value.code == "LAKESINK_CHECKPOINT_VERSION"
