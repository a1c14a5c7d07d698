"""Proves for each batch that the rows that its table lacks are dead letters: rows read = rows here + letters there."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from lakesink.audit.branch_history import Step
from lakesink.audit.finding import Code, Finding, Note, listed, runs
from lakesink.words import counted
from lakesink.writer.letters import letters_key
from lakesink_catalog.read.history import RetainedBatch
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.quality import LETTERS_TABLE
from lakesink_protocol.redact import shown

LettersOf = Callable[[str], Sequence[RetainedBatch] | None]
"""Batches that a table's snapshots show, by its name; None if there is no such table."""


def of_letters(key: SinkKey, subject: str, steps: Iterable[Step], letters_of: LettersOf) -> Iterator[Finding | Note]:
    """Compare what the batches of a sink say about their dead letters with the tables that have them."""
    stated = defaultdict(list)
    for step in steps:
        if step.snapshot.dead_letters:
            stated[_table_of(step)].append(step)
    for table, with_letters in stated.items():
        found = letters_of(table)
        if found is None:
            batches = counted(len(with_letters), "batch")
            said = f"There is no table {shown(table, 60)}, which had the dead letters of {batches}."
            yield Finding(Code.DEAD_LETTERS_DIFFER, subject, said)
        else:
            yield from _compared(key, subject, with_letters, table, _by_batch(found))


def _compared(
    key: SinkKey, subject: str, steps: Sequence[Step], table: str, known: Mapping[tuple[str, int], RetainedBatch]
) -> Iterator[Finding | Note]:
    differing, expired = [], []
    for step in steps:
        there = known.get((letters_key(key, step.mark.query_id).name, step.mark.batch_id))
        if there is None:
            expired.append(step.mark.batch_id)
        elif not there.is_counted or there.rows != step.snapshot.dead_letters:
            differing.append(step.mark.batch_id)
    if differing:
        said = (
            f"Batches {listed(runs(sorted(differing)))} have other dead letters in {shown(table, 60)} than they state."
        )
        yield Finding(Code.DEAD_LETTERS_DIFFER, subject, said, tuple(map(str, differing)))
    if expired:
        batches = counted(len(expired), "batch")
        yield Note(
            "letters", subject, f"{shown(table, 60)} no longer shows the commit of the dead letters of {batches}."
        )


def _by_batch(batches: Iterable[RetainedBatch]) -> dict[tuple[str, int], RetainedBatch]:
    return {(batch.key.name, batch.batch_id): batch for batch in batches}


def _table_of(step: Step) -> str:
    summary = step.snapshot.snapshot.summary
    return str((summary[LETTERS_TABLE] if summary else None) or "")
