"""What batches of one query read together, from the summaries of their snapshots, or from the query's checkpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from pyiceberg.table import Table

from lakesink.audit.source_ranges import Offsets, has_files, is_whole_input, offsets_in, zeros
from lakesink.checkpoint.folder import BatchInput, Checkpoint
from lakesink.read.past import past_under
from lakesink.read.steps import Step
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.ledger import Mark


class Known(Enum):
    """How sure it is what a batch read, the surest first; the value is for people."""

    PROVEN = "fingerprint"
    OFFSETS = "offsets of the batch before"
    END_ONLY = "its end only"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class RunInput:
    """What batches read that follow each other.

    Attributes:
        start: Offsets at the beginning of the first; None if they are unknown.
        end: Offsets at the end of the last; None if nothing is known.
        paths: Input files, as far as a checkpoint lists them.
        why: What is missing, and what would help; empty if nothing is.
    """

    start: Offsets | None
    end: Offsets | None
    known: Known
    paths: tuple[str, ...] = ()
    why: str = ""


def input_of(table: Table, name: str, run: Sequence[Step], checkpoints: Mapping[str, Checkpoint]) -> RunInput:
    """What a run of batches of one query read, from the beginning of the first to the end of the last.

    Args:
        table: The table that has them.
        name: Its identifier.
        run: The batches, oldest first.
        checkpoints: By query id.
    """
    marks = [step.mark for step in run if step.mark is not None]
    checkpoint = checkpoints.get(marks[0].query_id)
    before = _batch_before(table, name, run[0])
    found = [_input_of(name, mark, previous, checkpoint) for previous, mark in pairwise([before, *marks]) if mark]
    order = list(Known)
    weakest = max(found, key=lambda one: order.index(one.known))
    paths = tuple(dict.fromkeys(path for one in found for path in one.paths))
    return RunInput(found[0].start, found[-1].end, weakest.known, paths, weakest.why)


def _batch_before(table: Table, name: str, step: Step) -> Mark | None:
    """The batch of the same query in front of a batch, also if only earlier metadata still has it."""
    mark = step.mark
    if mark is None or mark.batch_id == 0:
        return None

    def is_before(one: Step) -> bool:
        found = one.mark
        return found is not None and (found.key, found.query_id, found.batch_id) == (
            mark.key,
            mark.query_id,
            mark.batch_id - 1,
        )

    oldest = past_under(table, name, step.snapshot_id, is_before).steps[0]
    return oldest.mark if is_before(oldest) else None


def _input_of(name: str, mark: Mark, before: Mark | None, checkpoint: Checkpoint | None) -> RunInput:
    kept = None if checkpoint is None else _in_checkpoint(checkpoint, mark)
    if kept is not None:
        return RunInput(kept.start, kept.end, Known.PROVEN, tuple(kept.paths), _start_missing(name, mark, kept.start))
    end = offsets_in(mark)
    if end is None:
        return RunInput(None, None, Known.UNKNOWN, why=f"{_this(name, mark)} says nothing of its offsets. {_GIVE}")
    starts = [offsets_in(before)] if before is not None else [None, zeros(end)] if mark.batch_id == 0 else []
    for start in starts:
        if is_whole_input(mark, start, end):
            return RunInput(start, end, Known.PROVEN, why=_start_missing(name, mark, start))
    return _unproven(name, mark, starts[0] if starts else None, end)


def _unproven(name: str, mark: Mark, start: Offsets | None, end: Offsets) -> RunInput:
    if start is None:
        why = f"Where {_this(name, mark, small=True)} began is not in the table. {_GIVE}"
        return RunInput(None, end, Known.END_ONLY, why=why)
    if has_files(end):
        why = f"The files of {_this(name, mark, small=True)} are in the query's checkpoint only. {_GIVE}"
        return RunInput(start, end, Known.OFFSETS, why=why)
    why = (
        f"{_this(name, mark)} did not begin where the batch before it ended, by its fingerprint: an operator accepted"
        f" it, or a summary was changed. {_GIVE}"
    )
    return RunInput(None, end, Known.END_ONLY, why=why)


def _in_checkpoint(checkpoint: Checkpoint, mark: Mark) -> BatchInput | None:
    """None if Spark does not keep it any more, or if it is another batch."""
    try:
        found = checkpoint.input_of(mark.batch_id)
    except LakesinkError:
        return None
    return found if found.batch.fingerprint == mark.fingerprint else None


def _start_missing(name: str, mark: Mark, start: Offsets | None) -> str:
    if start is not None:
        return ""
    return (
        f"Where {mark.key.name} in {name} began is not recorded by its source: batch 0 read at most everything up to"
        " its end."
    )


def _this(name: str, mark: Mark, *, small: bool = False) -> str:
    return f"{'batch' if small else 'Batch'} {mark.batch_id} of {mark.key.name} in {name}"


_GIVE = "--checkpoint, with the checkpoint of its query, may tell."
