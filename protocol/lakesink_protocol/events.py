"""Each step of a batch as a frozen value, and the listeners that receive it. Pure: the listeners are injected.

An event contains no row and no secret: whoever emits it redacts paths and errors first. A listener never alters a
decision, and only a failpoint may stop a batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from lakesink_protocol.outcome import Outcome
from lakesink_protocol.redact import describe
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. The subclasses of this module are all kinds of events."""


Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Listeners:
    """Gives each event to the log, then to the other listeners, then to the failpoints.

    A failure of another listener is only logged. An error in the log comes from the user's logging configuration and is
    raised, like that of a failpoint.
    """

    log: Listener
    failpoints: Listener
    others: tuple[Listener, ...] = ()

    def __call__(self, event: Event) -> None:
        """Emit an event."""
        self.log(event)
        for listener in self.others:
            try:
                listener(event)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - no listener may stop the batch, or the process
                self.log(ListenerFailed(type(listener).__name__, type(event).__name__, describe(error)))
        self.failpoints(event)

    def also(self, listener: Listener) -> "Listeners":
        """These listeners and one more."""
        return replace(self, others=(*self.others, listener))


@dataclass(frozen=True, slots=True)
class ListenerFailed(Event):
    """A listener raised an error, which changes nothing."""

    listener: str
    event: str
    error: str


# Before the first batch


@dataclass(frozen=True, slots=True)
class CatalogNotCertified(Event):
    """The tests of lakesink do not cover this catalog; `by` names its property: ``type`` or ``class``."""

    name: str
    by: str
    value: str


@dataclass(frozen=True, slots=True)
class FirstSnapshotUnproven(Event):
    """The scratch table that shows whether the catalog protects first snapshots failed; it may be left."""

    name: str
    scratch: str
    error: str


@dataclass(frozen=True, slots=True)
class PartitionByUnused(Event):
    """The option differs from the partitions of a table whose partitioning evolved."""

    table: str
    partitions: str
    asked: str


@dataclass(frozen=True, slots=True)
class PropertiesIgnored(Event):
    """lakesink ignores these table properties."""

    properties: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LedgerTagOff(Event):
    """The option `ledger_tag` is off, which weakens the guarantee."""

    table: str
    sink: str


@dataclass(frozen=True, slots=True)
class OrderTrusted(Event):
    """Changes have no `sequence_by`, and the source keeps no order of its own: a later batch counts as newer."""

    table: str
    sink: str


@dataclass(frozen=True, slots=True)
class QueryStarted(Event):
    """The first batch of a run begins; `is_weakened` if a fact of the query weakens the guarantee.

    `reads_uncommitted` if a Kafka source also reads records of aborted transactions.
    """

    batch_id: int
    table: str
    sink: str
    query_id: str
    sources: tuple[str, ...]
    guarantee: str
    is_weakened: bool
    unstable: tuple[str, ...]
    output_mode: str
    speculation: bool
    scheme: str
    creates_atomically: bool
    reads_uncommitted: bool


@dataclass(frozen=True, slots=True)
class QueryFactsUnwritten(Event):
    """The facts for `doctor --query` were not stored."""

    table: str
    sink: str
    query_id: str
    error: str


@dataclass(frozen=True, slots=True)
class QueryEnded(Event):
    """A run of a query that somebody watches has ended."""


# A query that reads the batches of a sink


@dataclass(frozen=True, slots=True)
class ReadPlanned(Event):
    """The batches of a sink, and replays of its letters, that the next micro-batch of a reading query has."""

    table: str
    sink: str
    first: str
    last: str
    batches: int
    files: int
    rows: int


@dataclass(frozen=True, slots=True)
class OthersNotRead(Event):
    """Other writers added rows between the batches of the sink that a query reads; it does not read them."""

    table: str
    sink: str
    snapshots: int
    rows: int


@dataclass(frozen=True, slots=True)
class ReadWaits(Event):
    """The table was rolled back behind the batches that a query has read; it waits until they are written again."""

    table: str
    sink: str


@dataclass(frozen=True, slots=True)
class ReplayLost(Event):
    """The table was rolled back behind a replay of dead letters that a query has read; batches are read on."""

    table: str
    sink: str
    replay: int


@dataclass(frozen=True, slots=True)
class HoldNotMoved(Event):
    """The branch that keeps unread batches of a reading query from expiry was not moved."""

    table: str
    reader: str
    why: str


# A batch, in the order of its steps


@dataclass(frozen=True, slots=True)
class BatchEvent(Event):
    """A step of one batch."""

    batch_id: int


@dataclass(frozen=True, slots=True)
class BatchStarted(BatchEvent):
    """Spark has logged the batch's offsets; nothing is read or written."""


@dataclass(frozen=True, slots=True)
class InputUnchecked(Event):
    """This process cannot check whether the input files of a batch exist."""

    error: str


@dataclass(frozen=True, slots=True)
class ServerUnchecked(Event):
    """The format was registered in a Spark Connect session: what its server has cannot be checked from here."""

    spark: str


@dataclass(frozen=True, slots=True)
class TableCreated(BatchEvent):
    """The first batch created its table."""

    table: str


@dataclass(frozen=True, slots=True)
class Decided(BatchEvent):
    """A decision: before anything is written (`at_begin`), or for an attempt. `tagged` if the sink sets its tag."""

    situation: Situation
    verdict: Verdict
    tagged: bool
    at_begin: bool


@dataclass(frozen=True, slots=True)
class AcceptUnused(BatchEvent):
    """The accepted refusal did not apply. `kind` of the target: ``table`` or ``directory``."""

    kind: str
    target: str
    sink: str
    accept: str


@dataclass(frozen=True, slots=True)
class EntryUnverifiable(BatchEvent):
    """Expiry removed the snapshot of the ledger entry, whose batch this is; the entry is trusted."""

    table: str
    sink: str


@dataclass(frozen=True, slots=True)
class PreparedDropped(Event):
    """A prepared record cannot be read, or is so old that an orphan cleanup may have removed its files."""

    reason: str
    batch_id: int | None = None
    age_s: int | None = None
    path: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedUnusable(BatchEvent):
    """The batch that an earlier run prepared can no longer be committed."""

    reason: str


@dataclass(frozen=True, slots=True)
class BatchRecovered(BatchEvent):
    """This run uses the batch that an earlier run prepared."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class FileClosing(BatchEvent):
    """A task has written rows into a file that is not closed."""


@dataclass(frozen=True, slots=True)
class RowsBeforeUnread(BatchEvent):
    """Deletes have values in the row before that do not fit their columns; the changelog has NULL for these values."""

    table: str
    rows: int


@dataclass(frozen=True, slots=True)
class DeletesLate(BatchEvent):
    """For the first time in a run, Debezium's deletes had no effect: the stored rows have a higher sequence."""

    table: str
    rows: int


@dataclass(frozen=True, slots=True)
class ExpectationsUnmet(BatchEvent):
    """Rows of the batch do not meet an expectation that only warns; `unmet` has the counts by its name, in words."""

    table: str
    unmet: str


@dataclass(frozen=True, slots=True)
class RowsPutAside(BatchEvent):
    """Rows of the batch become dead letters; `letters` is the table that gets them."""

    table: str
    rows: int
    letters: str


@dataclass(frozen=True, slots=True)
class RowsRescued(BatchEvent):
    """The rescue column has values of the batch's documents for a reason that no earlier line named."""

    table: str
    reasons: str


@dataclass(frozen=True, slots=True)
class ColumnsMissing(BatchEvent):
    """The rows lack columns of the table."""

    table: str
    sink: str
    names: str


@dataclass(frozen=True, slots=True)
class ColumnsIgnored(BatchEvent):
    """The rows have columns that the table lacks, and the option `schema_evolution` leaves them out."""

    table: str
    sink: str
    names: str


@dataclass(frozen=True, slots=True)
class SchemaEvolved(BatchEvent):
    """The batch's commit has changed the table's schema; `change` says how, in words."""

    table: str
    change: str


@dataclass(frozen=True, slots=True)
class SchemaIdTaken(BatchEvent):
    """The schema id of the batch's snapshot names another schema than that of its files."""

    table: str
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class KeysUnknown(BatchEvent):
    """Documents contain keys that are no columns."""

    table: str
    names: str


@dataclass(frozen=True, slots=True)
class BatchPrepared(BatchEvent):
    """All receipts have arrived, and the manifests are written."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class RecordDue(BatchEvent):
    """The prepared record is about to be written."""


@dataclass(frozen=True, slots=True)
class RecordStored(BatchEvent):
    """The prepared record is durable."""


@dataclass(frozen=True, slots=True)
class BatchRecorded(BatchEvent):
    """The table's sink continues, after its record was stored."""


@dataclass(frozen=True, slots=True)
class BatchAborted(BatchEvent):
    """The batch failed before it could be committed. `kind` of the target: ``table`` or ``directory``."""

    kind: str
    target: str


@dataclass(frozen=True, slots=True)
class TagTaken(Event):
    """The batch gets no audit tag, because another tag or branch has its name."""

    tag: str


@dataclass(frozen=True, slots=True)
class ManifestsUnmerged(Event):
    """A merge of manifests failed; they stay as they are."""

    count: int
    error: str


@dataclass(frozen=True, slots=True)
class ChangesLocated(BatchEvent):
    """The rows that the batch replaces or deletes were located on a head of the branch.

    `files` is the number of delete files for them, `rows` that of the rows.
    """

    head: int | None
    files: int
    rows: int


@dataclass(frozen=True, slots=True)
class ChangesLocatedAgain(BatchEvent):
    """Another writer has moved the branch to this head, so the batch's rows are located on it before the commit."""

    head: int | None


@dataclass(frozen=True, slots=True)
class CompactionDue(BatchEvent):
    """The live rows of small files are rewritten after this batch; their compaction is about to be committed."""


@dataclass(frozen=True, slots=True)
class FilesCompacted(BatchEvent):
    """The rows of so many small `files` are `into` so many new ones, in a snapshot of its own."""

    snapshot_id: int
    files: int
    into: int
    rows: int


@dataclass(frozen=True, slots=True)
class CompactionLost(BatchEvent):
    """Another writer has changed the table meanwhile, so the small files stay; a later batch tries again."""


@dataclass(frozen=True, slots=True)
class CompactionFailed(BatchEvent):
    """Small files could not be compacted after this batch; they stay, or the answer was lost. Either is right."""

    trouble: str


@dataclass(frozen=True, slots=True)
class ManifestSetAside(Event):
    """A manifest cannot be read exactly, so it is never merged."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClockBehind(Event):
    """The time of the table's last change is later than this driver's clock."""

    seconds: int


@dataclass(frozen=True, slots=True)
class ClockAhead(Event):
    """This driver's clock is ahead of the storage's."""

    seconds: int


@dataclass(frozen=True, slots=True)
class ClockUnknown(Event):
    """The storage's time of a file could not be read."""

    error: str


@dataclass(frozen=True, slots=True)
class TurnPassedOver(Event):
    """A turn at the table could not be had; commits go on without turns for some minutes."""

    table: str
    error: str


@dataclass(frozen=True, slots=True)
class CommitDue(BatchEvent):
    """A commit is about to be sent, with these assertions; a directory has none of them."""

    snapshot_id: int | None = None
    head: int | None = None
    tag: int | None = None


@dataclass(frozen=True, slots=True)
class CommitAnswered(BatchEvent):
    """The answer to the commit has arrived; it is not checked yet."""


@dataclass(frozen=True, slots=True)
class CommitShown(BatchEvent):
    """The answer shows the batch."""


@dataclass(frozen=True, slots=True)
class CommitNotShown(BatchEvent):
    """The answer does not show the batch."""

    attempt: int


@dataclass(frozen=True, slots=True)
class TagsLeftOut(Event):
    """For the first time in a run, the table shows a batch and not the tags of its commit."""

    table: str
    sink: str


@dataclass(frozen=True, slots=True)
class CommitUnknown(BatchEvent):
    """The result of an attempt is unknown."""

    attempt: int
    trouble: str


@dataclass(frozen=True, slots=True)
class ChangeUnknown(Event):
    """The result of an attempt is unknown, for a command that changes no row."""

    command: str
    attempt: int
    trouble: str


@dataclass(frozen=True, slots=True)
class CommittedByAnother(BatchEvent):
    """The batch is in the table with the rows of another driver."""

    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class MetadataKept(Event):
    """An old metadata file could not be removed."""

    path: str
    error: str


@dataclass(frozen=True, slots=True)
class HighWaterKept(Event):
    """The number of markers could not be recorded."""

    sink: str
    error: str


@dataclass(frozen=True, slots=True)
class CommitEnded(BatchEvent):
    """The end of a commit: an outcome, None if the batch must be written again, or the error."""

    ended: Outcome | BaseException | None


@dataclass(frozen=True, slots=True)
class BatchLanded(BatchEvent):
    """The sink is done; Spark has not logged the batch as complete."""


@dataclass(frozen=True, slots=True)
class RecordKept(Event):
    """A file of an earlier pre-commit, a record or a keys file, could not be removed."""

    path: str
    error: str


@dataclass(frozen=True, slots=True)
class BatchEnded(BatchEvent):
    """The end of a batch. `write_seconds` is the job over the rows, 0 if none ran."""

    table: str
    sink: str
    seconds: float
    write_seconds: float


@dataclass(frozen=True, slots=True)
class BatchFinished(BatchEnded):
    """The batch is in the target."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class BatchInterrupted(BatchEnded):
    """The query was asked to stop."""


@dataclass(frozen=True, slots=True)
class BatchFailed(BatchEnded):
    """The batch failed, or `is_refused`; `details` are lines about single rows."""

    is_refused: bool
    code: str
    error: str
    details: tuple[str, ...]


# Listeners


@dataclass(frozen=True, slots=True)
class FailpointActs(BatchEvent):
    """A failpoint is about to act."""

    name: str
    action: str
