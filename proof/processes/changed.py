"""What a stream of changes by key left: the rows that its batches give, applied to a dictionary one after the other."""

from collections.abc import Iterable, Sequence

from lakesink_protocol.quality import REPLAY
from lakesink_protocol.row_changes import ChangeCounts, counts_in
from proof.changes import Fold
from proof.keyed_table import live_rows, several_deletes
from proof.oracle import Broken, Promise, Rows, rows_once
from proof.processes.harness import Stream
from proof.processes.told import judge_told


def judge_changes(stream: Stream, batches: Iterable[int], foreign: Rows) -> list[Broken]:
    """Everything that the oracle says of the rows of a stream of changes, and of what its snapshots count.

    Args:
        stream: The stream.
        batches: Batches that should be there.
        foreign: Rows of other keys, which others have inserted.
    """
    table = stream.load()
    if table is None:
        return [Broken(Promise.NO_ROW_IS_LOST, "there is no table")]
    ids = list(batches)
    fold, states = _folded(stream, ids)
    broken = rows_once(live_rows(table), fold.rows + foreign)
    if stream.content.has_features:
        broken += judge_told(stream, table, fold, ids)
    what = [f"{path} has several delete files" for path in several_deletes(table)]
    broken += [Broken(Promise.EVERY_FILE_KEEPS_ITS_DELETES, one) for one in what]
    for snapshot in table.metadata.snapshots:
        said = {} if snapshot.summary is None else snapshot.summary.additional_properties
        sink = said.get("lakesink.sink-id", "")
        is_replay = sink.startswith(REPLAY)
        if is_replay or sink == stream.sink_id:
            _, right = states[-1 if is_replay else int(said["lakesink.batch-id"])]
            if counts_in(said) != right:
                told = f"batch {said['lakesink.batch-id']} of {sink}: {counts_in(said)} is said of {right}"
                broken.append(Broken(Promise.CHANGES_ARE_COUNTED, told))
    return broken


def states_of(stream: Stream, batches: Iterable[int]) -> list[tuple[Rows, ChangeCounts]]:
    """The live rows after each batch, and what became of its changes; and so of a replay, if the stream is that."""
    return _folded(stream, batches)[1]


def reader_saw_states(looks: Sequence[Rows], states: Sequence[Rows]) -> list[Broken]:
    """What one reader saw, look after look, were the rows after some batch, and never those of an earlier one."""
    broken, least = [], 0
    for number, rows in enumerate(looks):
        found = [at for at, state in enumerate(states) if state == rows]
        if not found:
            broken.append(Broken(Promise.READERS_SEE_WHOLE_BATCHES, f"look {number} saw {rows.total()} rows"))
        elif found[-1] < least:
            broken.append(Broken(Promise.READERS_NEVER_GO_BACK, f"look {number} saw batch {found[-1]} after {least}"))
        else:
            least = max(least, found[0])
    return broken


def _folded(stream: Stream, batches: Iterable[int]) -> tuple[Fold, list[tuple[Rows, ChangeCounts]]]:
    content, source, ids = stream.content, stream.orders.source, list(batches)
    assert content.changing is not None
    applied = [content.changes_of(source.keys(batch)) for batch in ids]
    if stream.replays:
        letters = sorted(key for batch in ids for key in source.unfit(batch))
        applied.append([content.replayed(key) for key in letters])
    fold = Fold(content.changing.has_sequence)
    return fold, [(fold.rows, counts) for changes in applied for counts in [fold.apply(changes)]]
