"""Every row of the verdict table as views made by hand, with the verdict that the protocol writes beside it."""

from dataclasses import dataclass, replace

from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.ledger import TableView
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Commit, Refuse, Skip, Verdict
from tests.protocol.views import FOREIGN, KEY, OTHER_UUID, UUID, Epoch, batch, chain, entry, mark, view

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
    # 4
    "no entry, marks on the walk": refused(4, Reason.LEDGER_LOST, view(HISTORY), batch(3)),
    "no entry, the first batch again": refused(4, Reason.LEDGER_LOST, view(HISTORY), batch(0)),
    "no entry, mark under foreign commits": refused(4, Reason.LEDGER_LOST, view(UNDER_FOREIGN), batch(0)),
    "no entry, the only mark left is of an old batch that was accepted": refused(
        4, Reason.LEDGER_LOST, view(chain(FOREIGN, mark(batch(5), ledger=7), first=9, parent=108)), batch(0)
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
    # 6
    "first batch beside a stream of Iceberg's own sink": Case(view(chain(Epoch(3, "q2"))), batch(0), Commit(6)),
    "first batch over an epoch that is no number": Case(view(chain(Epoch("-1"))), batch(0), Commit(6)),
    "first batch of an empty table": Case(view(), batch(0), Commit(6)),
    "first batch, start unknown": Case(view(), batch(0, start=None), Commit(6)),
    "first batch over foreign commits": Case(view(UNDER_FOREIGN[3:]), batch(0), Commit(6)),
    "first batch beside another sink": Case(view(chain(mark(batch(0, "q2"), SinkKey("clicks")))), batch(0), Commit(6)),
    "first batch after history expired": Case(view(CUT), batch(0), Commit(6)),
    # 7
    "rolled back, newest batch left": Case(ROLLED_BACK, batch(2), Skip(7, 103)),
    "rolled back, older batch": Case(ROLLED_BACK, batch(0), Skip(7, 101)),
    # 8
    "rolled back, the batch after the newest left": Case(ROLLED_BACK, batch(3), Commit(8)),
    "rolled back and written over by others": Case(
        view([*HISTORY, *chain(FOREIGN, first=6, parent=103)], entry(batch(4), 5)), batch(3), Commit(8)
    ),
    # 9
    "rolled back to before the first batch": Case(
        view(chain(FOREIGN), entry(batch(1), 3), elsewhere=chain(batch(0), batch(1), first=2, parent=101)),
        batch(0),
        Commit(9),
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
        view(chain(FOREIGN), entry(batch(1), 3), elsewhere=chain(batch(0), batch(1), first=2, parent=101)), batch(1)
    ),
    "rolled back to before the first batch, other query": rolled_back(
        view(chain(FOREIGN), entry(batch(1), 3), elsewhere=chain(batch(0), batch(1), first=2, parent=101)),
        batch(0, "q2"),
    ),
    "rolled back and no mark left, the walk cut": rolled_back(view(CUT, entry(batch(4), 12)), batch(0)),
    "no head": rolled_back(view((), L2, elsewhere=HISTORY), batch(3)),
    "no head and nothing retained": rolled_back(view((), L2, last_sequence_number=3), batch(0)),
    "cut walk, snapshot still in the metadata, no evidence": rolled_back(
        view(CUT, L2, elsewhere=HISTORY, contained=False), batch(3)
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
    # 17
    "the next batch starts elsewhere": refused(17, Reason.BATCH_CHANGED, view(HISTORY, L2), batch(3, start=99)),
    "start of the next batch unknown": refused(17, Reason.BATCH_CHANGED, view(HISTORY, L2), UNKNOWN_START),
    # 18
    "an older batch that the walk shows": Case(view(HISTORY, L2), batch(0), Skip(18, 101)),
    # 19
    "an older batch with other data": refused(19, Reason.REWOUND, view(HISTORY, L2), batch(1, end=99)),
    "an older batch that expired": refused(19, Reason.REWOUND, view(CUT, L2), batch(1)),
    # 20
    "one batch is missing": refused(20, Reason.GAP, view(HISTORY, L2), batch(4)),
    "many batches are missing": refused(20, Reason.GAP, view(HISTORY, L2), batch(4000)),
}
