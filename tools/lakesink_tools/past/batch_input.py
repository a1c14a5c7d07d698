"""What batches of one query read together, from the summaries of their snapshots, or from the query's checkpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from pyiceberg.table import Table

from lakesink.checkpoint.folder import BatchInput, Checkpoint
from lakesink.checkpoint.offsets import Ends, source_log_paths
from lakesink_catalog.read.earlier import past_under
from lakesink_catalog.read.past import PastCommit
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.ledger import Mark
from lakesink_tools.past.source_ranges import (
    SourceRange,
    has_files,
    is_whole_input,
    joined,
    offsets_in,
    read_between,
    zeros,
)


class Known(Enum):
    """How sure it is what a batch read, the surest first; the value is for people."""

    PROVEN = "fingerprint"
    SAME_BATCH = "batch id"
    LETTERS = "its letters"
    OFFSETS = "offsets of the batch before"
    END_ONLY = "its end only"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class RunInput:
    """What batches read that follow each other.

    Attributes:
        ranges: Of each source, in the order of the batches; ranges that meet are one.
        known: Of the batch of which least is known.
        why: What is missing, and what would help.
    """

    ranges: Sequence[SourceRange]
    known: Known
    why: Sequence[str] = ()


def input_of(table: Table, name: str, run: Sequence[PastCommit], checkpoints: Mapping[str, Checkpoint]) -> RunInput:
    """What a run of batches of one query read, from the beginning of the first to the end of the last.

    Args:
        table: The table that has them.
        name: Its identifier.
        run: The batches, oldest first.
        checkpoints: By query id.
    """
    marks = [batch.known_mark for batch in run]
    checkpoint = checkpoints.get(marks[0].query_id)
    before = _batch_before(table, name, run[0])
    found = [_input_of(name, mark, previous, checkpoint) for previous, mark in pairwise([before, *marks]) if mark]
    known = max((one.known for one in found), key=list(Known).index)
    ranges = joined(one for of in found for one in of.ranges)
    return RunInput(ranges, known, [why for one in found for why in one.why])


def _batch_before(table: Table, name: str, batch: PastCommit) -> Mark | None:
    """The batch of the same query in front of a batch, also if only earlier metadata still has it."""
    mark = batch.known_mark
    wanted = mark.key, mark.query_id, mark.batch_id - 1
    if mark.batch_id == 0:
        return None

    def is_before(one: PastCommit) -> bool:
        return one.mark is not None and (one.mark.key, one.mark.query_id, one.mark.batch_id) == wanted

    oldest = past_under(table, name, batch.snapshot_id, is_before).commits[0]
    return oldest.mark if is_before(oldest) else None


def _input_of(name: str, mark: Mark, before: Mark | None, checkpoint: Checkpoint | None) -> RunInput:
    this = f"{mark.batch_id} of {mark.key.name} in {name}"
    kept = None if checkpoint is None else _in_checkpoint(checkpoint, mark)
    if kept is not None:
        paths = {source: source_log_paths(lines) for source, lines in kept.source_logs.items()}
        return _between(this, Known.PROVEN, kept.start, kept.end, paths)
    end = offsets_in(mark)
    if end is None:
        return RunInput((), Known.UNKNOWN, [f"Batch {this} says nothing of its offsets. {_GIVE}"])
    starts = [offsets_in(before)] if before is not None else [None, zeros(end)] if mark.batch_id == 0 else []
    for start in starts:
        if is_whole_input(mark, start, end):
            return _between(this, Known.PROVEN, start, end, {})
    return _unproven(this, mark, starts[0] if starts else None, end)


def _unproven(this: str, mark: Mark, start: Ends | None, end: Ends) -> RunInput:
    """A batch whose fingerprint is not that of its offsets alone."""
    if has_files(end) and (start is not None or mark.batch_id == 0):
        found = _between(this, Known.OFFSETS, start, end, {})
        why = f"The files of batch {this} are in the query's checkpoint only. {_GIVE}"
        return RunInput(found.ranges, Known.END_ONLY if found.why else Known.OFFSETS, [why, *found.why])
    if start is None:
        why = f"Where batch {this} began is not in the table. {_GIVE}"
    else:
        why = (
            f"Batch {this} did not begin where the batch before it ended, by its fingerprint: an operator accepted it,"
            f" or a summary was changed. {_GIVE}"
        )
    return RunInput(read_between(None, end, {})[0], Known.END_ONLY, [why])


def _between(this: str, known: Known, start: Ends | None, end: Ends, paths: Mapping[str, Sequence[str]]) -> RunInput:
    ranges, left_open = read_between(start, end, paths)
    return RunInput(ranges, known, [f"Batch {this}: {reason}." for reason in left_open])


def _in_checkpoint(checkpoint: Checkpoint, mark: Mark) -> BatchInput | None:
    """None if Spark does not keep it any more, or if it is another batch."""
    try:
        found = checkpoint.input_of(mark.batch_id)
    except LakesinkError:
        return None
    return found if found.batch.fingerprint == mark.fingerprint else None


_GIVE = "--checkpoint, with the checkpoint of its query, may tell."
