"""The choices that a refusal offers, and the effect of each on the rows. Pure.

A choice that cannot be right is not offered and has no effect. No choice adds rows again that are in the table, or
causes a later batch to be committed twice.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.ledger import Mark
from lakesink_protocol.situation import Situation

LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to overrule a refusal: ``commit`` or ``skip``, and its effect on the rows as a clause."""

    adds_rows: bool
    does: str


Choices = tuple[Choice, ...]


def choices(reason: Reason, s: Situation) -> Choices:
    """The choices of an operator; empty if none can be right."""
    of_reason = _CHOICES.get(reason)
    if of_reason is None:
        return ()
    if reason is Reason.UNKNOWN_HISTORY and s.iceberg_sink_epochs:
        return _skip("begins the ledger after it")  # the same as `lakesink adopt`
    if reason is not Reason.REWOUND and s.later_landed is not None:
        return ()
    if s.landed is not None:
        return _skip(f"adds no row and counts batch {_n(s)} as committed: {what_landed(s)}")
    return of_reason(s)


def what_landed(s: Situation) -> str:
    """The snapshot that has this batch, for messages."""
    assert s.landed is not None
    mark, snapshot_id = s.landed
    by = "" if mark.key == s.key else f", written by sink {mark.key.name!r} into {mark.key.branch[:LONGEST_NAME]!r}"
    if not mark.adds_rows:
        return f"an operator skipped it before, in snapshot {snapshot_id}{by}"
    return f"its rows are in snapshot {snapshot_id}{by}"


_OF_A_READER = ("lakesink", "uuid", "sink", "branch")
"""Names in an offset of a query that reads a table's batches; of another table, branch or sink they differ."""


def reads_files(s: Situation) -> bool:
    """True if the batch reads only file sources, which cannot start anywhere but at the beginning."""
    ends = _ends(s.batch.offsets)
    return bool(ends) and all(end.keys() == {"logOffset"} for end in ends)


def goes_on_at(s: Situation) -> int | None:
    """The batch with which a reader of a table's batches would go on; None for other sources, or another table."""
    was, now = _ends(s.entry.offsets if s.entry else ""), _ends(s.batch.offsets)
    if len(was) != 1 or len(now) != 1 or any(was[0].get(name) != now[0].get(name) for name in _OF_A_READER):
        return None
    batch_id = was[0].get("batch")
    return batch_id + was[0].get("read", True) if type(batch_id) is int and "lakesink" in was[0] else None


def _ends(offsets: str) -> list[dict[str, Any]]:
    """Where a batch ends in each of its sources; none if that cannot be told."""
    try:
        ends = json.loads(offsets or "[]")
    except ValueError:
        return []
    values = list(ends.values() if isinstance(ends, dict) else ends)
    return values if all(isinstance(end, dict) for end in values) else []


def _skip(does: str) -> Choices:
    return (Choice(adds_rows=False, does=does),)


def _both(commit: str, skip: str) -> Choices:
    """To commit and to skip, with the effect of each."""
    return (Choice(adds_rows=True, does=commit), *_skip(skip))


def _n(s: Situation) -> int:
    return s.batch.batch_id


def _leaves_out(s: Situation) -> str:
    return f"leaves the rows of batch {_n(s)} out permanently"


def _leaves_out_and_repeats(s: Situation) -> str:
    """For a batch that does not follow the newest committed one: later batches continue from this batch's end."""
    return (
        f"leaves the rows of batch {_n(s)} out; later batches continue from its end: written rows after it come twice"
    )


def _misaligned(s: Situation, before: int) -> Choices:
    n = _n(s)
    doubled = f"adds batch {n}: rows between the end of batch {before} and its start come twice or are lost"
    return _both(doubled, _leaves_out_and_repeats(s))


def _follows(s: Situation, mark: Mark | None) -> bool:
    if s.key.kind is SinkKind.TXN:
        return mark is not None and _n(s) > mark.batch_id
    return s.follows(mark)


def _span(first: int, last: int) -> str:
    return f"batch {first}" if first == last else f"batches {first} to {last}"


def _other_data(s: Situation, *, moves_ledger: bool = True) -> Choices:
    n = _n(s)
    then = " and the next batch continues from the end of the new one: rows between both ends come twice or are lost"
    return _both(
        f"adds the whole new batch {n}: rows that are also in the committed batch {n} come twice",
        f"keeps the committed batch {n},{then}"
        if moves_ledger
        else f"keeps the committed batch {n}: rows that only the new one has are lost",
    )


def _after_lost_ledger(s: Situation) -> Choices:
    newest = s.newest_mark
    if newest is None or not _follows(s, newest):
        return ()
    return _both(f"adds batch {_n(s)} right after batch {newest.batch_id}, the newest one", _leaves_out(s))


def _after_unknown_history(s: Situation) -> Choices:
    before, n = s.newest_of_stream, _n(s)
    if s.key.kind is SinkKind.TXN:
        return _while_expiry_hides_the_version(s)
    if before is None:
        doubled = f"adds batch {n} {_with_earlier(s)}; rows that are already written come twice"
        return _both(doubled, _leaves_out_and_repeats(s))
    if _follows(s, before):
        return _both(f"adds batch {n} right after batch {before.batch_id} of the same query", _leaves_out(s))
    if before.batch_id == n:
        return _other_data(s)
    if n == before.batch_id + 1:
        return _misaligned(s, before.batch_id)
    missing = _span(before.batch_id + 1, n - 1)
    return _both(f"adds batch {n} and leaves {missing} out permanently", _leaves_out(s))


def _with_earlier(s: Situation) -> str:
    if not _n(s):
        return "in addition to rows that the sink wrote elsewhere"
    before = _span(0, _n(s) - 1)
    return (
        f"without the rows of {before}, which are not written"
        if s.shows_the_batch_before
        else f"after {before} (expiry hides whether those rows are written)"
    )


def _while_expiry_hides_the_version(s: Situation) -> Choices:
    n = _n(s)
    then = "and higher versions are then appended without this check"
    return _both(
        f"adds version {n}: its rows come twice if they are already written, {then}",
        f"adds no row and counts version {n} as committed: correct if its rows are already written, {then}",
    )


def _after_rollback(s: Situation) -> Choices:
    newest, n = s.newest_mark or s.newest_of_stream, _n(s)
    if s.key.kind is SinkKind.TXN:
        lower = "every lower version that was rolled back and not appended again"
        return _both(
            f"adds version {n} and leaves {lower} out permanently",
            f"leaves the rows of version {n} and of {lower} out permanently",
        )
    if newest is None:
        return _both(
            f"adds batch {n}: correct if the rows of every earlier batch are written, and none of batch {n}",
            f"adds no row and counts batch {n} as committed: correct if its rows are already written",
        )
    if _follows(s, newest):
        return _both(f"adds batch {n} right after batch {newest.batch_id}, the newest one", _leaves_out(s))
    return _out_of_order(s, newest)


def _out_of_order(s: Situation, newest: Mark) -> Choices:
    """For a batch that does not follow the newest batch left after a rollback."""
    n = _n(s)
    if newest.query_id != s.batch.query_id:
        doubled = f"adds batch {n} of another checkpoint: rows that both read come twice, rows between both are lost"
        return _both(doubled, _leaves_out_and_repeats(s))
    if n <= newest.batch_id:
        return _other_data(s)
    if n == newest.batch_id + 1:
        return _misaligned(s, newest.batch_id)
    lost = _span(newest.batch_id + 1, n - 1)
    return _both(f"adds batch {n} and leaves {lost} out, as far as the rollback removed them", _leaves_out(s))


def _after_new_checkpoint(s: Situation) -> Choices:
    n = _n(s)
    if reads_files(s):
        return _both(
            f"adds every row of the files of batch {n}: rows of files that the sink has already read come twice",
            f"leaves out every file of batch {n}, also unread ones; in later batches rows of old files come twice",
        )
    twice = "rows that earlier batches read at the same offsets come twice, rows between are lost"
    first = goes_on_at(s)
    if first is not None:
        twice = f"correct if its query began with starting-batch={first}; otherwise {twice}"
    return _both(f"adds batch {n}: {twice}", _leaves_out_and_repeats(s))


def _after_changed_batch(s: Situation) -> Choices:
    assert s.entry is not None
    n, last = _n(s), s.entry.batch_id
    return _other_data(s) if n == last else _misaligned(s, last)


def _after_rewind(s: Situation) -> Choices:
    n = _n(s)
    if s.marked_with_other_data:
        return _other_data(s, moves_ledger=False)
    if s.shows_the_batch_before:
        return _both(f"adds batch {n}, which was never committed here", _leaves_out(s))
    return _both(
        f"adds batch {n}: its rows come twice unless they were deleted, and expiry hides if it was committed",
        f"adds no row: correct if the rows of batch {n} are already written",
    )


def _without_inputs(s: Situation) -> Choices:
    n, files = _n(s), len(s.batch.missing_inputs)
    if not files:
        return ()
    missing = "1 missing file" if files == 1 else f"{files} missing files"
    final = "and this is final: Spark does not read a file again"
    return _both(f"adds batch {n} without the rows of {missing}, {final}", _leaves_out(s))


def _after_gap(s: Situation) -> Choices:
    assert s.entry is not None
    n = _n(s)
    missing = _span(s.entry.batch_id + 1, n - 1)
    return _both(
        f"adds batch {n} and leaves {missing} out permanently",
        f"leaves {missing} and batch {n} out permanently",
    )


_CHOICES: Mapping[Reason, Callable[[Situation], Choices]] = {
    Reason.LEDGER_LOST: _after_lost_ledger,
    Reason.UNKNOWN_HISTORY: _after_unknown_history,
    Reason.ROLLED_BACK: _after_rollback,
    Reason.NEW_CHECKPOINT: _after_new_checkpoint,
    Reason.BATCH_CHANGED: _after_changed_batch,
    Reason.REWOUND: _after_rewind,
    Reason.GAP: _after_gap,
    Reason.INPUT_MISSING: _without_inputs,
}
