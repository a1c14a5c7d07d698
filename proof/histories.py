"""Any order of drivers, lost and late requests, others' commits, rollbacks and expiry, over real files and SQLite.

A state machine of Hypothesis over PyIceberg as it is: what the simulator cannot see in its own catalog. Two drivers
of one stream are stopped and resumed between vote and commit. Beside the table stands a plain model: which batches
are under the branch's head by true parentage, which expiry cannot make it forget.
"""

import itertools
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_protocol.errors import BatchRefused, CommitUnresolved, Reason
from lakesink_protocol.identity import Batch
from lakesink_protocol.ledger import mark_of
from lakesink_protocol.outcome import AlreadyCommitted
from proof.oracle import batches_contiguous, facts_of, files_whole, rows_once
from testkit.answers import ERRORS, first, lands_but_says, refuses_with, says_yes_and_shows_what_was, sent_twice
from testkit.builders import Fault, Lake, Stream, counted, expected, offered, parquet_files
from testkit.maintenance import append_foreign, expire, expire_like_java, roll_back, unreachable

TALLY: Counter[str] = Counter()
"""Histories begun and steps taken in this process."""

EXAMPLES_AT_ONCE = 10

DRIVERS = st.sampled_from([0, 1])
FAULTS = st.sampled_from(["none", "landed", "not landed", "late", "others first", "twice", "lie"])


@dataclass
class Waiting:
    """A driver between its vote and its commit."""

    sink: IcebergSink
    batch: Batch
    transaction: IcebergTransaction
    prepared: PreparedBatch


class AnyHistory(RuleBasedStateMachine):
    """One table, two drivers, and whoever else there is."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lakesink-history-"))
        self.lake = Lake.make(self.folder, properties={"commit.retry.num-retries": "1"})
        self.stream = Stream(self.lake)
        self.waiting: dict[int, Waiting] = {}
        self.next_batch = 0  # what Spark's checkpoint says
        self.parents: dict[int, int | None] = {}
        self.holds: dict[int, Counter[tuple[int, int]]] = {}
        self.rolled_back = False  # since the sink's last commit
        self.referenced: set[Path] = set()
        self.seen = ""
        TALLY["histories"] += 1

    def teardown(self) -> None:
        """Judge once more, file by file, and leave nothing behind."""
        facts = facts_of(self.lake.table(), self.stream.sink_id)
        broken = batches_contiguous(facts) + files_whole(facts, stored)
        assert not broken, "\n".join(map(str, broken))
        self.lake.catalog.close()
        shutil.rmtree(self.folder)

    # What is true of the table, whatever it still shows.

    def note(self) -> None:
        """Remember every snapshot while it is there."""
        for snapshot in self.lake.table().metadata.snapshots:
            if snapshot.snapshot_id not in self.parents:
                self.parents[snapshot.snapshot_id] = snapshot.parent_snapshot_id
                mark = mark_of(snapshot.summary)
                self.holds.setdefault(snapshot.snapshot_id, expected(mark.batch_id) if mark else Counter())
                self.rolled_back = self.rolled_back and mark is None

    def path(self) -> list[int]:
        """Snapshots under the head, oldest first."""
        found, head = [], self.lake.table().metadata.current_snapshot_id
        while head is not None:
            found.append(head)
            head = self.parents[head]
        return found[::-1]

    def batches(self) -> list[int]:
        return [row[0] for snapshot in self.path() for row in self.holds[snapshot] if row[0] >= 0 and row[1] == 0]

    # What drivers do.

    def answer(self, fault: str) -> list[Fault]:
        catalog = self.lake.catalog
        answers: dict[str, list[Fault]] = {
            "none": [],
            "landed": [lands_but_says(ERRORS["503 unavailable"])],
            "not landed": [refuses_with(ERRORS["409 conflict"])] * 2,
            "late": [catalog.arrives_late] * 2,
            "others first": [first(self.others)],
            "twice": [sent_twice],
            "lie": [says_yes_and_shows_what_was(self.lake)],
        }
        return answers[fault]

    @rule(driver=DRIVERS, back=st.sampled_from([0, 0, 0, 1, 2]))
    def vote(self, driver: int, back: int) -> None:
        """A driver starts on Spark's next batch, or replays one of the last."""
        batch = self.stream.batch(max(self.next_batch - back, 0))
        sink = self.stream.sink()
        self.waiting.pop(driver, None)
        try:
            begun = sink.begin(batch)
        except BatchRefused as refused:
            self.refusal_is_right(batch.batch_id, refused.reason)
            return
        if isinstance(begun, AlreadyCommitted):
            assert batch.batch_id in self.batches()
            self.next_batch = max(self.next_batch, batch.batch_id + 1)
            return
        assert batch.batch_id == len(self.batches())
        self.waiting[driver] = Waiting(sink, batch, begun, self.prepared(sink, batch, begun))

    def prepared(self, sink: IcebergSink, batch: Batch, begun: IcebergTransaction) -> PreparedBatch:
        payloads = begun.prepared_log.find(batch)
        found = sink.recover(begun, payloads[sink.name]) if payloads else None
        if found is not None:
            return found
        assert begun.writer is not None
        ready = sink.pre_commit(begun, self.stream.write(batch)({"it": begun.writer}).receipts("it"))
        begun.prepared_log.put(batch, {sink.name: ready.payload})
        return ready

    @precondition(lambda self: self.waiting)
    @rule(fault=FAULTS)
    def next_commits(self, fault: str) -> None:
        self.commit(min(self.waiting), fault)

    @precondition(lambda self: self.waiting)
    @rule(driver=DRIVERS, fault=FAULTS)
    def commit(self, driver: int, fault: str) -> None:
        waiting = self.waiting.pop(driver, None)
        if waiting is None:
            return
        self.lake.catalog.faults = self.answer(fault)
        try:
            outcome = waiting.sink.commit(waiting.transaction, waiting.prepared)
        except CommitUnresolved:
            assert fault in ("not landed", "late")
        except BatchRefused as refused:
            self.note()
            self.refusal_is_right(waiting.batch.batch_id, refused.reason)
        else:
            self.note()
            if outcome is not None:
                assert waiting.batch.batch_id in self.batches()
                self.next_batch = max(self.next_batch, waiting.batch.batch_id + 1)
        finally:
            self.lake.catalog.faults = []

    def refusal_is_right(self, batch_id: int, reason: Reason) -> None:
        there = len(self.batches())
        if reason is Reason.ROLLED_BACK:
            assert self.rolled_back
        elif reason is Reason.GAP:
            assert batch_id > there
        else:
            assert reason is Reason.REWOUND
            assert batch_id < there

    # What happens to the table.

    @precondition(lambda self: self.lake.catalog.late)
    @rule(which=st.integers(0, 5))
    def a_late_request_arrives(self, which: int) -> None:
        late = self.lake.catalog.late
        with suppress(Exception):
            late.pop(which % len(late))()

    @rule()
    def others(self) -> None:
        self.note()
        rows = append_foreign(self.lake)
        self.holds[self.lake.head().snapshot_id] = rows
        self.note()

    @precondition(lambda self: len(self.path()) > 1)
    @rule(back=st.integers(1, 3), operator_resets_the_checkpoint=st.booleans())
    def somebody_rolls_back(self, back: int, operator_resets_the_checkpoint: bool) -> None:  # noqa: FBT001 - drawn
        there = {snapshot.snapshot_id for snapshot in self.lake.table().metadata.snapshots}
        path = self.path()
        goal = path[max(len(path) - 1 - back, 0)]
        if goal in there:
            before = len(self.batches())
            roll_back(self.lake, goal)
            self.rolled_back = self.rolled_back or len(self.batches()) < before
            if operator_resets_the_checkpoint:
                self.next_batch = len(self.batches())

    @precondition(lambda self: self.path())
    @rule(which=st.integers(0, 20), operator_resets_the_checkpoint=st.booleans())
    def somebody_sets_the_head(self, which: int, operator_resets_the_checkpoint: bool) -> None:  # noqa: FBT001 - drawn
        """To any snapshot that is retained: back, forward, or over to what was rolled back."""
        self.note()
        retained = sorted(self.lake.table().metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
        roll_back(self.lake, retained[which % len(retained)].snapshot_id)
        self.rolled_back = True
        if operator_resets_the_checkpoint:
            self.next_batch = len(self.batches())

    @rule(java=st.booleans())
    def snapshots_expire_and_their_files_go(self, java: bool) -> None:  # noqa: FBT001 - drawn
        self.referenced |= parquet_files(self.lake) - unreachable(self.lake)
        (expire_like_java if java else expire)(self.lake)
        for path in self.referenced & unreachable(self.lake):
            path.unlink()

    # What must hold.

    @invariant()
    def each_row_is_there_once_and_no_batch_is_missing(self) -> None:
        TALLY["steps"] += 1
        table = self.lake.table()
        if table.metadata_location == self.seen:
            return
        self.seen = table.metadata_location
        self.note()
        path = self.path()
        assert self.batches() == list(range(len(self.batches())))
        if path:
            broken = rows_once(counted(self.lake), sum((self.holds[snapshot] for snapshot in path), Counter()))
            assert not broken, "\n".join(map(str, broken))

    @precondition(lambda self: self.rolled_back)
    @rule()
    def an_operator_puts_things_right_and_the_stream_runs(self) -> None:
        """Commits and offsets above the newest batch in the table are deleted; at most one word is needed."""
        self.waiting.clear()
        self.next_batch = len(self.batches())
        options: dict[str, Any] = {}
        if self.rolled_back:
            try:
                self.stream.run(self.next_batch)
            except BatchRefused as refused:
                options = {"accept": offered(refused)["commit"]}
        for batch_id in range(self.next_batch, self.next_batch + 2):
            self.stream.run(batch_id, **options)
            self.note()
            assert len(self.batches()) == batch_id + 1
        self.next_batch = len(self.batches())


def stored(path: str) -> tuple[int, int] | None:
    """Size in bytes and rows of a data file; None if it is not there."""
    local = Path(urlsplit(path).path)
    return (local.stat().st_size, pq.read_metadata(local).num_rows) if local.exists() else None


@dataclass(frozen=True, slots=True)
class Histories:
    """What was tried, without a promise being broken: a broken one is raised, with its shortest history.

    Attributes:
        histories: Histories begun.
        steps: Steps after which the table was judged.
        seconds: Wall time.
    """

    histories: int
    steps: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)


def check(examples: int, steps: int, first: int | None = None) -> None:
    """Run histories; raises what was found.

    Args:
        examples: How many.
        steps: Length of each.
        first: Seed of a run that can be repeated; None draws one.
    """
    machine = AnyHistory if first is None else seed(first)(AnyHistory)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[phase for phase in Phase if phase is not Phase.explain],
        ),
    )


def run(first: int, seconds: float, progress: Callable[[str], None] = lambda _: None) -> Histories:
    """Histories until the time is used up.

    Args:
        first: Seed; every round takes the next one.
        seconds: How long.
        progress: Told now and then how far it is.
    """
    started, before = time.monotonic(), Counter(TALLY)
    for number in itertools.count(first):
        check(EXAMPLES_AT_ONCE, steps=30, first=number)
        done = TALLY - before
        progress(f"{done['histories']:,} histories of real tables, {done['steps']:,} steps")
        if time.monotonic() - started >= seconds:
            return Histories(done["histories"], done["steps"], time.monotonic() - started)
    raise AssertionError("numbers do not end")
