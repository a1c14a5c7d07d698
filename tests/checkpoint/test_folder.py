from pathlib import Path
from typing import Any

import pytest

from lakesink.checkpoint import offsets
from lakesink.checkpoint.folder import (
    Checkpoint,
    CheckpointFiles,
    FsspecFiles,
    source_folders,
)
from lakesink.checkpoint.offsets import Offsets
from lakesink_protocol.errors import QueryError
from tests.checkpoint.reader_contract import Reader, ReaderContract, fill


@pytest.fixture
def reader() -> Reader:
    return lambda root: FsspecFiles(str(root))


class TestFsspecFiles(ReaderContract):
    """Without a JVM."""


def _offsets(*lines: str) -> str:
    return "\n".join(["v1", '{"batchWatermarkMs":0}', *lines])


def _log(*positions: int) -> str:
    return "\n".join(["v1", *(f'{{"path":"file:///in/{p}","timestamp":1,"batchId":{p}}}' for p in positions)])


def _batch(files: CheckpointFiles, batch_id: int, folders: tuple[int, ...] | None = None) -> Any:
    checkpoint = Checkpoint(files, folders)
    return checkpoint.batch("q", batch_id, checkpoint.offsets(batch_id))


KAFKA = b'\0v1\n{"t":{"0":5}}'


@pytest.mark.parametrize(
    ("sources", "known"),
    [
        ({"sources/0/0": KAFKA}, True),
        ({"sources/0/0": b"v1\n1795237648218"}, False),
        ({}, False),
    ],
)
def test_the_start_of_batch_0_is_known_only_if_the_source_tells_it(
    reader: Reader,
    tmp_path: Path,
    sources: dict[str, str | bytes],
    known: bool,  # noqa: FBT001
) -> None:
    files = reader(fill(tmp_path, {"offsets/0": _offsets('{"t":{"0":9}}'), **sources}))
    assert (_batch(files, 0).start is not None) == known


def test_the_start_of_batch_0_is_known_only_if_every_source_tells_it(reader: Reader, tmp_path: Path) -> None:
    lines = ('{"t":{"0":9}}', '{"logOffset":0}')
    content: dict[str, str | bytes] = {"offsets/0": _offsets(*lines), "sources/0/0": KAFKA, "sources/1/0": _log(0)}
    assert _batch(reader(fill(tmp_path, content)), 0).start is None


def test_a_kafka_stream_on_a_new_checkpoint_starts_where_the_old_one_ended(reader: Reader, tmp_path: Path) -> None:
    old = reader(fill(tmp_path / "old", {"offsets/0": _offsets('{"t":{"0":5}}'), "sources/0/0": KAFKA}))
    new = reader(fill(tmp_path / "new", {"offsets/0": _offsets('{"t":{"0":9}}'), "sources/0/0": KAFKA}))
    assert _batch(new, 0).start == _batch(old, 0).end


def test_offsets_of_the_batch_before_may_come_from_memory(reader: Reader, tmp_path: Path) -> None:
    content = {f"offsets/{n}": _offsets(f'{{"t":{{"0":{n}}}}}') for n in (3, 4)}
    checkpoint = Checkpoint(reader(fill(tmp_path, content)))
    read = checkpoint.batch("q", 4, checkpoint.offsets(4))
    (tmp_path / "offsets" / "3").unlink()
    assert checkpoint.batch("q", 4, checkpoint.offsets(4), Offsets({"0": {"t": {"0": 3}}})) == read


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ({"sources/0/7": _log(7)}, [7]),
        ({"sources/0/7.compact": _log(*range(8))}, [7]),
        ({"sources/0/9.compact": _log(*range(10))}, [7]),
        ({"sources/0/9.compact": _log(*range(10)), "sources/0/19.compact": _log(*range(20))}, [7]),
    ],
)
def test_files_of_a_batch_are_found_wherever_spark_keeps_their_entries(
    reader: Reader, tmp_path: Path, log: dict[str, str | bytes], expected: list[int]
) -> None:
    content = {"offsets/2": _offsets('{"logOffset":6}'), "offsets/3": _offsets('{"logOffset":7}')}
    usual = _batch(reader(fill(tmp_path / "usual", {**content, "sources/0/7": _log(*expected)})), 3)
    assert _batch(reader(fill(tmp_path / "other", {**content, **log})), 3) == usual


def test_a_batch_over_several_entries_has_all_their_files(reader: Reader, tmp_path: Path) -> None:
    content = {"offsets/2": _offsets('{"logOffset":6}'), "offsets/3": _offsets('{"logOffset":11}')}
    apart = {f"sources/0/{n}": _log(n) for n in range(7, 12) if n != 9} | {"sources/0/9.compact": _log(*range(10))}
    alone = {f"sources/0/{n}": _log(n) for n in range(7, 12)}
    batches = [
        _batch(reader(fill(tmp_path / name, {**content, **log})), 3)
        for name, log in {"apart": apart, "alone": alone, "less": alone | {"sources/0/8": _log()}}.items()
    ]
    assert batches[0] == batches[1]
    assert batches[1].fingerprint != batches[2].fingerprint


def test_a_source_that_did_not_move_has_no_files_in_the_batch(reader: Reader, tmp_path: Path) -> None:
    content = {
        "offsets/2": _offsets("-", '{"logOffset":6}'),
        "offsets/3": _offsets('{"logOffset":0}', '{"logOffset":6}'),
    }
    assert _batch(reader(fill(tmp_path, {**content, "sources/0/0": _log(0)})), 3).batch_id == 3


def test_a_source_read_twice_has_one_folder(reader: Reader, tmp_path: Path) -> None:
    lines = ('{"logOffset":0}', '{"logOffset":0}', '{"logOffset":1}')
    content = {"offsets/0": _offsets(*lines), "sources/0/0": _log(0), "sources/1/0": _log(0), "sources/1/1": _log(1)}
    files = reader(fill(tmp_path, content))
    assert _batch(files, 0, source_folders(["a", "a", "b"])).batch_id == 0
    with pytest.raises(QueryError):
        _batch(files, 0)


@pytest.mark.parametrize(
    ("missing", "code"),
    [
        ("offsets/3", "LAKESINK_CHECKPOINT_UNREADABLE"),
        ("offsets/2", "LAKESINK_CHECKPOINT_UNREADABLE"),
        ("sources/0/7", "LAKESINK_CHECKPOINT_UNREADABLE"),
        ("metadata", "LAKESINK_CHECKPOINT_UNREADABLE"),
    ],
)
def test_a_missing_part_of_the_checkpoint_is_an_error_that_names_it(
    reader: Reader, tmp_path: Path, missing: str, code: str
) -> None:
    content: dict[str, str | bytes] = {
        "offsets/2": _offsets('{"logOffset":6}'),
        "offsets/3": _offsets('{"logOffset":7}'),
        "sources/0/7": _log(7),
        "metadata": '{"id":"q"}',
    }
    del content[missing]
    checkpoint = Checkpoint(reader(fill(tmp_path, content)))
    with pytest.raises(QueryError) as caught:
        checkpoint.batch(checkpoint.query_id(), 3, checkpoint.offsets(3))
    assert caught.value.code == code


def test_a_checkpoint_whose_number_of_sources_changed_is_refused(reader: Reader, tmp_path: Path) -> None:
    content = {"offsets/2": _offsets("1", "2"), "offsets/3": _offsets("1")}
    with pytest.raises(QueryError, match="1 source, the batch before 2"):
        _batch(reader(fill(tmp_path, content)), 3)


def test_a_long_compacted_log_is_read_from_its_end(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "TAIL_BYTES", 100)
    content = {"offsets/98": _offsets('{"logOffset":98}'), "offsets/99": _offsets('{"logOffset":99}')}
    short = {**content, "sources/0/99": _log(99)}
    long = {**content, "sources/0/99.compact": "v1\nnot read" + _log(*range(100)).removeprefix("v1")}
    assert _batch(reader(fill(tmp_path / "long", long)), 99) == _batch(reader(fill(tmp_path / "short", short)), 99)
