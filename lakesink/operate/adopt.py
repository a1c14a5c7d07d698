"""Takes over a stream that Iceberg's own sink for Spark has written so far, on its checkpoint and where it ended.

That sink leaves its query and its last epoch in the summaries of its snapshots. The ledger begins with that batch: one
commit without rows, by the fenced loop of a stream, as if a human had had the batch skipped. Then Spark's next batch is
the one after it, or, if that sink died between its commit and Spark's log, the batch comes again and is skipped.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pyiceberg.table import Table

from lakesink.audit.checkpoint import opened
from lakesink.checkpoint.folder import Checkpoint
from lakesink.settings.settings import Settings
from lakesink_catalog.commit.fence import FencedCommit, Look, Surroundings
from lakesink_catalog.commit.request import CommitOptions
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.view import view_table
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.accept import accept_of
from lakesink_protocol.errors import CatalogError, Reason
from lakesink_protocol.iceberg_spark_sink import epochs
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.redact import redact
from lakesink_protocol.refusal import refusal
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Refuse, Skip

NOTHING_CHANGED = "Nothing was changed, neither in the checkpoint nor in the table."


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a query has come, by its checkpoint.

    Attributes:
        query_id: The query.
        planned: Newest batch that Spark has planned.
        done: Newest batch that it calls done; -1 if none.
    """

    query_id: str
    planned: int
    done: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """A stream that was taken over.

    Attributes:
        batch_id: The last batch that Iceberg's own sink wrote.
        snapshot_id: The snapshot that says so; None if the sink held the batch before, and that has expired.
        already: True if there was nothing to do.
        comes_again: True if Spark will ask for that batch again, which is then skipped.
        offsets: Where the batch ended, as JSON.
    """

    batch_id: int
    snapshot_id: int | None
    already: bool
    comes_again: bool
    offsets: str


def adopt_stream(table: str, catalog: str | None, *, settings: Settings, confirm: Callable[[str], None]) -> Adopted:
    """Let a sink go on where Iceberg's own sink ended.

    Args:
        table: Table identifier, ``namespace.table``.
        catalog: Name of the catalog, None for the default.
        settings: Of the stream that will go on: its sink id, checkpoint and branch.
        confirm: Asked once all is found to be well; raises if the answer is no.

    Raises:
        QueryError: The checkpoint cannot be read.
        CatalogError: Table and checkpoint do not fit together, or the table cannot be used.
        BatchRefused: The table does not allow it.
        CommitUnresolved: The catalog was not seen to take the commit; it can be run again.
    """
    found = connect(catalog, create=False)
    takeover = Takeover(lambda: load_table(found, table), settings)
    batch = takeover.find()
    confirm(
        f"Is the query that writes by Iceberg's own sink stopped for good, and shall {settings.sink_id} go on after"
        f" batch {batch.batch_id}?"
    )
    return takeover.run(batch)


@dataclass(frozen=True, slots=True)
class Takeover:
    """One stream to be taken over.

    Attributes:
        load: Loads the table afresh, past any cache.
        settings: Of the stream that will go on.
        surroundings: Clock, sleep and chance.
    """

    load: Callable[[], Table]
    settings: Settings
    surroundings: Surroundings = field(default_factory=Surroundings)

    def find(self) -> Batch:
        """The last batch that Iceberg's own sink wrote, as the checkpoint has it; changes nothing.

        Raises:
            QueryError: The checkpoint cannot be read.
            CatalogError: Table and checkpoint do not fit together.
        """
        progress = self._progress()
        epoch = self._epoch(self.load(), progress.query_id)
        check_fit(epoch, progress)
        assert epoch is not None
        end = self._checkpoint.offsets(epoch)
        self._checkpoint.check_folders(end)
        return self._checkpoint.batch(progress.query_id, epoch, end)

    def run(self, batch: Batch) -> Adopted:
        """Begin the ledger with a batch, or find that the sink holds it.

        Args:
            batch: From `find`.

        Raises:
            CatalogError: The other query goes on writing.
            BatchRefused: The table does not allow it.
            CommitUnresolved: The catalog was not seen to take the commit; it can be run again.
        """
        fence = self._fence(batch)
        look = fence.look(batch)
        match look.verdict:
            case Skip(snapshot_id=snapshot_id):
                return self._adopted(batch, AlreadyCommitted(snapshot_id))
            case Refuse(reason=reason):
                raise refusal(reason, look.situation)
        _check_not_doubled(look)
        outcome = fence.commit(batch, fence.prepare(look, (), schema=look.table.schema()))
        if outcome is None:
            raise _refused("The table's ledger moved meanwhile.", "Look with lakesink status, and run it again.")
        return self._adopted(batch, outcome)

    @property
    def _checkpoint(self) -> Checkpoint:
        return opened(self.settings.checkpoint)

    @property
    def _key(self) -> SinkKey:
        return SinkKey(self.settings.sink_id, self.settings.branch)

    def _progress(self) -> Progress:
        checkpoint = self._checkpoint
        done = (int(name) for name in checkpoint.files.names("commits") if name.isdecimal())
        return Progress(checkpoint.query_id(), checkpoint.newest_batch(), max(done, default=-1))

    def _epoch(self, table: Table, query_id: str) -> int | None:
        return next(epochs(view_table(table, self._key).walk(), query_id), None)

    def _fence(self, batch: Batch) -> FencedCommit:
        table = self.load()
        start_uuid = str(table.metadata.table_uuid)
        situation = Situation(view_table(table, self._key), self._key, batch, start_uuid)
        accept = accept_of(Reason.UNKNOWN_HISTORY, situation, adds_rows=False)
        options = CommitOptions(accept=accept, retry=RetryPolicy(num_retries=5))
        return FencedCommit(self._load_if_still(batch), self._key, start_uuid, options, self.surroundings)

    def _load_if_still(self, batch: Batch) -> Callable[[], Table]:
        """Every attempt asserts the head that it loads, so that no other batch of that sink can slip in between."""

        def load() -> Table:
            table = self.load()
            epoch = self._epoch(table, batch.query_id)
            if epoch != batch.batch_id:
                raise _refused(
                    f"Iceberg's own sink wrote batch {epoch} of this checkpoint meanwhile.",
                    "Stop the query that writes by it, and run this again.",
                )
            return table

        return load

    def _adopted(self, batch: Batch, outcome: Committed | AlreadyCommitted) -> Adopted:
        again = self._progress().done < batch.batch_id
        already = isinstance(outcome, AlreadyCommitted)
        return Adopted(batch.batch_id, outcome.snapshot_id, already, again, batch.offsets)


def check_fit(epoch: int | None, progress: Progress) -> None:
    """Check that the table ends with the batch that Spark calls done, or with the one that it has planned after it.

    Args:
        epoch: Newest batch that Iceberg's own sink has in the branch for the query; None if there is none.
        progress: What the checkpoint says.

    Raises:
        CatalogError: It does not.
    """
    if epoch is None:
        raise _refused(
            f"No snapshot of the branch says that Iceberg's own sink wrote for query {progress.query_id}.",
            "Check table, branch and checkpoint; lakesink explain LAKESINK_ADOPT_REFUSED tells what if they expired.",
        )
    if epoch < progress.done:
        raise _refused(
            f"The table ends with batch {epoch} of this checkpoint, and Spark calls batch {progress.done} done.",
            f"If the table was rolled back, run `lakesink rewind <checkpoint> --to-batch {epoch}`, and this again. Else"
            " check table and branch.",
        )
    if epoch > progress.planned:
        raise _refused(
            f"The table has batch {epoch} of this checkpoint, which ends with batch {progress.planned}.",
            "The checkpoint is older than the table, or its query still runs. Stop it, restore the newest checkpoint.",
        )


def _check_not_doubled(look: Look) -> None:
    """That sink was started again while the newest batch was not in Spark's log, and has written it too."""
    situation = look.situation
    entry, first = situation.entry, min(situation.others_epochs)
    if entry is None or situation.gone or entry.query_id != situation.batch.query_id or first > entry.batch_id:
        return
    raise _refused(
        f"Iceberg's own sink has written batch {first}, which the table had: its rows are there twice.",
        f"Stop all writers and roll the table back to snapshot {entry.snapshot_id}, take the checkpoint back by"
        f" `lakesink rewind <checkpoint> --to-batch {entry.batch_id}`, and start the stream with lakesink.",
    )


def _refused(what: str, action: str) -> CatalogError:
    return CatalogError("ADOPT_REFUSED", redact(what), data=NOTHING_CHANGED, action=action)
