"""A target's ledger as the verdict sees it: its commits, and the decision about a batch. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.ledger import LedgerEntry, TableView, next_entry, next_mark
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION, Verdict, decide


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCommit:
    """One commit. It corresponds to a table's snapshot with its batch mark, and the verdict uses it in the same way.

    Attributes:
        number: Its position among the sink's commits, from 0.
        outcome: ``committed``, ``recovered`` or ``accepted``.
        accepted: The overruled refusal as the user spelled it; empty if none.
        commit_id: Random id of the prepare. It distinguishes this commit from another driver's of the same batch.
        committed_at: UTC time of the driver's clock, for information only.
        lakesink: The version that wrote it.
    """

    number: int
    sink_id: str
    batch: Batch
    outcome: str
    accepted: str
    commit_id: str
    committed_at: str
    lakesink: str

    @property
    def identity(self) -> str:
        """What a batch names that is prepared after this commit."""
        return self.commit_id

    @property
    def snapshot_id(self) -> int:
        """The number, under the name that the verdict uses."""
        return self.number

    @property
    def parent_snapshot_id(self) -> int | None:
        """The number of the commit before; None if the ledger may not have it any more."""
        return None

    @property
    def sequence_number(self) -> int:
        """Position from 1, as in a table."""
        return self.number + 1

    @property
    def shown_batch_id(self) -> int:
        """The batch that the ledger shows after this commit: an older one if an operator accepted an old replay."""
        return self.batch.batch_id

    @property
    def summary(self) -> dict[str, str]:
        """The batch mark, as in a snapshot's summary."""
        mark = next_mark(
            SinkKey(self.sink_id),
            self.batch,
            outcome=self.outcome,
            accepted=self.accepted,
            ledger_batch_id=self.shown_batch_id,
        )
        return mark.to_summary()

    def entry_of(self, ledger: Batch, target_id: str) -> LedgerEntry:
        """The ledger entry after this commit; `ledger` is the batch that it shows."""
        return next_entry(ledger, snapshot_id=self.number, sequence_number=self.sequence_number, table_uuid=target_id)


C = TypeVar("C", bound=StagedCommit)


@dataclass(frozen=True, slots=True)
class LedgerDecision(Generic[C]):
    """The decision about a batch; `head` is the newest commit, and `commits` has those that the ledger still has."""

    situation: Situation
    verdict: Verdict
    head: C | None
    commits: Mapping[int, C]

    @property
    def follows(self) -> str:
        """The commit that a batch prepared now follows; empty if it is the first."""
        return "" if self.head is None else self.head.identity

    @property
    def next_number(self) -> int:
        """The number of the next commit."""
        return self.situation.view.last_sequence_number


def decide_by(  # noqa: PLR0913 - a ledger as it was read
    commits: Mapping[int, C],
    head: C | None,
    entry: LedgerEntry | None,
    damage: str,
    *,
    sink_id: str,
    target_id: str,
    start_id: str,
    batch: Batch,
    accept: Accept | None,
) -> LedgerDecision[C]:
    """Decide on a batch by a ledger; another `target_id` than at the start of this run means another target."""
    view = TableView(
        table_uuid=target_id,
        format_version=SUPPORTED_FORMAT_VERSION,
        branch_exists=True,
        head=None if head is None else head.number,
        entry=entry,
        entry_damage=damage,
        snapshots=commits,
        tag_snapshot_id=None,
        last_sequence_number=0 if head is None else head.sequence_number,
        branch_contains=lambda _: False,
    )
    situation = Situation(view, SinkKey(sink_id), batch, start_id)
    return LedgerDecision(situation, decide(situation, accept), head, commits)
