"""Takes over a stream of Iceberg's own Spark sink: same checkpoint, from its last batch.

That sink stores its query id and its last epoch in snapshot summaries. The new ledger begins with that batch: one
commit without rows, through the fenced loop of a stream, as if an operator had skipped the batch. Spark then continues
with the next batch. If the old sink died between its commit and Spark's log, Spark repeats the batch, which is skipped.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from pyiceberg.table import Table

from lakesink.checkpoint.folder import Checkpoint
from lakesink.settings.settings import Settings
from lakesink_catalog.commit.batch_change import CommitOptions
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.decision import Decision
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.view import view_table
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import CatalogError, Reason
from lakesink_protocol.iceberg_spark_sink import epochs
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.redact import redact
from lakesink_protocol.refusals.accept import accept_of
from lakesink_protocol.refusals.message import refusal
from lakesink_protocol.retry import RetryPolicy
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Refuse, Skip
from lakesink_tools.audit.checkpoint import opened


@dataclass(frozen=True, slots=True)
class Adopted:
    """Result of a takeover."""

    batch_id: int  # the last batch of Iceberg's own sink
    snapshot_id: int | None  # None if the sink held the batch before, and its snapshot has expired
    already: bool  # True if the ledger had this batch before
    comes_again: bool  # True if Spark will repeat that batch, which is then skipped
    offsets: str  # where the batch ended, as JSON


def adopt_stream(table: str, catalog: str | None, *, settings: Settings, confirm: Callable[[str], None]) -> Adopted:
    """Continue a stream of Iceberg's own sink with lakesink, under the given settings.

    `confirm` is called after all checks passed, and raises if the operator declines. The command can be repeated.
    """
    found = connect(catalog, create=False)
    takeover = Takeover(lambda: load_table(found, table), settings)
    batch = takeover.find()
    confirm(
        f"Is the query that writes by Iceberg's own sink stopped for good, and shall {settings.sink_id} continue after"
        f" batch {batch.batch_id}?"
    )
    return takeover.run(batch)


@dataclass(frozen=True, slots=True)
class Takeover:
    """Takes over one stream; `load` must load the table without a cache."""

    load: Callable[[], Table]
    settings: Settings
    effects: Effects = field(default_factory=Effects)

    def find(self) -> Batch:
        """The last batch of Iceberg's own sink, with the checkpoint's offsets; changes nothing."""
        checkpoint = self._checkpoint
        query_id, planned, done = checkpoint.query_id(), checkpoint.newest_batch(), self._done
        epoch = self._epoch(self.load(), query_id)
        if epoch is None:
            raise _refused(
                f"The branch has no batch that Iceberg's own sink wrote for query {query_id}.",
                "Check table, branch and checkpoint; if its snapshots expired, see lakesink explain"
                " LAKESINK_ADOPT_REFUSED.",
            )
        _check_fit(epoch, planned, done)
        end = checkpoint.offsets(epoch)
        checkpoint.check_folders(end)
        return checkpoint.batch(query_id, epoch, end)

    def run(self, batch: Batch) -> Adopted:
        """Begin the ledger with a batch from `find`, or find that the sink has it. May be called again."""
        fence = self._fence(batch)
        decision = fence.decide(batch)
        match decision.verdict:
            case Skip(snapshot_id=snapshot_id):
                outcome: Committed | AlreadyCommitted | None = AlreadyCommitted(snapshot_id)
            case Refuse(reason=reason):
                raise refusal(reason, decision.situation)
            case _:
                _check_not_doubled(decision)
                outcome = fence.commit(batch, fence.prepare(decision, (), schema=decision.table.schema()))
        if outcome is None:
            raise _refused("The table's ledger changed meanwhile.", "Check lakesink status, and run this again.")
        already = isinstance(outcome, AlreadyCommitted)
        return Adopted(batch.batch_id, outcome.snapshot_id, already, self._done < batch.batch_id, batch.offsets)

    @property
    def _checkpoint(self) -> Checkpoint:
        return opened(self.settings.checkpoint)

    @property
    def _key(self) -> SinkKey:
        return SinkKey(self.settings.sink_id, self.settings.branch)

    @property
    def _done(self) -> int:
        """The newest batch that Spark completed; -1 if none."""
        return max(self._checkpoint.batches("commits"), default=-1)

    def _epoch(self, table: Table, query_id: str) -> int | None:
        return next(epochs(view_table(table, self._key).ancestry(), query_id), None)

    def _fence(self, batch: Batch) -> FencedCommit:
        table = self.load()
        start_uuid = str(table.metadata.table_uuid)
        situation = Situation(view_table(table, self._key), self._key, batch, start_uuid)
        accept = accept_of(Reason.UNKNOWN_HISTORY, situation, adds_rows=False)
        options = CommitOptions(accept=accept, retry=RetryPolicy(num_retries=5))
        turn = partial(self.effects.turn, table, self.effects.emit)

        def load_if_still() -> Table:
            """Every attempt checks the head that it loads: the old sink must not commit another batch in between."""
            table = self.load()
            epoch = self._epoch(table, batch.query_id)
            if epoch != batch.batch_id:
                raise _refused(
                    f"Iceberg's own sink wrote batch {epoch} of this checkpoint meanwhile.",
                    "Stop the query that writes by it, and run this again.",
                )
            return table

        return FencedCommit(load_if_still, self._key, start_uuid, options, self.effects, turn=turn)


def _check_fit(epoch: int, planned: int, done: int) -> None:
    """Check that `epoch`, the branch's newest batch, is the last that Spark completed, or the next that is planned."""
    if epoch < done:
        raise _refused(
            f"The table ends with batch {epoch} of this checkpoint, but Spark completed batch {done}.",
            f"If the table was rolled back, run `lakesink rewind <checkpoint> --to-batch {epoch}`, and this again. Else"
            " check table and branch.",
        )
    if epoch > planned:
        raise _refused(
            f"The table has batch {epoch} of this checkpoint, which ends with batch {planned}.",
            "The checkpoint is older than the table, or its query still runs. Stop it, restore the newest checkpoint.",
        )


def _check_not_doubled(decision: Decision) -> None:
    """Refuse if the old sink restarted while Spark's log lacked the newest batch, and so wrote it again."""
    situation = decision.situation
    entry, first = situation.entry, min(situation.iceberg_sink_epochs)
    if entry is None or situation.rolled_back or entry.query_id != situation.batch.query_id or first > entry.batch_id:
        return
    raise _refused(
        f"Iceberg's own sink has written batch {first}, which the table already had: its rows are doubled.",
        f"Stop all writers and roll the table back to snapshot {entry.snapshot_id}, set the checkpoint back with"
        f" `lakesink rewind <checkpoint> --to-batch {entry.batch_id}`, and start the stream with lakesink.",
    )


def _refused(what: str, action: str) -> CatalogError:
    return CatalogError("ADOPT_REFUSED", redact(what), action=action)
