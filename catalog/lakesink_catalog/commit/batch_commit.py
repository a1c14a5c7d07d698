"""The fenced commit: one atomic change of a table per batch, decided again on the current table in every attempt.

Every attempt loads the table, reads the ledger of the target branch, decides, builds the snapshot on that head, and
sends one request. The request asserts the table, the head and the ledger tag. Only a proven success counts: after any
other answer, the next attempt reads the table. Of files only old metadata goes, where the table asks for that.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from lakesink_catalog.commit.batch_change import CommitOptions, batch_change
from lakesink_catalog.commit.clock import ClockWatch
from lakesink_catalog.commit.decision import Decision, check_has_head, still_usable
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.evolution import evolve
from lakesink_catalog.commit.left_out import LeftOut, shows_refs
from lakesink_catalog.commit.old_metadata import delete_old_metadata
from lakesink_catalog.commit.outcomes import Repeated, committed, is_final, unresolved
from lakesink_catalog.commit.premises import premises_of
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.commit.request import Request, build_request, snapshot_time_ms
from lakesink_catalog.commit.table_change import Locate, Located
from lakesink_catalog.connect.catalog_failures import http_status, translate_storage_errors
from lakesink_catalog.connect.turns import TakesTurns
from lakesink_catalog.manifests.merging import ManifestMerger, MergeMemory
from lakesink_catalog.manifests.write import write_batch_manifests
from lakesink_catalog.read.view import check_tag_name, view_metadata, view_table
from lakesink_catalog.snapshots import snapshots_by_id
from lakesink_protocol import events
from lakesink_protocol.change import ContentFile, SchemaChange
from lakesink_protocol.errors import BatchRefused, CatalogError
from lakesink_protocol.fence import Fenced, GivenUp, LostRace, MustBeWrittenAgain, Unseen, check_sent, fenced
from lakesink_protocol.identity import MAIN_BRANCH, Batch, SinkKey
from lakesink_protocol.ledger import SnapshotLike, TableView
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_protocol.quality import Quality
from lakesink_protocol.redact import describe
from lakesink_protocol.refusals.message import refusal
from lakesink_protocol.refusals.texts import Words
from lakesink_protocol.row_changes import counts_in
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Commit, Refuse, Skip, decide

TOOK_TOO_LONG = "the process was stopped for so long that an orphan cleanup may have removed its files"
NO_OUTAGE = "This may be no outage: correct what the answer says, or what the catalog's log says about it,"


@dataclass(frozen=True, slots=True)
class FencedCommit:
    """Commits the batches of one sink to one table.

    Attributes:
        load: Loads the current table, without any cache.
        start_uuid: The table's UUID when the stream first saw it.
        merges: The sink's memory of its merges, kept from batch to batch.
        clock: Watches the driver's clock during a run.
        words: Messages of refusals, instead of the general ones.
        turn: The turn at the table for one attempt; without it, attempts of several writers overlap.
        left_out: What the run has seen the catalog leave out, kept from batch to batch.
        check: Raises an error for a state of the table on which no batch may be committed.
    """

    load: Callable[[], Table]
    key: SinkKey
    start_uuid: str
    options: CommitOptions
    effects: Effects
    merges: MergeMemory = field(default_factory=MergeMemory)
    clock: ClockWatch = field(default_factory=ClockWatch)
    words: Sequence[Words] = ()
    turn: Callable[[], AbstractContextManager[None]] = nullcontext
    left_out: LeftOut = field(default_factory=LeftOut)
    check: Callable[[Table], None] = lambda _: None

    def decide(self, batch: Batch) -> Decision:
        """Load the table and decide on the batch."""
        decision = self.decide_on(self.load(), batch)
        decided = decision.situation, decision.verdict, self.options.ledger_tag
        self.effects.emit(events.Decided(batch.batch_id, *decided, at_begin=False))
        return decision

    def decide_on(self, table: Table, batch: Batch) -> Decision:
        """Decide on the batch with a table that was just loaded; older files are read if expiry has hidden a batch."""
        if self.options.ledger_tag:
            check_tag_name(table, self.key)
        situation = Situation(view_table(table, self.key), self.key, batch, self.start_uuid)
        verdict = translate_storage_errors(table.io.properties, partial(decide, situation, self.options.accept))
        return Decision(table, situation, verdict, self.effects.now_ms())

    def prepare(
        self,
        decision: Decision,
        files: Sequence[ContentFile],
        *,
        schema: Schema,
        quality: Quality | None = None,
        schema_change: SchemaChange | None = None,
        changes: PreparedChanges | None = None,
    ) -> PreparedBatch:
        """Write the manifests of a batch: an attempt then writes only a manifest list, and a merged manifest if due.

        The batch follows the ledger entry that `decision` found. `schema` is that of the files, with `schema_change`.
        """
        assert isinstance(decision.verdict, Commit)
        snapshot_id = self.effects.new_snapshot_id()
        table = evolve(decision.table, schema_change).table
        ids = (file.spec_id for file in files), (file.sort_order_id for file in files)
        premises = premises_of(table.metadata, schema.schema_id, *ids)
        assert premises is not None, "the votes name a schema, specs and orders of the table"
        write = partial(write_batch_manifests, table, files, schema=schema, snapshot_id=snapshot_id)
        return PreparedBatch(
            table_uuid=decision.situation.view.table_uuid,
            branch=self.key.branch,
            snapshot_id=snapshot_id,
            schema_id=schema.schema_id,
            premises=premises,
            follows=decision.situation.entry,
            accepted=decision.verdict.accepted,
            manifests=translate_storage_errors(decision.table.io.properties, write),
            files=tuple((file.path, file.file_size_bytes) for file in files),
            rows=sum(file.record_count for file in files),
            partitions=len({(file.spec_id, file.partition) for file in files}),
            begun_ms=decision.at_ms,
            quality=quality or Quality(),
            without_inputs=decision.verdict.without_inputs,
            schema_change=schema_change,
            changes=changes,
        )

    def commit(
        self, batch: Batch, prepared: PreparedBatch, locate: Locate | None = None
    ) -> Committed | AlreadyCommitted | None:
        """Commit a prepared batch, or find that it is in the table.

        `locate` finds the rows that a batch with changes removes, for each head on which an attempt may commit it.

        Returns:
            None if the ledger or the schema changed, so that the batch must be written again.

        Raises:
            BatchRefused: The table's history no longer allows the batch.
            CatalogError: The catalog has accepted the commit and left the branch where it was.
            CommitUnresolved: Attempts ran out; the batch may still land, and a restart resolves it.
        """
        effects, files = self.effects, len(prepared.files)
        merger = ManifestMerger(
            self.options.merge, prepared.snapshot_id, self.merges, effects.emit, effects.at_once, adds=files
        )
        attempts: Fenced[Outcome | MustBeWrittenAgain | CatalogError] = _Attempts(
            self, batch, prepared, locate, merger, self.clocks()
        )
        found = fenced(attempts, self.options.retry, self.effects)
        if isinstance(found, Unseen):
            raise unresolved(self.key, batch, found)
        if isinstance(found, CatalogError):
            raise found
        return None if isinstance(found, MustBeWrittenAgain) else found

    def found(self, decision: Decision, prepared: PreparedBatch, attempt: int) -> Outcome:
        """The outcome of a decision that allows no commit."""
        if isinstance(decision.verdict, Skip):
            self.tell(decision, decision.table.metadata, decision.verdict.snapshot_id)
        match decision.verdict:
            case Skip(snapshot_id=found) if found == prepared.snapshot_id:
                own = decision.situation.view.snapshots.get(prepared.snapshot_id)  # it tells what became of the changes
                counts = None if own is None or prepared.changes is None else counts_in(own.summary or {})
                return committed(prepared, attempt, counts)
            case Skip(snapshot_id=found):
                self.effects.emit(events.CommittedByAnother(decision.situation.batch.batch_id, found))
                return AlreadyCommitted(found)
            case Refuse(reason=reason):
                raise refusal(reason, decision.situation, self.words)
            case Commit():
                raise AssertionError("this decision allows a commit")
            case _:
                assert_never(decision.verdict)

    def tell(self, decision: Decision, metadata: TableMetadata, snapshot_id: int | None) -> None:
        """Emit that the table has the batch."""
        batch_id, name = decision.situation.batch.batch_id, ".".join(decision.table.name())
        self.effects.emit(events.BatchInTable(batch_id, name, decision.situation, snapshot_id, metadata))

    def request(
        self, decision: Decision, prepared: PreparedBatch, merger: ManifestMerger, located: Located | None = None
    ) -> Request:
        """Build the request for the table of this decision, and compare the driver's clock with the storage's."""
        table, emit, (now_ms, monotonic_ms) = decision.table, self.effects.emit, self.clocks()
        check_has_head(table, self.key.branch)
        time_ms = snapshot_time_ms(table, now_ms, emit)
        change = batch_change(decision, prepared, self.options, time_ms, located, emit)
        request = build_request(table, change, time_ms, emit, self.effects.at_once, merger.merge)
        told_ms = partial(self.effects.storage_time_ms, table.io, request.manifest_list)
        ahead = self.clock.check(now_ms, monotonic_ms, told_ms)
        if ahead:
            emit(ahead)
        return request

    def is_old(self, made_ms: int) -> bool:
        """True if an orphan cleanup may have removed unreferenced files of that time, or if that time is ahead."""
        return not 0 <= self.effects.now_ms() - made_ms <= self.options.prepared_max_age_ms

    def was_held_up(self, started: tuple[int, int]) -> bool:
        """True after a stop so long that an orphan cleanup may have removed files that were checked before it."""
        passed = (now - then for now, then in zip(self.clocks(), started, strict=True))
        return max(passed) > self.options.prepared_max_age_ms

    def clocks(self) -> tuple[int, int]:
        """Wall clock and monotonic clock, in milliseconds."""
        return self.effects.now_ms(), self.effects.monotonic_ms()

    def send(self, decision: Decision, batch: Batch, prepared: PreparedBatch, request: Request) -> TableMetadata:
        """Send the request; returns the metadata in the catalog's answer."""
        view = decision.situation.view
        self.effects.emit(events.CommitDue(batch.batch_id, prepared.snapshot_id, view.head, view.tag_snapshot_id))
        return decision.table.catalog.commit_table(decision.table, request.requirements, request.updates).metadata

    def tell_evolution(self, decision: Decision, after: TableMetadata, schema: Schema, prepared: PreparedBatch) -> None:
        """Emit that the schema changed, and whether the answer has the batch's snapshot under another schema.

        No assertion covers a column that another writer renamed and renamed back: its schemas take the next ids, and a
        service may then give this batch's schema a later id than its snapshot says.
        """
        batch_id, name = decision.situation.batch.batch_id, ".".join(decision.table.name())
        change = prepared.schema_change
        assert change is not None
        self.effects.emit(events.SchemaEvolved(batch_id, name, change.in_words))
        snapshot = snapshots_by_id(after).get(prepared.snapshot_id)
        found = [one for one in after.schemas if snapshot is not None and one.schema_id == snapshot.schema_id]
        if found != [schema]:
            self.effects.emit(events.SchemaIdTaken(batch_id, name, prepared.snapshot_id))

    def note_refs(self, table: Table, metadata: TableMetadata, prepared: PreparedBatch, request: Request) -> None:
        """Note whether the table lacks the tags of a commit; warn of it once. A later head may have moved them."""
        head, before = metadata.refs.get(self.key.branch), self.left_out.tags
        if head is None or head.snapshot_id != prepared.snapshot_id:
            return
        self.left_out.tags = not shows_refs(metadata, request.updates)
        if self.left_out.tags and not before and self.options.tag_every is None:
            self.effects.emit(events.TagsLeftOut(".".join(table.name()), self.key.name))

    def shows(self, metadata: TableMetadata, decision: Decision, batch: Batch, prepared: PreparedBatch) -> bool:
        """True if the answer has the snapshot on the asserted parent, under the head, and its ledger entry.

        The parent may be missing on a catalog that leaves parents out, as the table itself has shown in this run.
        """
        snapshot = snapshots_by_id(metadata).get(prepared.snapshot_id)
        parents = {decision.situation.view.head} | ({None} if self.left_out.parents else set())
        if snapshot is None or snapshot.parent_snapshot_id not in parents:
            return False
        view = view_metadata(metadata, decision.table.io, self.key)
        verdict = decide(Situation(view, self.key, batch, self.start_uuid))
        return isinstance(verdict, Skip) and verdict.snapshot_id == prepared.snapshot_id


@dataclass(slots=True)
class _Attempts:
    """The attempts to commit one prepared batch."""

    fence: FencedCommit
    batch: Batch
    prepared: PreparedBatch
    locate: Locate | None
    merger: ManifestMerger
    started: tuple[int, int]
    _began_ms: int = 0
    _found_on: Located | None = None
    _known: Mapping[str, Any] = field(default_factory=dict)
    _request: Request | None = None
    _branch_stayed: bool = False
    _parent_missed: bool = False
    _sent: bool = False
    _sent_on: int | None = None
    _metadata_file: str = ""
    _repeated: Repeated = field(default_factory=Repeated)

    def attempt(self, number: int) -> Outcome | MustBeWrittenAgain | CatalogError | None:
        fence, batch, prepared, emit = self.fence, self.batch, self.prepared, self.fence.effects.emit
        self._locate_ahead()
        with fence.turn():
            self._began_ms = fence.effects.monotonic_ms()
            decision = fence.decide(batch)
            self._known, self._metadata_file = decision.table.catalog.properties, decision.table.metadata_location
            if self._branch_stayed and self._is_ignored(decision.situation.view):
                branch = fence.key.branch[:60]
                return CatalogError.of("CATALOG_WITHOUT_TAGS.branch", batch_id=batch.batch_id, branch=branch)
            if not isinstance(decision.verdict, Commit):
                return self._found(decision, number)
            if not still_usable(decision, prepared):
                return MustBeWrittenAgain()
            fence.check(decision.table)
            if self._repeated.is_refusal(self._metadata_file):
                raise GivenUp(str(self._repeated), NO_OUTAGE)
            located = self._located(decision)
            request = fence.request(decision, prepared, self.merger, located)
            if fence.is_old(prepared.begun_ms) and not prepared.is_there(decision.table.io, fence.effects.at_once):
                return MustBeWrittenAgain()
            if fence.was_held_up(self.started):
                raise GivenUp(TOOK_TOO_LONG)
            metadata = self._answer(decision, request)
        self._repeated.times = 0
        emit(events.CommitAnswered(batch.batch_id))
        if not fence.shows(metadata, decision, batch, prepared):
            emit(events.CommitNotShown(batch.batch_id, number))
            self._branch_stayed = self._is_ignored(view_metadata(metadata, decision.table.io, fence.key))
            self._parent_missed = self._lacks_parent(snapshots_by_id(metadata).get(prepared.snapshot_id))
            return None
        emit(events.CommitShown(batch.batch_id))
        fence.tell(decision, metadata, prepared.snapshot_id)
        fence.note_refs(decision.table, metadata, prepared, request)
        if request.new_schema is not None:
            fence.tell_evolution(decision, metadata, request.new_schema, prepared)
        delete_old_metadata(decision.table, metadata, emit)
        counts = None if located is None else located.counts
        return committed(prepared, number, counts, evolves=request.new_schema is not None)

    def _locate_ahead(self) -> None:
        """Locate before the turn, because it can take seconds; if the head moves until then, it is done again."""
        if self.prepared.changes is None:
            return
        decision = self.fence.decide_on(self.fence.load(), self.batch)
        if isinstance(decision.verdict, Commit) and still_usable(decision, self.prepared):
            self._located(decision)

    def _located(self, decision: Decision) -> Located | None:
        """What the changes mean on this head, once for each head; None for a batch that only appends."""
        if self.prepared.changes is None:
            return None
        head, found = decision.situation.view.head, self._found_on
        if head != self._sent_on:  # no earlier request can succeed: errors are final again
            self._sent = False
        if found is None or found.head != head:
            assert self.locate is not None, "a batch with changes needs a way to locate them"
            batch_id, emit = self.batch.batch_id, self.fence.effects.emit
            if found is not None:
                emit(events.ChangesLocatedAgain(batch_id, head))
            self._found_on = found = self.locate(decision.table, head)
            emit(events.ChangesLocated(batch_id, head, len(found.deletes), found.counts.rows_removed))
        return found

    def _answer(self, decision: Decision, request: Request) -> TableMetadata:
        self._sent, self._sent_on, self._request = True, decision.situation.view.head, request
        try:
            return self.fence.send(decision, self.batch, self.prepared, request)
        except CommitFailedException as error:
            if isinstance(decision.table.catalog, TakesTurns):
                raise LostRace(str(error), self.fence.effects.monotonic_ms() - self._began_ms) from error
            raise

    def look(self, number: int) -> Outcome | None:
        decision = self.fence.decide(self.batch)
        return None if isinstance(decision.verdict, Commit) else self._found(decision, number)

    def _found(self, decision: Decision, number: int) -> Outcome:
        """The outcome. If an answer lacked the parent of this snapshot, the table shows what the catalog leaves out."""
        # without an answer, a missing tag proves nothing: somebody else may have removed it
        ours = decision.situation.view.snapshots.get(self.prepared.snapshot_id)
        self.fence.left_out.parents |= self._parent_missed and self._lacks_parent(ours)
        if self._parent_missed and self._request is not None:
            self.fence.note_refs(decision.table, decision.table.metadata, self.prepared, self._request)
        return self.fence.found(decision, self.prepared, number)

    def _lacks_parent(self, snapshot: SnapshotLike | None) -> bool:
        """True if the snapshot of the last request is there without its parent. An expiry can remove it later, too."""
        return snapshot is not None and snapshot.parent_snapshot_id is None and self._sent_on is not None

    def _is_ignored(self, view: TableView) -> bool:
        """True if the table has the ledger entry of the last request, and the branch is where it was before."""
        has_entry = view.entry is not None and view.entry.snapshot_id == self.prepared.snapshot_id
        return has_entry and view.head == self._sent_on and self.fence.key.branch != MAIN_BRANCH

    def unsure(self, number: int, error: Exception) -> str:
        if isinstance(error, BatchRefused) or (not self._sent and is_final(error)):
            raise error
        check_sent(error, sent=self._sent, known=self._known)
        trouble = describe(error, self._known)
        self._repeated.heard(http_status(error), trouble, self._metadata_file, self.fence.effects.monotonic_ms())
        self.fence.effects.emit(events.CommitUnknown(self.batch.batch_id, number, trouble))
        return trouble
