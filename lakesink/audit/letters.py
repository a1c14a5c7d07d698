"""Proves for each batch that the rows that its table lacks are dead letters: rows read = rows here + letters there.

And for each replay that the table got one row for each letter that was assigned to it, and for each batch of changes
that its changelog has each of them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from lakesink.audit.branch_history import Step
from lakesink.audit.finding import Code, Finding, Note, listed, runs
from lakesink.words import counted
from lakesink.writer.changelog import changelog_key
from lakesink.writer.letters import REPLAYS_TABLE, letters_key
from lakesink_catalog.read.history import RetainedBatch
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.quality import LETTERS_TABLE
from lakesink_protocol.redact import shown
from lakesink_protocol.row_changes import CHANGELOG_TABLE

LettersOf = Callable[[str], Sequence[RetainedBatch] | None]
"""Batches that a table's snapshots show, by its name; None if there is no such table."""


def of_letters(
    key: SinkKey, table_uuid: str, subject: str, steps: Iterable[Step], letters_of: LettersOf
) -> Iterator[Finding | Note]:
    """Compare what the batches of a sink say about their dead letters with the tables that have them."""
    for table, stated in _by_table(steps, LETTERS_TABLE).items():
        found = letters_of(table)
        if found is None:
            batches = counted(len(stated), "batch")
            said = f"There is no table {shown(table, 60)}, which had the dead letters of {batches}."
            yield Finding(Code.DEAD_LETTERS_DIFFER, subject, said)
            continue
        names = (letters_key(key, step.mark.query_id, table_uuid).name for step in stated)
        differing, expired = _compared(stated, names, found, [step.snapshot.dead_letters for step in stated])
        if differing:
            said = f"Batches {_listed(differing)} have other dead letters in {shown(table, 60)} than they state."
            yield Finding(Code.DEAD_LETTERS_DIFFER, subject, said, tuple(map(str, differing)))
        if expired:
            said = f"{shown(table, 60)} no longer shows the commit of the dead letters of {counted(expired, 'batch')}."
            yield Note("letters", subject, said)


def of_changelogs(
    key: SinkKey, table_uuid: str, subject: str, steps: Iterable[Step], changes_of: LettersOf
) -> Iterator[Finding | Note]:
    """Compare the changes that the batches of a sink count with the changelogs that have them."""
    for table, named in _by_table(steps, CHANGELOG_TABLE).items():
        counts = [(step, step.snapshot.changes.changes) for step in named if step.snapshot.changes is not None]
        stated = [(step, changes) for step, changes in counts if changes]
        found, batches = changes_of(table), counted(len(stated), "batch")
        if found is None:
            said = f"There is no table {shown(table, 60)}, the changelog of {batches}."
            yield Finding(Code.CHANGELOG_DIFFERS, subject, said)
            continue
        names = (changelog_key(key, step.mark.query_id, table_uuid).name for step, _ in stated)
        differing, expired = _compared([step for step, _ in stated], names, found, [changes for _, changes in stated])
        if differing:
            said = f"Batches {_listed(differing)} have other changes in {shown(table, 60)} than they state."
            yield Finding(Code.CHANGELOG_DIFFERS, subject, said, tuple(map(str, differing)))
        else:
            total = counted(sum(changes for _, changes in stated), "change")
            yield Note("changelog", subject, f"{shown(table, 60)} has the {total} of {batches}.")
        if expired:
            said = f"{shown(table, 60)} no longer shows the commit of the changes of {counted(expired, 'batch')}."
            yield Note("changelog", subject, said)


def of_replays(key: SinkKey, subject: str, steps: Iterable[Step], replays_of: LettersOf) -> Iterator[Finding | Note]:
    """Compare the rows of replays with the letters that were assigned to them."""
    for table, stated in _by_table(steps, REPLAYS_TABLE).items():
        found = replays_of(table)
        if found is None:
            said = f"There is no table {shown(table, 60)}, which assigned the letters of {_replays(len(stated))}."
            yield Finding(Code.REPLAYS_DIFFER, subject, said)
            continue
        rows = [step.snapshot.added_rows for step in stated]
        differing, expired = _compared(stated, [key.name] * len(stated), found, rows)
        if differing:
            said = f"Replays {_listed(differing)} added other rows than letters are assigned in {shown(table, 60)}."
            yield Finding(Code.REPLAYS_DIFFER, subject, said, tuple(map(str, differing)))
        if expired:
            yield Note("replays", subject, f"{shown(table, 60)} no longer shows the commit of {_replays(expired)}.")


def _by_table(steps: Iterable[Step], name: str) -> Mapping[str, list[Step]]:
    """The batches whose summaries name a table under this property, by that table."""
    found = defaultdict(list)
    for step in steps:
        summary = step.snapshot.snapshot.summary
        table = summary[name] if summary else None
        if table:
            found[str(table)].append(step)
    return found


def _compared(
    steps: Sequence[Step], names: Iterable[str], found: Iterable[RetainedBatch], rows: Sequence[int]
) -> tuple[list[int], int]:
    """Batches that have another number of rows in the other table, and how many its snapshots no longer show.

    `names` are the applications that wrote them there, and `rows` the numbers that must be there.
    """
    known = {(batch.key.name, batch.batch_id): batch for batch in found}
    there = [known.get((name, step.mark.batch_id)) for name, step in zip(names, steps, strict=True)]
    differing = [
        step.mark.batch_id
        for step, batch, wanted in zip(steps, there, rows, strict=True)
        if batch is not None and (not batch.is_counted or batch.rows != wanted)
    ]
    return sorted(differing), there.count(None)


def _listed(batches: Sequence[int]) -> str:
    return listed(runs(batches))


def _replays(count: int) -> str:
    return counted(count, "replay")
