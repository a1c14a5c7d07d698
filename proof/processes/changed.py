"""What a stream of changes by key left: the rows that its batches give, applied to a dictionary one after the other."""

from collections import Counter
from collections.abc import Iterable, Sequence

from lakesink_protocol.row_changes import ChangeCounts, counts_in
from proof.changes import Changing, Fold, RowChange
from proof.keyed_table import live_rows, several_deletes
from proof.oracle import Broken, Promise, Rows, rows_once
from proof.processes.harness import Stream


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
    states = states_of(stream, batches)
    broken = rows_once(live_rows(table), (states[-1][0] if states else Counter()) + foreign)
    what = [f"{path} has several delete files" for path in several_deletes(table)]
    broken += [Broken(Promise.EVERY_FILE_KEEPS_ITS_DELETES, one) for one in what]
    for snapshot in stream.facts().snapshots.values():
        summary = getattr(table.snapshot_by_id(snapshot.snapshot_id), "summary", None)
        stated = counts_in({} if summary is None else summary.additional_properties)
        if snapshot.batch_id is not None and stated != states[snapshot.batch_id][1]:
            said = f"batch {snapshot.batch_id}: {stated} is said of {states[snapshot.batch_id][1]}"
            broken.append(Broken(Promise.CHANGES_ARE_COUNTED, said))
    return broken


def states_of(stream: Stream, batches: Iterable[int]) -> list[tuple[Rows, ChangeCounts]]:
    """The live rows after each batch, and what became of its changes."""
    changing = stream.content.changing
    assert changing is not None
    fold = Fold(changing.has_sequence)
    return [(fold.rows, counts) for batch in batches for counts in [fold.apply(_changes(stream, changing, batch))]]


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


def _changes(stream: Stream, changing: Changing, batch: int) -> list[RowChange]:
    return [change for row in stream.orders.source.keys(batch) for change in changing.of(row)]
