"""What is known of each retained batch of a table, as `lakesink.history` tells it, and the words for it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from pyiceberg.table import Table

from lakesink_catalog.read.history import SinkState
from lakesink_catalog.read.past import PastCommit, retained, text_in
from lakesink_catalog.words import changed, counted, moment, number, size
from lakesink_protocol.change import LONGEST_WORDS, SCHEMA_CHANGE
from lakesink_protocol.identity import SinkKey, SinkKind
from lakesink_protocol.measures import TOLD
from lakesink_protocol.quality import RESCUED, UNKNOWN_NAMES, rescued_in, unmet_in
from lakesink_protocol.redact import shown
from lakesink_protocol.row_changes import CHANGELOG_TABLE, ChangeCounts


@dataclass(frozen=True, slots=True)
class Record:
    """One batch in one snapshot.

    Attributes:
        sink: Sink id, or application id of an `append`.
        kind: ``stream`` or ``txn``.
        batch_id: Batch id, or version.
        bytes: Size of the added data files in bytes.
        offsets: The source's end offsets as JSON; empty if unknown or too long.
        committed_at: UTC time by the clock of the driver that committed.
        outcome: ``committed``, ``recovered`` (prepared by an earlier run), or ``accepted`` (by an operator).
        accepted: The accept as the user wrote it; empty if none.
        missing_inputs: Number of missing input files that an operator accepted.
        in_branch: True if the batch is under the branch's head, False if it was rolled back, None if expiry removed the
            proof.
        unknown_keys: Keys of documents for which the table had no column.
        unknown_names: Names of such keys as a JSON list; empty if there were none.
        schema_change: How the commit changed the table's schema, in words; empty if it did not.
        unmet_rows: Rows that did not meet at least one expectation of the query.
        unmet: Of every expectation, the number of rows that did not meet it.
        dead_letters: Rows of the batch that are in its table of dead letters, and not part of `rows`.
        rescued_rows: Rows with a text in the rescue column.
        rescued: Of these rows by reason; see `lakesink_protocol.quality.Quality`.
        changes: What became of the batch's changes by key; None of a batch that appended.
        changelog: The table that has all of them as rows; empty if there is none.
    """

    sink: str
    branch: str
    kind: str
    batch_id: int
    snapshot_id: int
    sequence_number: int
    rows: int
    files: int
    bytes: int
    offsets: str
    committed_at: datetime
    outcome: str
    accepted: str
    missing_inputs: int
    in_branch: bool | None
    unknown_keys: int = 0
    unknown_names: str = ""
    schema_change: str = ""
    unmet_rows: int = 0
    unmet: Mapping[str, int] = field(default_factory=dict)
    dead_letters: int = 0
    rescued_rows: int = 0
    rescued: Mapping[str, int] = field(default_factory=dict)
    changes: ChangeCounts | None = None
    changelog: str = ""


def history(table: Table, *, sink: str | None = None, branch: str | None = None) -> list[Record]:
    """Every batch in the table's snapshots, newest last; `sink` is a sink id or an application id."""
    return [record_of(batch) for batch in retained(table).batches(sink, branch)]


def record_of(batch: PastCommit) -> Record:
    """All that is known of a batch."""
    mark, summary = batch.known_mark, batch.summary
    return Record(
        sink=mark.key.name,
        branch=mark.key.branch,
        kind=mark.key.kind.value,
        batch_id=mark.batch_id,
        snapshot_id=batch.snapshot_id,
        sequence_number=batch.sequence_number,
        rows=batch.rows,
        files=batch.files,
        bytes=batch.added.bytes or 0,
        offsets=mark.offsets,
        committed_at=batch.committed_at,
        outcome=mark.outcome,
        accepted=mark.accepted,
        missing_inputs=mark.missing_inputs,
        in_branch=batch.in_branch,
        unknown_names=text_in(summary, UNKNOWN_NAMES),
        schema_change=shown(text_in(summary, SCHEMA_CHANGE), LONGEST_WORDS),
        unmet=unmet_in(summary.additional_properties.items()) if summary else {},
        rescued=rescued_in(text_in(summary, RESCUED)),
        changes=batch.changes,
        changelog=shown(text_in(summary, CHANGELOG_TABLE), LONGEST_WORDS),
        **batch.counts.told,
    )


def key_of(found: Record | SinkState) -> SinkKey:
    """The key of the sink that wrote a batch, or has that state."""
    return SinkKey(found.sink, found.branch, SinkKind(found.kind))


def outcome_in_words(record: Record) -> str:
    """How a batch came into the table, and what is not as usual about it."""
    rolled_back = ", rolled back" if record.in_branch is False else ""
    without = f", {counted(record.missing_inputs, 'input file')} missing" if record.missing_inputs else ""
    evolved = f", {record.schema_change}" if record.schema_change else ""
    changes = f": {changed(record.changes)}" if record.changes else ""
    copies = record.changes.changes if record.changes and record.changelog else 0
    logged = f", {number(copies)} logged" if copies else ""
    counts = {one: getattr(record, one.name) for one in TOLD}
    found = "".join(f", {counted(count, one.word)}" for one, count in counts.items() if count)
    return (record.accepted or record.outcome) + changes + logged + without + rolled_back + found + evolved


def row_of(record: Record) -> list[str]:
    """A batch as text: sink, branch, batch, rows, files, size, time and outcome."""
    counts = number(record.batch_id), number(record.rows), number(record.files), size(record.bytes)
    return [key_of(record).label, record.branch, *counts, moment(record.committed_at), outcome_in_words(record)]


def runs(numbers: Iterable[int]) -> list[str]:
    """Each run of successive numbers, which are ascending: ``3`` or ``5-9``."""
    found = ([number for _, number in run] for _, run in groupby(enumerate(numbers), lambda at: at[1] - at[0]))
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found]
