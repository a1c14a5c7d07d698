"""Every batch that Spark calls done must be in the table, and be the same one: checkpoints beside real tables."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from lakesink_protocol.errors import QueryError
from lakesink_tools.audit.audit import Proof, audit
from lakesink_tools.audit.checkpoint import read_done
from testkit.builders import Lake, Stream
from testkit.maintenance import append_foreign, expire, remove_ref, roll_back
from tests.faults.test_cherry_picks import pick


def checkpoint(folder: Path, done: Iterable[int], query: str = "query-1", shift: int = 0) -> str:
    """As Spark writes it for a source whose batch n ends at offset n + 1."""
    (folder / "metadata").parent.mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": query}))
    for log in ("offsets", "commits"):
        (folder / log).mkdir(exist_ok=True)
    for batch_id in done:
        (folder / "offsets" / str(batch_id)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{batch_id + 1 + shift}')
        (folder / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        (folder / "commits" / f".{batch_id}.crc").write_bytes(b"crc")
    return str(folder)


def proved(lake: Lake, root: str) -> Proof:
    return audit(lake.table(), done=read_done(root))


def codes(proof: Proof) -> list[str]:
    return [finding.code.name for finding in proof.findings]


def note(proof: Proof) -> str:
    [found] = [note.found for note in proof.notes if note.name == "checkpoint"]
    return found


def test_batches_that_are_done_are_in_the_table(lake: Lake, stream: Stream, tmp_path: Path) -> None:
    assert stream.writes == 4
    proof = proved(lake, checkpoint(tmp_path / "c", range(4)))
    assert codes(proof) == []
    assert note(proof) == "Every batch that Spark completed is in the table, up to 3; 4 batches compared by offsets."


def test_a_batch_that_spark_does_not_know_as_done_is_no_finding(lake: Lake, stream: Stream, tmp_path: Path) -> None:
    assert stream.writes == 4
    assert codes(proved(lake, checkpoint(tmp_path / "c", range(3)))) == []


def test_done_batches_that_the_table_lacks_are_found(lake: Lake, stream: Stream, tmp_path: Path) -> None:
    assert stream.writes == 4
    [found] = proved(lake, checkpoint(tmp_path / "c", range(6))).findings
    assert (found.code.name, found.items) == ("CHECKPOINT_AHEAD", ("4", "5"))


def test_batches_that_were_rolled_back_are_not_in_the_table(lake: Lake, stream: Stream, tmp_path: Path) -> None:
    roll_back(lake, stream.snapshot_of(1))
    proof = proved(lake, checkpoint(tmp_path / "c", range(4)))
    assert codes(proof) == ["ROLLED_BACK", "CHECKPOINT_AHEAD"]
    assert proof.findings[1].items == ("2", "3")


@pytest.mark.parametrize(("kept", "done"), [(1, 2), (1, 1), (None, 0)])
def test_a_checkpoint_that_was_rewound_with_the_table_is_no_finding(
    lake: Lake, stream: Stream, tmp_path: Path, kept: int | None, done: int
) -> None:
    if kept is None:
        remove_ref(lake, "main")
    else:
        roll_back(lake, stream.snapshot_of(kept))
    proof = proved(lake, checkpoint(tmp_path / "c", range(done)))
    assert codes(proof) == []
    assert any("so was the given checkpoint" in one.found for one in proof.notes)


def test_batches_that_were_picked_back_are_in_the_table(lake: Lake, stream: Stream, tmp_path: Path) -> None:
    brought = [stream.snapshot_of(batch_id) for batch_id in (2, 3)]
    roll_back(lake, stream.snapshot_of(1))
    pick(lake, brought[0])
    pick(lake, brought[1])
    stream.run(4)
    proof = proved(lake, checkpoint(tmp_path / "c", range(5)))
    assert codes(proof) == []
    assert note(proof).endswith("up to 4; 5 batches compared by offsets.")


def test_a_batch_that_was_left_out_is_not_called_there(lake: Lake, stream: Stream, tmp_path: Path) -> None:
    newest = stream.snapshot_of(3)
    roll_back(lake, stream.snapshot_of(1))
    pick(lake, newest)
    stream.run(4)
    proof = proved(lake, checkpoint(tmp_path / "c", range(5)))
    assert codes(proof) == ["BATCH_GAP"]
    assert note(proof).startswith("Spark completed batches up to 4; the branch does not show 2; 4 batches")


def test_a_batch_of_other_offsets_is_another_batch(lake: Lake, stream: Stream, tmp_path: Path) -> None:
    assert stream.writes == 4
    [found] = proved(lake, checkpoint(tmp_path / "c", range(4), shift=1)).findings
    assert (found.code.name, found.items) == ("CHECKPOINT_OFFSETS", ("0", "1", "2", "3"))


def test_a_checkpoint_of_another_query_is_found(lake: Lake, stream: Stream, tmp_path: Path) -> None:
    assert stream.writes == 4
    assert codes(proved(lake, checkpoint(tmp_path / "c", [0], query="other"))) == ["CHECKPOINT_UNKNOWN"]
    proof = proved(lake, checkpoint(tmp_path / "empty", [], query="other"))
    assert (codes(proof), note(proof)) == ([], "Query other has not completed a batch yet: nothing to compare.")


def test_the_checkpoint_before_the_present_one_is_known_by_its_marks(
    lake: Lake, stream: Stream, tmp_path: Path
) -> None:
    second = Stream(lake, query="query-2")
    second.run(second.batch(0, start=4, end=5))
    assert stream.query == "query-1"
    assert codes(proved(lake, checkpoint(tmp_path / "c", range(4)))) == []
    assert codes(proved(lake, checkpoint(tmp_path / "d", range(5)))) == ["CHECKPOINT_AHEAD"]


def test_after_expiry_the_ledger_alone_proves_the_last_batch(lake: Lake, stream: Stream, tmp_path: Path) -> None:
    append_foreign(lake)
    remove_ref(lake, stream.key.ledger_tag)
    expire(lake)
    proof = proved(lake, checkpoint(tmp_path / "c", range(4)))
    assert codes(proof) == []
    assert note(proof).endswith("1 batch compared by offsets.")
    assert codes(proved(lake, checkpoint(tmp_path / "d", range(5)))) == ["CHECKPOINT_AHEAD"]


@pytest.mark.parametrize("root", ["nowhere", "nothing://nowhere"])
def test_what_is_no_checkpoint_is_an_error(lake: Lake, stream: Stream, tmp_path: Path, root: str) -> None:
    assert stream.writes == 4
    place = root if ":" in root else str(tmp_path / root)
    with pytest.raises(QueryError, match="LAKESINK_CHECKPOINT_UNREADABLE"):
        proved(lake, place)


def test_a_checkpoint_of_another_version_is_an_error(lake: Lake, stream: Stream, tmp_path: Path) -> None:
    assert stream.writes == 4
    root = checkpoint(tmp_path / "c", range(4))
    (tmp_path / "c" / "offsets" / "3").write_text("v9\n{}\n4")
    with pytest.raises(QueryError, match="LAKESINK_CHECKPOINT_VERSION"):
        proved(lake, root)
