"""Findings of an audit with their stable codes, notes, and the words of both. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from lakesink_catalog.read.history import SinkState
from lakesink_catalog.words import changed, counted
from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.measures import DEAD_LETTERS, TOLD
from lakesink_protocol.quality import REPLAY
from lakesink_protocol.row_changes import ChangeCounts

SHOWN = 3


class Code(Enum):
    """One kind of finding; the name is the stable code.

    Attributes:
        means: What it means for readers of the table.
        action: What to do.
    """

    BATCH_TWICE = (
        "One batch was committed twice on one branch: its rows are in the table twice.",
        "Compare the two snapshots (lakesink log) and remove the rows of one. If no operator accepted it, report it.",
    )
    BATCH_GAP = (
        "Batches are missing between two batches on the branch.",
        "Find the commits around them with lakesink log. If rows are missing, replay them from the source.",
    )
    BATCH_ORDER = (
        "The batches on the branch are in an order in which no stream commits.",
        "Find the commits with lakesink log; two checkpoints may have used one sink id.",
    )
    BATCH_ACCEPTED = (
        "An operator accepted a refused batch: rows may be doubled or missing, as the refusal stated.",
        "Compare the rows with the text of the refusal (docs: guarantees). The finding stays until its expiry.",
    )
    LEDGER_LOST = (
        "The branch has batches of the sink, but its ledger entry was removed.",
        "Stop the stream, run lakesink restore, and start it again.",
    )
    LEDGER_DAMAGED = (
        "The ledger entry is unreadable, newer than this lakesink, or contradicts the sink's own snapshots.",
        "Compare the table property with the summary of the newest snapshot, or update lakesink.",
    )
    ROLLED_BACK = (
        "The ledger's batch is not in the branch: the branch was rolled back, and its batches are not in the table.",
        (
            "Stop the stream, run lakesink rewind with the newest batch that is in the table, and start it again."
            " A batch job appends its versions again."
        ),
    )
    TABLE_REPLACED = (
        "The ledger was written for another table: this table is a clone, or was recreated under the name.",
        "If this is intended, stream into it with a new checkpoint and a new sink id.",
    )
    BRANCH_MISSING = (
        "The branch that the sink writes to does not exist.",
        "Create it again, or remove the sink (lakesink forget).",
    )
    UNSUPPORTED = (
        "lakesink cannot write this table: its format version is not 2.",
        "Stream into a table of format version 2.",
    )
    TAG_ELSEWHERE = (
        "A tag of lakesink points at another batch than its name states: readers of the tag see that batch.",
        "Find out who moved it, and remove it. The next batch sets the ledger tag again, unless ledger_tag=False.",
    )
    CLOCK_AHEAD = (
        "The table's last change has a time in the future: Iceberg's Java writers (Spark, Trino, Flink) refuse it.",
        "Correct the clock of the last writer. All engines can write the table again after that time.",
    )
    FILE_TWICE = (
        "A snapshot references one data file more than once: readers see its rows more than once.",
        "Find out who added it the second time, and remove one reference (delete or rewrite the rows of that file).",
    )
    FILE_ADDED_TWICE = (
        "Two batches added the same data file, although lakesink's file names are unique.",
        "Report it: lakesink never does this. Another writer may have written one of the two snapshots.",
    )
    FILE_MISSING = (
        "A data file that a snapshot references is missing: reads of that snapshot fail or lose its rows.",
        "Restore it from a backup of the storage; else replay its batch. An orphan cleanup may have removed it.",
    )
    FILE_SIZE = (
        "A data file has another size than its manifest states: it was truncated or replaced.",
        "Restore it from a backup of the storage; else replay its batch.",
    )
    FILE_ROWS = (
        "A data file's footer counts other rows than its manifest states.",
        "Restore it from a backup of the storage; else replay its batch.",
    )
    FILE_DAMAGED = (
        "A data file of the stated size is not a readable Parquet file.",
        "Restore it from a backup of the storage; else replay its batch.",
    )
    MANIFEST_UNREADABLE = (
        "A manifest or manifest list of a retained snapshot is missing or damaged: that snapshot cannot be read.",
        "Restore it from a backup of the storage; else roll back to a snapshot that can be read.",
    )
    MANIFEST_DISAGREES = (
        "A manifest holds other files or rows than the manifest list states: engines that use the list are wrong.",
        "Rewrite all files (Spark: rewrite_data_files with rewrite-all), and report it if lakesink wrote them.",
    )
    SUMMARY_DISAGREES = (
        "The summary of a batch's snapshot states other rows, files or bytes than its manifests hold.",
        "Trust the manifests. The summary was changed or is a defect: report it.",
    )
    TOTALS_DISAGREE = (
        "The totals in the summary of a branch's head differ from its files.",
        "Trust the files. Engines that answer count(*) from totals return wrong counts until a rewrite corrects them.",
    )
    CHANGES_DISAGREE = (
        "A batch's changes by key contradict its snapshot: rows may be missing, or be there twice.",
        "Run lakesink audit --keys. If keys have several rows, send them again: a change of a key removes all but one.",
    )
    KEY_REPEATED = (
        "A key has more than one live row: readers see several versions of it.",
        "Find who inserted them (lakesink log), and send each such key again: a change removes all but one.",
    )
    KEY_NULL = (
        "Rows have NULL in a column of the key: no change can address them.",
        "Delete these rows, or give them a key.",
    )
    DEAD_LETTERS_DIFFER = (
        "A batch and its dead letters are not both there: rows are in neither table, or letters are of no batch.",
        "If letters are missing, restore their table or roll it forward. Letters of no batch are never replayed.",
    )
    CHANGELOG_DIFFERS = (
        "A batch and its changes are not both there: streams that read the changelog miss changes, or have too many.",
        "Restore the changelog, or roll it forward or back; else let its readers start from the table.",
    )
    REPLAYS_DIFFER = (
        "The rows of a replay are not those of the dead letters assigned to it, or their table lacks these letters.",
        "Restore the table of replays, or roll it forward or back as the table was.",
    )
    CHECKPOINT_AHEAD = (
        "Spark completed batches that the table does not have: their rows are missing.",
        "Stop the stream, run lakesink rewind with the newest batch that is in the table, and start it again.",
    )
    CHECKPOINT_OFFSETS = (
        "A batch ended at other offsets in the table than in the checkpoint: they are different batches.",
        "Give the checkpoint that belongs to the table. This one was copied or edited, or belongs to another query.",
    )
    CHECKPOINT_UNKNOWN = (
        "The checkpoint's query completed batches, but the table shows no batch of that query.",
        "Give the checkpoint that belongs to the table. If its snapshots expired, nothing can be proved.",
    )

    def __init__(self, means: str, action: str) -> None:
        self.means = means
        self.action = action


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation."""

    code: Code
    subject: str  # sink and branch, or another subject; empty for the table
    found: str  # one sentence
    items: tuple[str, ...] = ()  # all paths, snapshots or batches that it is about
    accepted: bool = False  # True if an operator accepted it by overruling a refusal


@dataclass(frozen=True, slots=True)
class Note:
    """Information that is no violation."""

    name: str  # stable kind, one or two words
    subject: str  # as in `Finding`
    found: str  # one sentence


def listed(items: Iterable[str]) -> str:
    """The first items, and the number of the others."""
    every = list(items)
    more = f" and {len(every) - SHOWN:,} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + more


def awaits_replay(state: SinkState) -> bool:
    """True if replays of dead letters were rolled back: no batch would be refused, and no stream has a part in it."""
    return state.trouble is Reason.ROLLED_BACK and state.sink.startswith(REPLAY)


def of_replay(table: str, state: SinkState) -> str:
    """What to do about it; `table` is the argument of the command, perhaps with a catalog."""
    branch = "" if state.branch == MAIN_BRANCH else f" --branch {state.branch}"
    return (
        f"The table was rolled back behind replay {state.batch_id} of dead letters. If they are still there, run the"
        f" replay again: lakesink dead-letters {table}{branch} --replay FIX.sql"
    )


def of_quality(state: SinkState) -> Iterator[str]:
    """A sentence about each measure of which something was found."""
    kept = max(state.rows, 0 if state.changes is None else state.changes.changes)  # also changes without effect
    rows, read = (counted(rows, "row") for rows in (kept, kept + state.counts[DEAD_LETTERS]))
    for one in TOLD:
        if count := state.counts[one]:
            yield one.said.format(count=f"{count:,}", values=counted(count, "value"), rows=rows, read=read)


def name_of_rows(changes: Iterable[ChangeCounts | None]) -> str:
    """The heading of the rows that sinks wrote: these are not the table's if rows were replaced or deleted."""
    return "rows" if all(counts is None for counts in changes) else "written"


def of_changes(state: SinkState) -> Iterator[str]:
    """A sentence about changes of rows by key, if there were any, and about rows that are replaced and not lost."""
    if state.changes is None:
        return
    removed = state.changes.rows_removed
    replaced = f" They replaced or removed {counted(removed, 'row')} of earlier snapshots: these are not lost."
    yield f"The changes by key: {changed(state.changes)}.{replaced if removed else ''}"


def told(said: Finding | Note) -> str:
    """A finding or note with its subject."""
    return f"{said.subject}: {said.found}" if said.subject else said.found


def broken(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that no operator accepted."""
    return [finding for finding in findings if not finding.accepted]


def verdict_on(findings: Sequence[Finding], unchecked: int = 0) -> str:
    """The findings in words; empty if there are none."""
    faults = len(broken(findings))
    accepted = len(findings) - faults
    if faults:
        return counted(faults, "finding") + (f", and {accepted:,} accepted" if accepted else "")
    if accepted:
        batches = sum(len(finding.items) for finding in findings if finding.code is Code.BATCH_ACCEPTED)
        rest = f"; {counted(unchecked, 'file')} could not be checked" if unchecked else ""
        return f"not clean: an operator accepted {counted(batches, 'batch')}, nothing else was found{rest}"
    return ""
