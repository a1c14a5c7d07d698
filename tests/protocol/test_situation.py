"""Each fact of a situation, on the smallest views that have it and that lack it."""

from dataclasses import replace
from typing import Any

import pytest

from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.ledger import FORGOTTEN, LARGEST_NUMBER, Mark, TableView
from lakesink_protocol.situation import CHERRY_PICKED_FROM, Situation
from tests.protocol.verdict_cases import AUDIT, CLICKS, CUT, HISTORY, L2, ROLLED_BACK
from tests.protocol.views import FOREIGN, KEY, Snap, batch, chain, entry, mark, view

NEW = {"lakesink.version": "99", "lakesink.sink-id": KEY.name, "lakesink.branch": KEY.branch}
ENTRY_AT_FIVE = entry(batch(4), 5)
ONE_UNDONE = view(HISTORY, entry(batch(4), 4), elsewhere=chain(batch(4), first=4, parent=103))
PARTLY_KEPT = view(HISTORY, ENTRY_AT_FIVE, elsewhere=chain(batch(4), first=5, parent=104))
BELOW_CUT = {contained: view(CUT, L2, elsewhere=HISTORY, contained=contained) for contained in (True, False)}
TWO_KEPT = {
    contained: view(
        CUT,
        entry(batch(4), 6),
        elsewhere=chain(batch(3), batch(4), first=5, parent=104),
        contained=contained,
        tag_snapshot_id=105,
    )
    for contained in (True, False)
}
REPLACED = view(
    chain(FOREIGN), entry(batch(0), 1, snapshot_id=999), elsewhere=[Snap(999, None, 1, {})], contained=False
)
"""Another first snapshot has taken the place of the entry's."""
ALL_UNDONE = view(chain(FOREIGN), entry(batch(0), 2), elsewhere=chain(batch(0), first=2, parent=101))
UNNUMBERED = Snap(106, None, None, mark(batch(1)).to_summary())
"""Snapshots of a table that was upgraded from version 1 have no sequence number."""
UNNUMBERED_TAG = view(
    [Snap(100, None, 0, mark(batch(0)).to_summary())],
    entry(batch(0), 0),
    elsewhere=[UNNUMBERED],
    tag_snapshot_id=106,
)
LATE = chain(batch(4), mark(batch(1), ledger=4))
"""Batch 1 was accepted after batch 4."""


def then(*summaries: dict[str, str]) -> list[Snap]:
    """Snapshots with these summaries, on the three batches."""
    return [*HISTORY, *(Snap(104 + at, 103 + at, 4 + at, summary) for at, summary in enumerate(summaries))]


@pytest.mark.parametrize(
    ("fact", "seen", "expected"),
    [
        ("entry_in_ancestry", view(HISTORY, L2), True),
        ("entry_in_ancestry", view(HISTORY, entry(batch(0), 1)), True),
        ("entry_in_ancestry", ROLLED_BACK, False),
        ("rolled_back", view(HISTORY), False),
        ("rolled_back", view(HISTORY, L2), False),
        ("rolled_back", ROLLED_BACK, True),
        ("rolled_back", view((), L2, elsewhere=HISTORY), True),
        ("rolled_back", BELOW_CUT[False], True),
        ("rolled_back", BELOW_CUT[True], False),
        ("rolled_back", view(CUT, L2), False),
        ("rolled_back", view(chain(FOREIGN, first=3, parent=102), replace(L2, snapshot_id=999)), False),
        ("unverifiable", view(HISTORY), False),
        ("unverifiable", view(HISTORY, L2), False),
        ("unverifiable", ROLLED_BACK, False),
        ("unverifiable", BELOW_CUT[True], True),
        ("unverifiable", view(CUT, L2), True),
        ("rollback_is_proven", view(HISTORY, L2), False),
        ("rollback_is_proven", ROLLED_BACK, True),
        ("rollback_is_proven", view((), L2, elsewhere=HISTORY), True),
        ("rollback_is_proven", BELOW_CUT[False], False),
        ("rollback_is_proven", view(chain(FOREIGN, first=2, parent=101), L2), True),
        ("rollback_is_proven", REPLACED, True),
        ("undone", view(HISTORY, L2), ()),
        ("undone", ROLLED_BACK, (3, 4)),
        ("undone", view(HISTORY, elsewhere=chain(batch(2), first=4)), ()),
        ("undone", view(chain(FOREIGN), elsewhere=chain(batch(8), batch(0), batch(1), first=2)), (0, 1, 8)),
        ("shows_all_undone", ROLLED_BACK, True),
        ("shows_all_undone", PARTLY_KEPT, False),
        ("has_own_mark", view(chain(FOREIGN, mark(batch(1), CLICKS))), False),
        ("has_own_mark", view(LATE[1:]), True),
        ("newest_own_snapshot", view(chain(FOREIGN)), None),
        ("newest_own_snapshot", view(LATE), 102),
        ("newest_mark", view(LATE), mark(batch(4))),
        ("newest_mark", TWO_KEPT[True], None),
        ("newest_known", TWO_KEPT[True], mark(batch(4))),
        ("newest_known", TWO_KEPT[False], None),
        ("forgotten", view(HISTORY, L2), False),
        ("forgotten", view(then({FORGOTTEN: KEY.ledger_property})), True),
        ("forgotten", view(then({FORGOTTEN: CLICKS.ledger_property})), False),
        ("forgotten", view(then({FORGOTTEN: KEY.ledger_property}, mark(batch(3)).to_summary())), False),
        ("is_blind", view(HISTORY), False),
        ("is_blind", view(then({CHERRY_PICKED_FROM: "77"})), True),
        (
            "is_blind",
            view(then({CHERRY_PICKED_FROM: "77"}), elsewhere=[Snap(77, None, 2, mark(batch(3)).to_summary())]),
            False,
        ),
        ("is_blind", view(then({CHERRY_PICKED_FROM: "77"} | mark(batch(3)).to_summary())), False),
        ("ancestry_complete", view(), True),
        ("ancestry_complete", view(elsewhere=HISTORY), False),
        ("ancestry_complete", view(HISTORY), True),
        ("ancestry_complete", view(chain(FOREIGN, first=2)), False),
        ("ancestry_complete", view([Snap(101, None, None, {}), Snap(102, 101, 2, {})]), True),
        ("newest_elsewhere", view(HISTORY), None),
        ("newest_elsewhere", view(chain(mark(batch(6), AUDIT), mark(batch(5), AUDIT), mark(batch(9), CLICKS))), 6),
        ("newest_elsewhere", replace(view(), elsewhere={"a": entry(batch(4), 1), "b": entry(batch(2), 1)}), 4),
        ("newest_elsewhere", replace(view(), elsewhere={"a": entry(batch(4), 1), "b": None}), LARGEST_NUMBER),
        ("hidden", view(CUT, elsewhere=chain(mark(batch(6), AUDIT))), True),
        ("hidden", view(CUT), False),
        ("hidden", view(HISTORY, elsewhere=chain(mark(batch(6), AUDIT), first=4)), False),
        ("marked_elsewhere", view(CUT, elsewhere=chain(mark(batch(6), AUDIT))), True),
        ("marked_elsewhere", view(HISTORY, elsewhere=chain(mark(batch(6), AUDIT), first=4)), False),
        ("marked_elsewhere", view(chain(mark(batch(6), AUDIT))), True),
        ("marked_elsewhere", view(chain(mark(batch(6), CLICKS))), False),
        ("unread_version", view(HISTORY), None),
        ("unread_version", view(then(NEW)), "99"),
        ("unread_version", view([Snap(101, None, 0, NEW)]), "99"),
        ("unread_version", view(then(NEW), L2), "99"),
        ("unread_version", view([Snap(101, None, None, NEW)], entry(batch(0), 0)), None),
        ("unread_version", view(then(NEW), entry(batch(3), 4)), None),
        ("entry_contradicted", view(HISTORY, L2), False),
        ("entry_contradicted", view(HISTORY, entry(batch(1), 2)), True),
        ("entry_contradicted", view(HISTORY, entry(batch(3), 3)), True),
        ("entry_contradicted", view(HISTORY, replace(L2, sequence_number=4)), True),
        ("entry_contradicted", view(HISTORY, replace(L2, query_id="q2")), True),
        ("entry_contradicted", view(HISTORY, replace(L2, fingerprint="other")), True),
        ("entry_contradicted", view(HISTORY, replace(L2, end="other")), True),
        ("entry_contradicted", view(HISTORY, replace(L2, snapshot_id=999)), False),
        ("entry_contradicted", view(chain(FOREIGN), entry(batch(0), 1)), True),
        ("entry_contradicted", view(LATE, entry(batch(4), 2)), False),
        ("entry_contradicted", view(HISTORY[:2], entry(batch(1), 2), elsewhere=HISTORY[2:], tag_snapshot_id=103), True),
        (
            "entry_contradicted",
            view(HISTORY[:2], entry(batch(1), 2), elsewhere=HISTORY[2:], tag_snapshot_id=102),
            False,
        ),
        (
            "entry_contradicted",
            view(HISTORY[:2], entry(batch(1), 2), elsewhere=HISTORY[2:], tag_snapshot_id=None),
            False,
        ),
        ("entry_contradicted", UNNUMBERED_TAG, False),
        ("entry_contradicted", view(HISTORY, L2, elsewhere=chain(FOREIGN, first=4), tag_snapshot_id=104), False),
    ],
)
def test_a_table_shows(fact: str, seen: TableView, expected: Any) -> None:
    assert getattr(Situation(seen, KEY, batch(3)), fact) == expected


@pytest.mark.parametrize(
    ("fact", "seen", "of", "expected"),
    [
        ("skips_no_rolled_back_batch", ROLLED_BACK, batch(3), True),
        ("skips_no_rolled_back_batch", ROLLED_BACK, batch(4), False),
        ("skips_no_rolled_back_batch", ONE_UNDONE, batch(4), True),
        ("skips_no_rolled_back_batch", ONE_UNDONE, batch(5), False),
        ("skips_no_rolled_back_batch", PARTLY_KEPT, batch(3), True),
        ("skips_no_rolled_back_batch", PARTLY_KEPT, batch(4), False),
        ("skips_no_rolled_back_batch", ALL_UNDONE, batch(0), True),
        ("skips_no_rolled_back_batch", ALL_UNDONE, batch(1), False),
        ("snapshot_of_batch", view(HISTORY), batch(1), 102),
        ("snapshot_of_batch", view(HISTORY), batch(1, end=99), None),
        ("snapshot_of_batch", view(HISTORY), batch(1, "q2"), None),
        ("snapshot_of_batch", view(HISTORY), batch(3), None),
        ("snapshot_of_batch", TWO_KEPT[True], batch(3), 105),
        ("landed", view(HISTORY), batch(1), (mark(batch(1)), 102)),
        ("landed", view(HISTORY), batch(3), None),
        ("landed", view(chain(mark(batch(1), CLICKS))), batch(1), (mark(batch(1), CLICKS), 101)),
        ("newest_of_stream", view(chain(batch(0), mark(batch(1), CLICKS))), batch(3), mark(batch(1), CLICKS)),
        ("newest_of_stream", view(chain(batch(0), mark(batch(1, "q2"), CLICKS))), batch(3), mark(batch(0))),
        ("later_landed", view(chain(batch(0), batch(5), batch(4))), batch(3), 5),
        ("later_landed", view(chain(batch(0), batch(5), batch(4))), batch(4), 5),
        ("later_landed", view(chain(batch(0), batch(5), batch(4))), batch(5), None),
        ("marked_with_other_data", view(HISTORY), batch(1, end=99), True),
        ("marked_with_other_data", view(HISTORY), batch(1), False),
        ("marked_with_other_data", view(HISTORY), batch(3), False),
        ("marked_with_other_data", view(HISTORY), batch(1, "q2"), False),
        ("shows_the_batch_before", view(HISTORY), batch(3), True),
        ("shows_the_batch_before", view(HISTORY), batch(0), True),
        ("shows_the_batch_before", view(CUT), batch(3), False),
        ("shows_the_batch_before", view(chain(batch(2), first=8, parent=107)), batch(3), True),
        ("shows_the_batch_before", view(chain(batch(2), first=8, parent=107)), batch(2), False),
        ("shows_the_batch_before", view(chain(mark(batch(2), ledger=4), first=8, parent=107)), batch(3), False),
        ("shows_the_batch_before", BELOW_CUT[True], batch(3), False),
        ("shows_the_batch_before", view(then({CHERRY_PICKED_FROM: "77"})), batch(3), False),
    ],
)
def test_a_table_shows_of_a_batch(fact: str, seen: TableView, of: Batch, expected: Any) -> None:
    assert getattr(Situation(seen, KEY, of), fact) == expected


@pytest.mark.parametrize(
    ("seen", "snapshots"),
    [
        (view(HISTORY, L2), [103, 102, 101]),
        (view(chain(batch(0), mark(batch(1), CLICKS), mark(batch(2), AUDIT), FOREIGN)), [101]),
        (TWO_KEPT[True], [106, 105]),
        (TWO_KEPT[False], []),
        (view(chain(FOREIGN, first=4, parent=103), elsewhere=chain(batch(3), first=6), tag_snapshot_id=106), []),
        (view((), elsewhere=chain(batch(3), first=6), tag_snapshot_id=106), []),
        (view([Snap(101, None, None, {})], elsewhere=[UNNUMBERED], contained=True, tag_snapshot_id=106), [106]),
        (view(CUT, elsewhere=chain(mark(batch(3), CLICKS), first=6), tag_snapshot_id=106), []),
        (view(HISTORY, entry(batch(1), 2), tag_snapshot_id=101), [103, 102, 101]),
    ],
)
def test_own_marks_come_newest_first_with_those_that_only_the_ledger_keeps(
    seen: TableView, snapshots: list[int]
) -> None:
    assert [snapshot.snapshot_id for _, snapshot in Situation(seen, KEY, batch(3)).own_marks] == snapshots


@pytest.mark.parametrize(
    ("of", "before", "follows"),
    [
        (batch(3), mark(batch(2)), True),
        (batch(3), mark(batch(2), SinkKey("clicks")), True),
        (batch(3), mark(batch(1)), False),
        (batch(3), mark(batch(3)), False),
        (batch(3), mark(batch(2, "q2")), False),
        (batch(3), None, False),
        (batch(3, start=99), mark(batch(2)), False),
        (batch(3, start=None), mark(batch(2)), False),
    ],
)
def test_a_batch_follows_the_one_before_it_where_that_one_ended(
    of: Batch, before: Mark | None, *, follows: bool
) -> None:
    assert Situation(view(), KEY, of).follows(before) is follows
