"""Every row of the verdict table as views made by hand, with the verdict that the protocol writes beside it."""

from dataclasses import dataclass, replace
from typing import Any

from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import Batch, SinkKey, SinkKind, transaction_batch
from lakesink_protocol.ledger import Mark, TableView
from lakesink_protocol.refusals.accept import Accept, accept_of
from lakesink_protocol.situation import CHERRY_PICKED_FROM, Situation
from lakesink_protocol.verdict import Commit, Refuse, Skip, Verdict
from tests.protocol.views import FOREIGN, KEY, OTHER_UUID, UUID, Epoch, Snap, batch, chain, entry, mark, view

AUDIT = SinkKey("events", "audit")
HISTORY = chain(batch(0), batch(1), batch(2))
L2 = entry(batch(2), 3)
"""The ledger after `HISTORY`."""
UNDER_FOREIGN = chain(batch(0), batch(1), batch(2), FOREIGN, FOREIGN)
CUT = chain(FOREIGN, FOREIGN, first=8, parent=107)
"""Two foreign snapshots whose parent expired."""
ROLLED_BACK = view(HISTORY, entry(batch(4), 5), elsewhere=chain(batch(3), batch(4), first=4, parent=103))
"""Batches 3 and 4 were undone; the tag keeps their snapshots."""


@dataclass(frozen=True)
class Case:
    view: TableView
    batch: Batch
    verdict: Verdict
    key: SinkKey = KEY
    start_uuid: str = UUID
    accept: Accept | None = None

    @property
    def situation(self) -> Situation:
        return Situation(self.view, self.key, self.batch, self.start_uuid)


def refused(row: int, reason: Reason, seen: TableView, wanted: Batch, key: SinkKey = KEY, start: str = UUID) -> Case:
    return Case(seen, wanted, Refuse(row, reason), key, start)


def damaged(seen: TableView, wanted: Batch) -> Case:
    return refused(3, Reason.LEDGER_DAMAGED, seen, wanted)


def rolled_back(seen: TableView, wanted: Batch) -> Case:
    return refused(11, Reason.ROLLED_BACK, seen, wanted)


UNKNOWN_START = batch(3, start=None)
CLICKS = SinkKey("clicks")
UNDONE = chain(batch(0), batch(1), first=2, parent=101)
"""Batches 0 and 1 on the first snapshot, rolled back."""
LATE = chain(mark(batch(1), ledger=4), first=6)
"""Batch 1, accepted after batch 4; expiry has cut what came after it."""
KEPT = view(CUT, entry(batch(4), 6), elsewhere=LATE, contained=True)
KEPT_BY_TAG = replace(KEPT, entry=entry(batch(4), 7), tag_snapshot_id=106)
NOWHERE = view(chain(FOREIGN), entry(batch(0), 1, snapshot_id=999))
"""The entry's snapshot is neither in the metadata nor proven to be rolled back."""


def said(snaps: list[Snap], **properties: str) -> list[Snap]:
    """The last of these snapshots has more properties in its summary."""
    return [*snaps[:-1], replace(snaps[-1], summary={**(snaps[-1].summary or {}), **properties})]


def picked(*marks: Mark | Batch | None, source: int) -> list[Snap]:
    """The last of these snapshots is a cherry-pick."""
    return said(chain(*marks), **{CHERRY_PICKED_FROM: str(source)})


def beside(seen: TableView, other: Batch | None) -> TableView:
    """The sink has an entry for another branch too; None for an unreadable one."""
    return replace(seen, elsewhere={"audit": None if other is None else entry(other, 5)})


CASES: dict[str, Case] = {
    # 1
    "format version 3": refused(1, Reason.UNSUPPORTED, view(format_version=3), batch(0)),
    "format version 1": refused(1, Reason.UNSUPPORTED, view(format_version=1), batch(0)),
    "branch missing": refused(1, Reason.BRANCH_MISSING, view(branch_exists=False), batch(0), AUDIT),
    "branch missing though the entry is there": refused(
        1, Reason.BRANCH_MISSING, view((), L2, branch_exists=False), batch(3), AUDIT
    ),
    # 2
    "another table than at the start": refused(2, Reason.TABLE_REPLACED, view(), batch(0), start=OTHER_UUID),
    "a clone carries the entry of another table": refused(
        2, Reason.TABLE_REPLACED, view(HISTORY, replace(L2, table_uuid=OTHER_UUID)), batch(3)
    ),
    "a replaced table with a damaged entry": refused(
        2, Reason.TABLE_REPLACED, view(entry_damage="cut"), batch(0), start=OTHER_UUID
    ),
    # 3
    "entry unreadable": damaged(view(HISTORY, None, entry_damage="not a ledger entry"), batch(3)),
    "entry unreadable on an empty table": damaged(view(entry_damage="not a ledger entry"), batch(0)),
    "entry's snapshot has no mark": damaged(view(chain(batch(0), FOREIGN), entry(batch(1), 2)), batch(2)),
    "entry forged high": damaged(view(HISTORY, replace(L2, batch_id=999)), batch(3)),
    "entry forged high, the batch it names": damaged(view(HISTORY, replace(L2, batch_id=999)), batch(999)),
    "entry forged low": damaged(view(HISTORY, replace(L2, batch_id=1)), batch(2)),
    "entry with another fingerprint": damaged(view(HISTORY, replace(L2, fingerprint="0" * 32)), batch(3)),
    "entry with another query": damaged(view(HISTORY, replace(L2, query_id="q2")), batch(3)),
    "entry with another end": damaged(view(HISTORY, replace(L2, end="0" * 32)), batch(3)),
    "entry with another sequence number": damaged(view(HISTORY, replace(L2, sequence_number=9)), batch(3)),
    "entry at another sink's snapshot": damaged(
        view(chain(mark(batch(0), SinkKey("clicks"))), entry(batch(0), 1)), batch(1)
    ),
    "entry at a snapshot of another branch": damaged(view(chain(mark(batch(0), AUDIT)), entry(batch(0), 1)), batch(1)),
    "entry contradicts a snapshot that was rolled back": damaged(
        view(HISTORY, replace(entry(batch(3), 4), batch_id=9), elsewhere=chain(batch(3), first=4, parent=103)),
        batch(10),
    ),
    "entry set low where expiry cut the walk, but the ledger tag shows a later batch": damaged(
        view(CUT, entry(batch(1), 2), elsewhere=chain(batch(2), first=3), contained=True, tag_snapshot_id=103),
        batch(2),
    ),
    "entry older than a mark above it": damaged(view(HISTORY, entry(batch(1), 2)), batch(2)),
    "a mark of a newer version above the entry": damaged(
        view([*said(HISTORY, **{"lakesink.version": "2"}), *chain(FOREIGN, first=4, parent=103)], entry(batch(1), 2)),
        batch(2),
    ),
    # 4
    "no entry, marks on the walk": refused(4, Reason.LEDGER_LOST, view(HISTORY), batch(3)),
    "no entry, the first batch again": refused(4, Reason.LEDGER_LOST, view(HISTORY), batch(0)),
    "no entry, mark under foreign commits": refused(4, Reason.LEDGER_LOST, view(UNDER_FOREIGN), batch(0)),
    "no entry, the only mark left is of an old batch that was accepted": refused(
        4, Reason.LEDGER_LOST, view(chain(FOREIGN, mark(batch(5), ledger=7), first=9, parent=108)), batch(0)
    ),
    "no entry, a mark that only the tag retains": refused(
        4,
        Reason.LEDGER_LOST,
        view(CUT, None, elsewhere=chain(batch(2), first=3), contained=True, tag_snapshot_id=103),
        batch(0),
    ),
    # 5
    "an empty table, but not the first batch": refused(5, Reason.UNKNOWN_HISTORY, view(), batch(1)),
    "foreign commits, but not the first batch": refused(5, Reason.UNKNOWN_HISTORY, view(chain(FOREIGN)), batch(7)),
    "a branch forked where this sink wrote": refused(5, Reason.UNKNOWN_HISTORY, view(HISTORY), batch(0), AUDIT),
    "main holds what the sink wrote to a branch": refused(
        5, Reason.UNKNOWN_HISTORY, view(chain(FOREIGN, mark(batch(0), AUDIT), FOREIGN)), batch(0)
    ),
    "Iceberg's own sink wrote the first batch": refused(5, Reason.UNKNOWN_HISTORY, view(chain(Epoch(0))), batch(0)),
    "Iceberg's own sink wrote the batch before": refused(
        5, Reason.UNKNOWN_HISTORY, view(chain(FOREIGN, Epoch(6), FOREIGN)), batch(7)
    ),
    "Iceberg's own sink wrote the next batch": refused(
        5, Reason.UNKNOWN_HISTORY, view(chain(batch(0), batch(1), batch(2), Epoch(3)), L2), batch(3)
    ),
    "Iceberg's own sink went on after the entry": refused(
        5, Reason.UNKNOWN_HISTORY, view(chain(batch(0), batch(1), batch(2), Epoch(3), FOREIGN), L2), batch(4)
    ),
    "Iceberg's own sink wrote the entry's batch too": refused(
        5, Reason.UNKNOWN_HISTORY, view(chain(batch(0), batch(1), batch(2), Epoch(2)), L2), batch(3)
    ),
    "rolled back to before the sink took over": refused(
        5,
        Reason.UNKNOWN_HISTORY,
        view(chain(Epoch(0), Epoch(1)), entry(batch(2), 4), elsewhere=chain(Epoch(2), batch(2), first=3, parent=102)),
        batch(0),
    ),
    "new checkpoint where the entry ends, but Iceberg's own sink began it": refused(
        5,
        Reason.UNKNOWN_HISTORY,
        view(chain(batch(0), batch(1), batch(2), Epoch(0, "q2")), L2),
        batch(0, "q2", start=3),
    ),
    "another sink id committed the first batch": refused(
        5, Reason.UNKNOWN_HISTORY, view(chain(mark(batch(0), CLICKS))), batch(0)
    ),
    "another sink id committed the first batch, which an operator accepted late": refused(
        5, Reason.UNKNOWN_HISTORY, view(chain(mark(batch(0), CLICKS, ledger=4))), batch(0)
    ),
    "another sink id committed the second batch of the query": refused(
        5, Reason.UNKNOWN_HISTORY, view(chain(mark(batch(1), CLICKS))), batch(0)
    ),
    "main has what another query wrote to a branch of this sink": refused(
        5, Reason.UNKNOWN_HISTORY, view(chain(mark(batch(0, "q2"), AUDIT))), batch(0)
    ),
    "expiry hides whether main has what this sink wrote to a branch": refused(
        5,
        Reason.UNKNOWN_HISTORY,
        view(CUT, elsewhere=chain(mark(batch(0, "q2"), AUDIT), first=3)),
        batch(0),
    ),
    "a cherry-pick hides whether main has what this sink wrote to a branch": refused(
        5, Reason.UNKNOWN_HISTORY, beside(view(picked(FOREIGN, source=999)), batch(0, "q2")), batch(0)
    ),
    # 6
    "first batch beside a stream of Iceberg's own sink": Case(view(chain(Epoch(3, "q2"))), batch(0), Commit(6)),
    "first batch over an epoch that is no number": Case(view(chain(Epoch("-1"))), batch(0), Commit(6)),
    "first batch of an empty table": Case(view(), batch(0), Commit(6)),
    "first batch, start unknown": Case(view(), batch(0, start=None), Commit(6)),
    "first batch over foreign commits": Case(view(UNDER_FOREIGN[3:]), batch(0), Commit(6)),
    "first batch beside another sink": Case(view(chain(mark(batch(0, "q2"), SinkKey("clicks")))), batch(0), Commit(6)),
    "first batch after history expired": Case(view(CUT), batch(0), Commit(6)),
    "first batch, the sink wrote to a branch, and main's history is complete": Case(
        view(chain(FOREIGN), elsewhere=chain(mark(batch(0, "q2"), AUDIT), first=2, parent=101)), batch(0), Commit(6)
    ),
    "first batch, the sink wrote to a branch, and a cherry-pick restored others' rows": Case(
        beside(view(picked(FOREIGN, source=107), elsewhere=chain(FOREIGN, first=7)), batch(0, "q2")),
        batch(0),
        Commit(6),
    ),
    "first batch, the sink wrote to a branch, and a cherry-pick has another sink's mark": Case(
        beside(view(picked(mark(batch(0, "q2"), CLICKS), source=999)), batch(0, "q2")), batch(0), Commit(6)
    ),
    "first batch after a rollback, the ledger removed": Case(
        view(CUT, elsewhere=chain(batch(0), first=10, parent=109)), batch(0), Commit(6)
    ),
    "first batch, a tag of this name at a snapshot of others": Case(
        view(CUT, elsewhere=chain(FOREIGN, first=3), tag_snapshot_id=103), batch(0), Commit(6)
    ),
    "first batch, a tag of this name at a snapshot of another sink": Case(
        view(CUT, elsewhere=chain(mark(batch(0, "q2"), CLICKS), first=3), tag_snapshot_id=103, contained=True),
        batch(0),
        Commit(6),
    ),
    # 7
    "rolled back, newest batch left": Case(ROLLED_BACK, batch(2), Skip(7, 103)),
    "rolled back, older batch": Case(ROLLED_BACK, batch(0), Skip(7, 101)),
    "rolled back, and the batch was cherry-picked": Case(
        view(
            [*chain(FOREIGN), replace(picked(FOREIGN, source=102)[0], snapshot_id=103, parent_snapshot_id=101)],
            entry(batch(0), 2),
            elsewhere=chain(batch(0), first=2, parent=101),
        ),
        batch(0),
        Skip(7, 103),
    ),
    # 8
    "rolled back, the batch after the newest left": Case(ROLLED_BACK, batch(3), Commit(8)),
    "rolled back and written over by others": Case(
        view([*HISTORY, *chain(FOREIGN, first=6, parent=103)], entry(batch(4), 5)), batch(3), Commit(8)
    ),
    "rolled back, the newest batch left under an old one that was accepted": Case(
        view(
            chain(batch(0), batch(1), mark(batch(0, end=9), ledger=1)),
            entry(batch(2), 4),
            elsewhere=chain(batch(2), first=4, parent=103),
        ),
        batch(2),
        Commit(8),
    ),
    # 9
    "rolled back to before the first batch": Case(
        view(chain(FOREIGN), entry(batch(1), 3), elsewhere=UNDONE),
        batch(0),
        Commit(9),
    ),
    "an entry in a table that never had a snapshot": Case(
        view((), entry(batch(0), 1), last_sequence_number=0), batch(0), Commit(9)
    ),
    # 10
    "rolled back, new checkpoint where the table ends": Case(ROLLED_BACK, batch(0, "q2", start=3), Commit(10)),
    # 11
    "rolled back, the batch after the entry": rolled_back(ROLLED_BACK, batch(5)),
    "rolled back, the entry's batch": rolled_back(ROLLED_BACK, batch(4)),
    "rolled back, the next batch has other offsets": rolled_back(ROLLED_BACK, batch(3, start=99)),
    "rolled back, start of the next batch unknown": rolled_back(ROLLED_BACK, UNKNOWN_START),
    "rolled back, a batch left that has other data": rolled_back(ROLLED_BACK, batch(2, end=99)),
    "rolled back, the next batch of another query": rolled_back(ROLLED_BACK, batch(3, "q2")),
    "rolled back, new checkpoint where the entry ended": rolled_back(ROLLED_BACK, batch(0, "q2", start=5)),
    "rolled back, new checkpoint that starts anywhere": rolled_back(ROLLED_BACK, batch(0, "q2", start=None)),
    "rolled back, new checkpoint's second batch": rolled_back(ROLLED_BACK, batch(1, "q2", start=3)),
    "rolled back to before the first batch, not batch 0": rolled_back(
        view(chain(FOREIGN), entry(batch(1), 3), elsewhere=UNDONE), batch(1)
    ),
    "rolled back to before the first batch, other query": rolled_back(
        view(chain(FOREIGN), entry(batch(1), 3), elsewhere=UNDONE),
        batch(0, "q2"),
    ),
    "rolled back and no mark left, the walk cut": rolled_back(view(CUT, entry(batch(4), 12)), batch(0)),
    "no head": rolled_back(view((), L2, elsewhere=HISTORY), batch(3)),
    "no head and nothing retained": rolled_back(view((), L2, last_sequence_number=3), batch(0)),
    "cut walk, snapshot still in the metadata, no evidence": rolled_back(
        view(CUT, L2, elsewhere=HISTORY, contained=False), batch(3)
    ),
    "rolled back, a later batch that starts where the newest one left ends": rolled_back(
        ROLLED_BACK, batch(5, start=3)
    ),
    "rolled back, batch 0 that starts where the newest one left ends": rolled_back(ROLLED_BACK, batch(0, start=3)),
    "rolled back to before the first batch, which another sink id committed": rolled_back(
        view(chain(mark(batch(0), CLICKS)), entry(batch(1), 3), elsewhere=UNDONE), batch(0)
    ),
    "rolled back to another query's batch, batch 0": rolled_back(
        view(chain(batch(0, "q2")), entry(batch(1), 3), elsewhere=UNDONE), batch(0)
    ),
    "rolled back and no mark left, the walk cut by one snapshot": rolled_back(
        view(
            chain(FOREIGN, first=2, parent=101),
            entry(batch(1), 4),
            elsewhere=chain(batch(0), batch(1), first=3, parent=102),
        ),
        batch(0),
    ),
    "no head, one snapshot was there": rolled_back(view((), entry(batch(0), 1), last_sequence_number=1), batch(0)),
    "no head, an old batch that only the tag keeps": rolled_back(replace(KEPT_BY_TAG, head=None), batch(1)),
    "rolled back, an old batch that only the tag keeps": rolled_back(
        view(chain(FOREIGN), entry(batch(4), 7), elsewhere=LATE, contained=True, tag_snapshot_id=106), batch(1)
    ),
    # 12
    "new checkpoint where the entry ends": Case(view(HISTORY, L2), batch(0, "q2", start=3), Commit(12)),
    # 13
    "new checkpoint from the beginning": refused(13, Reason.NEW_CHECKPOINT, view(HISTORY, L2), batch(0, "q2")),
    "new checkpoint, start unknown": refused(13, Reason.NEW_CHECKPOINT, view(HISTORY, L2), batch(0, "q2", start=None)),
    "new checkpoint, not its first batch": refused(
        13, Reason.NEW_CHECKPOINT, view(HISTORY, L2), batch(1, "q2", start=3)
    ),
    "another query with the next batch": refused(13, Reason.NEW_CHECKPOINT, view(HISTORY, L2), batch(3, "q2")),
    "another query with the entry's batch": refused(13, Reason.NEW_CHECKPOINT, view(HISTORY, L2), batch(2, "q2")),
    # 14
    "the entry's batch again": Case(view(HISTORY, L2), batch(2), Skip(14, 103)),
    "again under foreign commits": Case(view(UNDER_FOREIGN, L2), batch(2), Skip(14, 103)),
    "again after everything expired": Case(view(CUT, L2), batch(2), Skip(14, 103, unverifiable=True)),
    "again, path cut but evidence found": Case(
        view(CUT, L2, elsewhere=HISTORY, contained=True), batch(2), Skip(14, 103, unverifiable=True)
    ),
    "again, the entry's snapshot is nowhere": Case(NOWHERE, batch(0), Skip(14, 999, unverifiable=True)),
    # 15
    "the entry's batch with other data": refused(15, Reason.BATCH_CHANGED, view(HISTORY, L2), batch(2, end=99)),
    "the entry's batch from another start": refused(15, Reason.BATCH_CHANGED, view(HISTORY, L2), batch(2, start=0)),
    # 16
    "the next batch": Case(view(HISTORY, L2), batch(3), Commit(16)),
    "the next batch over foreign commits": Case(view(UNDER_FOREIGN, L2), batch(3), Commit(16)),
    "the next batch after everything expired": Case(view(CUT, L2), batch(3), Commit(16, unverifiable=True)),
    "the next batch, path cut but evidence found": Case(
        view(CUT, L2, elsewhere=HISTORY, contained=True), batch(3), Commit(16, unverifiable=True)
    ),
    "the next batch after Iceberg's own sink ended": Case(
        view(chain(Epoch(0), Epoch(1), batch(2)), L2), batch(3), Commit(16)
    ),
    "the next batch under another sink's": Case(
        view(chain(batch(0), batch(1), batch(2), mark(batch(0, "q2"), CLICKS)), L2), batch(3), Commit(16)
    ),
    "the next batch, the tag moved to others' snapshot": Case(
        view(UNDER_FOREIGN, L2, tag_snapshot_id=105), batch(3), Commit(16)
    ),
    # 17
    "the next batch starts elsewhere": refused(17, Reason.BATCH_CHANGED, view(HISTORY, L2), batch(3, start=99)),
    "start of the next batch unknown": refused(17, Reason.BATCH_CHANGED, view(HISTORY, L2), UNKNOWN_START),
    "the next batch has the entry's data": refused(
        17, Reason.BATCH_CHANGED, view(HISTORY, L2), batch(3, start=2, end=3)
    ),
    # 18
    "an older batch that the walk shows": Case(view(HISTORY, L2), batch(0), Skip(18, 101)),
    "the batch before the entry's": Case(view(HISTORY, L2), batch(1), Skip(18, 102)),
    "an older batch that only the entry keeps": Case(KEPT, batch(1), Skip(18, 106, unverifiable=True)),
    "an older batch that only the tag keeps": Case(KEPT_BY_TAG, batch(1), Skip(18, 106, unverifiable=True)),
    # 19
    "an older batch with other data": refused(19, Reason.REWOUND, view(HISTORY, L2), batch(1, end=99)),
    "an older batch with the data of another": refused(19, Reason.REWOUND, view(HISTORY, L2), batch(1, start=0, end=1)),
    "an older batch that expired": refused(19, Reason.REWOUND, view(CUT, L2), batch(1)),
    "batch 0 that starts where the entry ends": refused(19, Reason.REWOUND, view(HISTORY, L2), batch(0, start=3)),
    "an older batch at a snapshot that the entry keeps and that was rolled back": rolled_back(
        replace(KEPT, branch_contains=lambda _: False), batch(1)
    ),
    "an older batch at a snapshot that the tag keeps and that was rolled back": refused(
        19, Reason.REWOUND, replace(KEPT_BY_TAG, branch_contains=lambda _: False), batch(1)
    ),
    # 20
    "one batch is missing": refused(20, Reason.GAP, view(HISTORY, L2), batch(4)),
    "many batches are missing": refused(20, Reason.GAP, view(HISTORY, L2), batch(4000)),
    "one batch is missing, starting where the entry ends": refused(
        20, Reason.GAP, view(HISTORY, L2), batch(4, start=3)
    ),
    "a batch of before the query came back at an older one": refused(
        20,
        Reason.GAP,
        view(chain(*map(batch, range(6)), batch(0, "q2"), batch(2, end=9)), entry(batch(2, end=9), 8)),
        batch(5),
    ),
}

LOAD = SinkKey("nightly", kind=SinkKind.TXN)


def load(number: int, key: SinkKey = LOAD, **changed: Any) -> Mark:
    return mark(transaction_batch(number), key, **changed)


LOADED = view(chain(FOREIGN, load(3), load(8)), entry(transaction_batch(8), 3))
UNLOADED = view(
    chain(FOREIGN, load(3)),
    entry(transaction_batch(8), 4),
    elsewhere=chain(load(5), load(8), first=3, parent=102),
)
EXPIRED = view(CUT, entry(transaction_batch(8), 3))
LOAD_AUDIT = replace(LOAD, branch="audit")
FORKED = view(chain(FOREIGN, mark(transaction_batch(3), LOAD_AUDIT)))
UNDONE_LOAD = chain(load(0), load(5), first=2, parent=101)
HIDDEN = beside(view(CUT), transaction_batch(5))
"""Expiry hides whether the branch has versions up to 5."""


def unloaded(*walk: Mark | None, undone: Mark, first: int = 1) -> TableView:
    """The ledger's version was rolled back to this ancestry."""
    snaps = chain(*walk, first=first, parent=99 + first if first > 1 else None)
    sequence_number = first + len(walk)
    off = chain(undone, first=sequence_number, parent=99 + sequence_number)
    return view(snaps, entry(transaction_batch(undone.batch_id), sequence_number), elsewhere=off)


def version(seen: TableView, number: int, verdict: Verdict | tuple[int, Reason], key: SinkKey = LOAD) -> Case:
    """A version of a transaction application."""
    return Case(seen, transaction_batch(number), Refuse(*verdict) if isinstance(verdict, tuple) else verdict, key)


def without(seen: TableView, *expired: int) -> TableView:
    """The view after expiry of these snapshots."""
    return replace(seen, snapshots={found: snap for found, snap in seen.snapshots.items() if found not in expired})


TRANSACTIONS: dict[str, Case] = {
    "first version of all": version(view(), 0, Commit(6)),
    "first version is any number": version(view(chain(FOREIGN)), 42, Commit(6)),
    "beside a stream of the same name": version(view(chain(mark(batch(0), SinkKey("nightly")))), 1, Commit(6)),
    "the ledger was removed": version(replace(LOADED, entry=None), 9, (4, Reason.LEDGER_LOST)),
    "a higher version": version(LOADED, 9, Commit(16)),
    "a much higher version": version(LOADED, 10**12, Commit(16)),
    "the same version": version(LOADED, 8, Skip(14, 103)),
    "the same version after everything expired": version(EXPIRED, 8, Skip(14, 103, unverifiable=True)),
    "a lower version that is there": version(LOADED, 3, Skip(18, 102)),
    "a lower version that is not there": version(LOADED, 5, (19, Reason.REWOUND)),
    "a lower version that expired": version(EXPIRED, 3, (19, Reason.REWOUND)),
    "rolled back, a version that stayed": version(UNLOADED, 3, Skip(7, 102)),
    "rolled back, the last version before one that was undone too": version(UNLOADED, 8, (11, Reason.ROLLED_BACK)),
    "rolled back, the last version where nothing else was undone": version(replace(UNLOADED, head=103), 8, Commit(8)),
    "rolled back, the last version where expiry hides what was undone": version(
        without(UNLOADED, 103), 8, (11, Reason.ROLLED_BACK)
    ),
    "rolled back, the version right after M though expiry hides what was undone": version(
        without(UNLOADED, 103, 104), 4, Commit(8)
    ),
    "rolled back, a version between": version(UNLOADED, 5, Commit(8)),
    "rolled back, a version below what stayed": version(UNLOADED, 2, (11, Reason.ROLLED_BACK)),
    "rolled back, a version beyond": version(UNLOADED, 9, (11, Reason.ROLLED_BACK)),
    "rolled back to before the first version": version(replace(UNLOADED, head=101), 3, Commit(9)),
    "rolled back, no head": version(replace(UNLOADED, head=None), 8, (11, Reason.ROLLED_BACK)),
    "another table": version(replace(LOADED, table_uuid=OTHER_UUID), 9, (2, Reason.TABLE_REPLACED)),
    "another format": version(replace(LOADED, format_version=3), 9, (1, Reason.UNSUPPORTED)),
    "a version that came with a fork": version(FORKED, 3, (5, Reason.UNKNOWN_HISTORY)),
    "a version right after one that came with a fork": version(FORKED, 4, Commit(6)),
    "a fork of another application": version(FORKED, 3, Commit(6), SinkKey("weekly", kind=SinkKind.TXN)),
    "a fork has the version after the entry's": version(
        view(chain(load(2, LOAD_AUDIT), load(1)), entry(transaction_batch(1), 2)), 2, (5, Reason.UNKNOWN_HISTORY)
    ),
    "expiry hides whether a fork has the version": version(HIDDEN, 4, (5, Reason.UNKNOWN_HISTORY)),
    "expiry hides whether a fork has the newest version": version(HIDDEN, 5, (5, Reason.UNKNOWN_HISTORY)),
    "a version above all that expiry can hide": version(HIDDEN, 6, Commit(6)),
    "expiry hides versions up to an entry that is unreadable": version(
        beside(view(CUT), None), 10**12, (5, Reason.UNKNOWN_HISTORY)
    ),
    "expiry hides nothing of a complete history": version(
        beside(view(chain(FOREIGN)), transaction_batch(5)), 4, Commit(6)
    ),
    "expiry hides nothing above a lower version of a fork": version(
        beside(view(chain(load(3, LOAD_AUDIT), first=9, parent=108)), transaction_batch(5)), 4, Commit(6)
    ),
    "a higher version of a fork does not show what expiry hides": version(
        beside(view(chain(load(5, LOAD_AUDIT), first=9, parent=108)), transaction_batch(5)),
        4,
        (5, Reason.UNKNOWN_HISTORY),
    ),
    "a lower version that was accepted late does not show what expiry hides": version(
        beside(view(chain(load(3, LOAD_AUDIT, ledger=5), first=9, parent=108)), transaction_batch(5)),
        4,
        (5, Reason.UNKNOWN_HISTORY),
    ),
    "expiry hides nothing of this application": version(
        view(CUT, elsewhere=chain(load(9, SinkKey("weekly", "audit", SinkKind.TXN)), first=3)), 4, Commit(6)
    ),
    "a higher version where expiry hides what forks have": version(
        beside(view(CUT, entry(transaction_batch(3), 3)), transaction_batch(5)), 4, Commit(16, unverifiable=True)
    ),
    "the version right below the entry's": version(LOADED, 7, (19, Reason.REWOUND)),
    "a lower version that only the entry keeps": version(
        view(CUT, entry(transaction_batch(4), 6), elsewhere=chain(load(1, ledger=4), first=6), contained=True),
        1,
        Skip(18, 106, unverifiable=True),
    ),
    "a lower version, the entry's snapshot is nowhere": version(
        view(chain(load(3), first=3, parent=102), entry(transaction_batch(8), 3, snapshot_id=999)),
        4,
        (19, Reason.REWOUND),
    ),
    "rolled back, the version after the entry's and M's": version(
        unloaded(load(3), undone=load(3)), 4, (11, Reason.ROLLED_BACK)
    ),
    "rolled back, M's version with other data": version(
        unloaded(replace(load(3), fingerprint="0" * 32), undone=load(8)), 3, (11, Reason.ROLLED_BACK)
    ),
    "rolled back, others' commits and versions that came again were undone too": version(
        view(
            chain(FOREIGN, load(3)),
            entry(transaction_batch(8), 6),
            elsewhere=[
                *chain(load(3), first=3, parent=101),
                *chain(FOREIGN, load(4, LOAD_AUDIT), load(8), first=4, parent=102),
            ],
            last_sequence_number=6,
        ),
        8,
        Commit(8),
    ),
    "rolled back, a higher version is under M": version(unloaded(load(5), load(3), undone=load(8)), 8, Commit(8)),
    "rolled back to before the only version": version(unloaded(FOREIGN, undone=load(8)), 8, Commit(9)),
    "rolled back to before the first version, one that was undone is below": version(
        replace(UNLOADED, head=101), 5, (11, Reason.ROLLED_BACK)
    ),
    "rolled back to before the first version, version 0 is below": version(
        view(chain(FOREIGN), entry(transaction_batch(5), 3), elsewhere=UNDONE_LOAD), 5, (11, Reason.ROLLED_BACK)
    ),
    "rolled back to before the first version, which a fork has": version(
        unloaded(load(3, LOAD_AUDIT), undone=load(8)), 3, (11, Reason.ROLLED_BACK)
    ),
    "rolled back and no mark left, the walk cut": version(
        unloaded(FOREIGN, undone=load(8), first=8), 5, (11, Reason.ROLLED_BACK)
    ),
    "entry forged high": version(
        replace(LOADED, entry=entry(transaction_batch(8), 3, batch_id=99)), 99, (3, Reason.LEDGER_DAMAGED)
    ),
}


def overruled(name: str, verdict: Verdict, *, missing: int = 0, reason: Reason | None = None, **changed: Any) -> Case:
    """The case with the accept of its refusal, or with a changed one."""
    case = CASES[name]
    wanted = replace(case.batch, missing_inputs=("gone",) * missing)
    found = case.verdict.reason if isinstance(case.verdict, Refuse) else Reason.INPUT_MISSING
    word = replace(accept_of(reason or found, case.situation, adds_rows=True), **changed)
    verdict = replace(verdict, accepted=str(word)) if isinstance(verdict, Commit) else verdict
    return replace(case, batch=wanted, verdict=verdict, accept=word)


GAP = CASES["one batch is missing"].verdict
ACCEPTED: dict[str, Case] = {
    "this refusal": overruled("one batch is missing", Commit(20)),
    "another refusal": overruled("one batch is missing", GAP, reason=Reason.REWOUND),
    "another batch": overruled("one batch is missing", GAP, batch_id=5),
    "another state of the ledger": overruled("one batch is missing", GAP, against="2-000000"),
    "what is not offered": overruled(
        "another sink id committed the first batch", CASES["another sink id committed the first batch"].verdict
    ),
    "an older batch": overruled("an older batch that expired", Commit(19, moves_ledger=False, unverifiable=True)),
    "missing inputs": overruled("the next batch", Commit(16, without_inputs=2), missing=2),
    "a gap and not missing inputs": overruled("one batch is missing", Commit(20), missing=2),
    "a gap and missing inputs": overruled(
        "one batch is missing", Commit(20, without_inputs=2), missing=2, without_inputs=True
    ),
}
EVERY = CASES | {f"transaction: {name}": case for name, case in TRANSACTIONS.items()}
EVERY |= {f"accepted: {name}": case for name, case in ACCEPTED.items()}
