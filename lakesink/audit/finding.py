"""Findings of an audit with their stable codes, notes, and the words of both. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from lakesink.words import counted
from lakesink_catalog.read.history import Record, SinkState
from lakesink_protocol.identity import SinkKey, SinkKind

SHOWN = 3


class Code(Enum):
    """One kind of finding; the name is the stable code.

    Attributes:
        means: What it means for readers of the table.
        action: What to do.
    """

    BATCH_TWICE = (
        "One batch was committed twice on one branch: its rows are there twice.",
        "Compare the two snapshots (lakesink log) and remove the rows of one. If no operator accepted it, report it.",
    )
    BATCH_GAP = (
        "Batches are missing between two that are on the branch.",
        "See lakesink log for who committed there. If rows are missing, replay them from the source.",
    )
    BATCH_ORDER = (
        "Batches are on the branch in an order in which no stream commits.",
        "See lakesink log for who committed there; two checkpoints may have written under one sink id.",
    )
    BATCH_ACCEPTED = (
        "An operator accepted a batch that was refused: rows may be there twice, or be missing, as the refusal said.",
        "Compare what the refusal of each word says (docs: guarantees) with the rows. It is reported until it expires.",
    )
    LEDGER_LOST = (
        "The branch has batches of the sink, but somebody removed its ledger entry.",
        "Stop the stream, run lakesink restore, and start it again.",
    )
    LEDGER_DAMAGED = (
        "The ledger entry is unreadable, newer than this lakesink, or contradicts the sink's own snapshots.",
        "Compare the table property with the summary of the newest snapshot, or update lakesink.",
    )
    ROLLED_BACK = (
        "The ledger's batch is not in the branch: the branch was rolled back, and its batches are not in the table.",
        "Stop the stream, run lakesink rewind with the newest batch that is in the table, and start it again.",
    )
    TABLE_REPLACED = (
        "The ledger was written for another table: this one is a clone, or was made anew under the name.",
        "If that was wanted, stream into it with a new checkpoint and sink id.",
    )
    BRANCH_MISSING = (
        "The branch that the sink writes to is not there any more.",
        "Create it again, or retire the sink.",
    )
    UNSUPPORTED = (
        "lakesink cannot write this table any more: its format version is not 2.",
        "Stream into a table of format version 2.",
    )
    TAG_ELSEWHERE = (
        "A tag of lakesink is not at the batch that it stands for: its readers see another one.",
        "See who moved it, and remove it. With the next batch the ledger tag is there again, unless ledger_tag=False.",
    )
    CLOCK_AHEAD = (
        "The table was changed at a time that is yet to come: Iceberg's Java writers (Spark, Trino, Flink) refuse it.",
        "Set the clock of whoever wrote last. The table can be written by all again when that time has come.",
    )
    FILE_TWICE = (
        "A snapshot references one data file more than once: readers see its rows more than once.",
        "See who added it the second time, and remove one reference (a delete or rewrite of that file's rows).",
    )
    FILE_ADDED_TWICE = (
        "Two batches brought the same data file, although names never occur twice.",
        "Report it: lakesink must not do this. One of the two snapshots was not written by it as it seems.",
    )
    FILE_MISSING = (
        "A data file that a snapshot references is not there: reads of that snapshot fail or lose its rows.",
        "Restore it from a backup of the storage; else replay its batch. An orphan cleaner may have taken it.",
    )
    FILE_SIZE = (
        "A data file has another size than its manifest states: it was cut or replaced.",
        "Restore it from a backup of the storage; else replay its batch.",
    )
    FILE_ROWS = (
        "A data file's footer counts other rows than its manifest states.",
        "Restore it from a backup of the storage; else replay its batch.",
    )
    FILE_DAMAGED = (
        "A data file of the stated size is no readable Parquet file.",
        "Restore it from a backup of the storage; else replay its batch.",
    )
    MANIFEST_UNREADABLE = (
        "A manifest or manifest list of a retained snapshot is missing or damaged: that snapshot cannot be read.",
        "Restore it from a backup of the storage; else roll back to a snapshot that can be read.",
    )
    MANIFEST_DISAGREES = (
        "A manifest holds other files or rows than the manifest list states: engines that trust the list are misled.",
        "Rewrite the manifests (Spark: rewrite_manifests), and report it if lakesink wrote them.",
    )
    SUMMARY_DISAGREES = (
        "The summary of a batch's snapshot states other rows, files or bytes than its manifests hold.",
        "Trust the manifests; the summary was forged or is a defect: report it.",
    )
    TOTALS_DISAGREE = (
        "The totals in the summary of a branch's head are not those of its files.",
        "Trust the files. Engines that answer count(*) from totals are misled until a rewrite sets them right.",
    )
    CHECKPOINT_AHEAD = (
        "Spark calls batches done that the table does not have: their rows are not in it.",
        "Stop the stream, run lakesink rewind with the newest batch that is in the table, and start it again.",
    )
    CHECKPOINT_OFFSETS = (
        "A batch in the table ended at other offsets than the checkpoint has for it: it is not the same batch.",
        "Give the checkpoint that belongs to the table; this one was copied, edited, or is another query's.",
    )
    CHECKPOINT_UNKNOWN = (
        "The checkpoint's query calls batches done, and the table knows nothing of that query.",
        "Give the checkpoint that belongs to the table. Of a query whose snapshots expired nothing can be proved.",
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


def runs(numbers: Iterable[int]) -> list[str]:
    """Each run of successive numbers, which are ascending: ``3`` or ``5-9``."""
    found = ([number for _, number in run] for _, run in groupby(enumerate(numbers), lambda at: at[1] - at[0]))
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found]


def key_of(found: Record | SinkState) -> SinkKey:
    """The key of the sink that wrote a batch, or has that state."""
    return SinkKey(found.sink, found.branch, SinkKind(found.kind))


def sink_label(key: SinkKey) -> str:
    """The sink as every command shows it."""
    return key.name if key.kind is SinkKind.STREAM else f"{key.name} (txn)"


def of_documents(state: SinkState) -> Iterator[str]:
    """One sentence about rows of NULLs, one about values without a column; nothing if there are none."""
    if state.malformed_rows:
        rows = f"{state.malformed_rows:,} of {counted(state.rows, 'row')}"
        yield f"{rows} are NULLs in place of malformed documents (on_malformed='null-row')."
    if state.unknown_keys:
        values = counted(state.unknown_keys, "value")
        yield f"Of the documents that were looked at, {values} had no column in the table and were left out."
