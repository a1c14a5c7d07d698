"""The verdict table decides as the protocol writes it; who may overrule it; what holds whatever a table shows."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink_protocol.accept import Accept, accept_of
from lakesink_protocol.choices import choices
from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import Batch, SinkKey, SinkKind, transaction_batch
from lakesink_protocol.ledger import TableView, mark_of
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Commit, Refuse, Skip, Verdict, decide
from tests.protocol.verdict_cases import CASES, CUT, L2, UNDER_FOREIGN
from tests.protocol.views import FOREIGN, KEY, OTHER_UUID, UUID, batch, chain, entry, mark, view


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_table_decides_as_written(name: str) -> None:
    case = CASES[name]
    assert decide(case.situation) == case.verdict


def test_every_row_of_the_table_has_a_case() -> None:
    assert {case.verdict.rule for case in CASES.values()} == set(range(1, 21))


LOAD = SinkKey("nightly", kind=SinkKind.TXN)
OVERRULABLE = {name: case for name, case in CASES.items() if isinstance(case.verdict, Refuse) and case.verdict.rule > 3}


@pytest.mark.parametrize("adds_rows", [True, False], ids=["commit", "skip"])
@pytest.mark.parametrize("name", OVERRULABLE)
def test_an_operator_overrules_one_refusal_of_one_batch_by_what_is_offered(name: str, adds_rows: bool) -> None:  # noqa: FBT001 - a case
    case = OVERRULABLE[name]
    assert isinstance(case.verdict, Refuse)
    n, reason = case.batch.batch_id, case.verdict.reason
    word = accept_of(reason, case.situation, adds_rows=adds_rows)
    accepted = decide(case.situation, word)
    if adds_rows not in {choice.adds_rows for choice in choices(reason, case.situation)}:
        assert accepted == case.verdict
        return
    assert isinstance(accepted, Commit)
    assert (accepted.rule, accepted.adds_rows) == (case.verdict.rule, adds_rows)
    assert accepted.accepted == f"{reason.value}:{n}@{word.against}:{'commit' if adds_rows else 'skip'}"
    assert accepted.moves_ledger == (reason is not Reason.REWOUND)
    other = next(other for other in Reason if other is not reason)
    changed: list[dict[str, Any]] = [
        {"batch_id": n + 1},
        {"reason": other},
        {"against": ""},
        {"against": "none-000000"},
    ]
    for change in changed:
        assert decide(case.situation, replace(word, **change)) == case.verdict


@pytest.mark.parametrize("name", OVERRULABLE)
def test_no_choice_adds_rows_that_are_there_or_leads_to_a_batch_that_comes_twice(name: str) -> None:
    case = OVERRULABLE[name]
    assert isinstance(case.verdict, Refuse)
    there = [mark for snap in case.view.ancestry() if (mark := mark_of(snap.summary)) is not None]
    same = [mark for mark in there if mark.query_id == case.batch.query_id]
    offers = choices(case.verdict.reason, case.situation)
    if any(mark.fingerprint == case.batch.fingerprint for mark in same):
        assert not any(choice.adds_rows for choice in offers)
    if any(mark.batch_id > case.batch.batch_id for mark in same) and case.verdict.reason is not Reason.REWOUND:
        assert offers == ()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.verdict.rule <= 3])
def test_nobody_overrules_what_the_table_itself_forbids(name: str) -> None:
    case = CASES[name]
    assert isinstance(case.verdict, Refuse)
    n, reason = case.batch.batch_id, case.verdict.reason
    with pytest.raises(ValueError, match="is not one of"):
        Accept.parse(f"{reason.value}:{n}@none:commit")
    assert decide(case.situation, accept_of(reason, case.situation, adds_rows=True)) == case.verdict


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not isinstance(case.verdict, Refuse)])
def test_accepting_a_refusal_changes_no_other_verdict(name: str, reason: Reason) -> None:
    case = CASES[name]
    assert decide(case.situation, accept_of(reason, case.situation, adds_rows=True)) == case.verdict


@pytest.mark.parametrize(
    "text",
    [
        *("Gap:4@2-0a1b2c:commit", "RolledBack:0@7-ffffff:skip", "NewCheckpoint:12345678901@1-000000:commit"),
        *("UnknownHistory:7@none:skip", "LedgerLost:7@none-0a1b2c:commit", "Rewound:7:skip"),
        "NewCheckpoint+InputMissing:0@6-0a1b2c:commit",
    ],
)
def test_an_acceptance_is_spelled_as_it_is_read(text: str) -> None:
    assert str(Accept.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "Gap", "Gap:4", "Gap:4:", "Gap:4:both", "gap:4:commit", "Gap:4:commit:4", "*:4:commit", "Gap:*:commit"),
        *("Gap:-1:commit", "Gap:+4:commit", "Gap: 4:commit", "Gap:\u0664:commit", "Gap:4.0:commit"),
        *(
            "Gap+InputMissing:4:skip",
            "InputMissing+InputMissing:4:commit",
            "Gap+Rewound:4:commit",
            "+InputMissing:4:commit",
        ),
        *("Gap:4@:commit", "Gap:4@1@2:commit", "Gap:4@*:commit", "Gap:4@1-0a:both", "Gap@1-0a1b2c:4:commit"),
    ],
)
def test_an_acceptance_that_is_not_exact_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|is not one of"):
        Accept.parse(text)


def test_a_word_works_once_for_every_commit_of_the_sink_changes_the_state_that_it_names() -> None:
    lost = CASES["new checkpoint from the beginning"]
    word = accept_of(Reason.NEW_CHECKPOINT, lost.situation, adds_rows=True)
    assert isinstance(decide(lost.situation, word), Commit)
    after = view(chain(batch(0), batch(1), batch(2), batch(0, "q2")), entry(batch(0, "q2"), 4))
    again = view(chain(batch(0, "q2"), batch(1, "q2"), batch(2, "q2"), first=4), entry(batch(2, "q2"), 6))
    for seen in (after, again):
        lost_again = Situation(seen, KEY, batch(0, "q3"), UUID)
        assert decide(lost_again, word) == Refuse(13, Reason.NEW_CHECKPOINT)
    others = view(UNDER_FOREIGN, L2)
    assert isinstance(decide(Situation(others, KEY, lost.batch, UUID), word), Commit), "others' commits change nothing"


ACCEPTED_LATE = chain(mark(batch(1), ledger=4), first=6)
"""Batch 1, accepted after batch 4; expiry has cut what came after it."""
KEPT = view(CUT, entry(batch(4), 6), elsewhere=ACCEPTED_LATE, contained=True)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(KEPT, id="by the entry"),
        pytest.param(replace(KEPT, entry=entry(batch(4), 7), tag_snapshot_id=106), id="by the tag"),
    ],
)
def test_a_batch_that_only_the_ledger_keeps_is_not_committed_again(seen: TableView) -> None:
    situation = Situation(seen, KEY, batch(1), UUID)
    assert decide(situation) == Skip(18, 106, unverifiable=True)
    assert isinstance(decide(Situation(seen, KEY, batch(2), UUID)), Refuse)


def test_a_batch_at_a_kept_snapshot_that_was_rolled_back_is_not_there() -> None:
    rolled_back = replace(KEPT, branch_contains=lambda _: False)
    assert isinstance(decide(Situation(rolled_back, KEY, batch(1), UUID)), Refuse)


def test_a_version_that_only_the_ledger_keeps_is_not_appended_again() -> None:
    late = mark(transaction_batch(1), LOAD, ledger=4)
    seen = view(CUT, entry(transaction_batch(4), 6), elsewhere=chain(late, first=6), contained=True)
    assert decide(Situation(seen, LOAD, transaction_batch(1), UUID)) == Skip(18, 106, unverifiable=True)


def test_a_ledger_tag_without_an_entry_is_a_lost_ledger_though_expiry_cut_the_walk() -> None:
    seen = view(CUT, None, elsewhere=chain(batch(2), first=3), contained=True, tag_snapshot_id=103)
    assert decide(Situation(seen, KEY, batch(0), UUID)) == Refuse(4, Reason.LEDGER_LOST)


def test_a_version_that_came_with_a_fork_is_not_appended_to_the_branch_again() -> None:
    forked = view(chain(FOREIGN, mark(transaction_batch(3), LOAD)))
    there = SinkKey("nightly", "audit", SinkKind.TXN)
    assert decide(Situation(forked, there, transaction_batch(3), UUID)) == Refuse(5, Reason.UNKNOWN_HISTORY)
    assert isinstance(decide(Situation(forked, there, transaction_batch(4), UUID)), Commit)
    other = SinkKey("weekly", "audit", SinkKind.TXN)
    assert isinstance(decide(Situation(forked, other, transaction_batch(3), UUID)), Commit)


def test_a_first_batch_that_another_sink_id_committed_is_not_committed_again() -> None:
    seen = view(chain(mark(batch(0), SinkKey("before"))))
    situation = Situation(seen, KEY, batch(0), UUID)
    assert decide(situation) == Refuse(5, Reason.UNKNOWN_HISTORY)
    assert [choice.adds_rows for choice in choices(Reason.UNKNOWN_HISTORY, situation)] == [False]
    assert isinstance(decide(Situation(seen, KEY, batch(0, "q2"), UUID)), Commit), "another query's batch is another"


LOADED = view(
    chain(FOREIGN, mark(transaction_batch(3), LOAD), mark(transaction_batch(8), LOAD)), entry(transaction_batch(8), 3)
)
UNLOADED = view(
    chain(FOREIGN, mark(transaction_batch(3), LOAD)),
    entry(transaction_batch(8), 4),
    elsewhere=chain(mark(transaction_batch(5), LOAD), mark(transaction_batch(8), LOAD), first=3, parent=102),
)
TRANSACTIONS: dict[str, tuple[TableView, int, type[Verdict] | Reason, int | None]] = {
    "first version of all": (view(), 0, Commit, None),
    "first version is any number": (view(chain(FOREIGN)), 42, Commit, None),
    "beside a stream of the same name": (view(chain(mark(batch(0), SinkKey("nightly")))), 1, Commit, None),
    "the ledger was removed": (replace(LOADED, entry=None), 9, Reason.LEDGER_LOST, None),
    "a higher version": (LOADED, 9, Commit, None),
    "a much higher version": (LOADED, 10**12, Commit, None),
    "the same version": (LOADED, 8, Skip, 103),
    "the same version after everything expired": (view(CUT, entry(transaction_batch(8), 3)), 8, Skip, 103),
    "a lower version that is there": (LOADED, 3, Skip, 102),
    "a lower version that is not there": (LOADED, 5, Reason.REWOUND, None),
    "a lower version that expired": (view(CUT, entry(transaction_batch(8), 3)), 3, Reason.REWOUND, None),
    "rolled back, a version that stayed": (UNLOADED, 3, Skip, 102),
    "rolled back, the last version before one that was undone too": (
        UNLOADED,
        8,
        Reason.ROLLED_BACK,
        None,
    ),
    "rolled back, the last version where nothing else was undone": (
        replace(UNLOADED, head=103),
        8,
        Commit,
        None,
    ),
    "rolled back, the last version where expiry hides what was undone": (
        replace(UNLOADED, snapshots={number: snap for number, snap in UNLOADED.snapshots.items() if number != 103}),
        8,
        Reason.ROLLED_BACK,
        None,
    ),
    "rolled back, the version right after M though expiry hides what was undone": (
        replace(UNLOADED, snapshots={number: snap for number, snap in UNLOADED.snapshots.items() if number < 103}),
        4,
        Commit,
        None,
    ),
    "rolled back, a version between": (UNLOADED, 5, Commit, None),
    "rolled back, a version below what stayed": (UNLOADED, 2, Reason.ROLLED_BACK, None),
    "rolled back, a version beyond": (UNLOADED, 9, Reason.ROLLED_BACK, None),
    "rolled back to before the first version": (replace(UNLOADED, head=101), 3, Commit, None),
    "rolled back, no head": (replace(UNLOADED, head=None), 8, Reason.ROLLED_BACK, None),
    "another table": (replace(LOADED, table_uuid=OTHER_UUID), 9, Reason.TABLE_REPLACED, None),
    "another format": (replace(LOADED, format_version=3), 9, Reason.UNSUPPORTED, None),
    "entry forged high": (
        replace(LOADED, entry=entry(transaction_batch(8), 3, batch_id=99)),
        99,
        Reason.LEDGER_DAMAGED,
        None,
    ),
}


@pytest.mark.parametrize("name", TRANSACTIONS)
def test_transactions_commit_growing_versions_and_skip_those_that_are_there(name: str) -> None:
    seen, version, wanted, snapshot_id = TRANSACTIONS[name]
    verdict = decide(Situation(seen, LOAD, transaction_batch(version), UUID))
    if isinstance(wanted, Reason):
        assert isinstance(verdict, Refuse)
        assert verdict.reason is wanted
    else:
        assert isinstance(verdict, wanted)
        assert snapshot_id is None or (isinstance(verdict, Skip) and verdict.snapshot_id == snapshot_id)


MARKED = st.sampled_from([FOREIGN, *(batch(n, query) for n in range(4) for query in ("q1", "q2"))])


@given(
    on_walk=st.lists(MARKED, max_size=5),
    elsewhere=st.lists(MARKED, max_size=3),
    ledger=st.none() | st.tuples(st.integers(0, 4), st.sampled_from(["q1", "q2"]), st.integers(1, 9)),
    first=st.integers(1, 3),
    wanted=st.builds(
        batch,
        st.integers(0, 5),
        st.sampled_from(["q1", "q2"]),
        start=st.sampled_from(["follows", None, 0, 2, 4]),
    ),
    contained=st.booleans(),
)
def test_whatever_the_table_shows_no_batch_is_doubled_or_dropped(
    on_walk: list[Batch | None],
    elsewhere: list[Batch | None],
    ledger: tuple[int, str, int] | None,
    first: int,
    wanted: Batch,
    contained: bool,  # noqa: FBT001 - drawn
) -> None:
    walk = chain(*on_walk, first=first, parent=None if first == 1 else 99)
    beside = chain(*elsewhere, first=first + len(on_walk), parent=None)
    known = entry(batch(ledger[0], ledger[1]), ledger[2]) if ledger else None
    seen = view(walk, known, elsewhere=beside, contained=contained)
    verdict = decide(Situation(seen, KEY, wanted, UUID))
    same = [found for found in on_walk if found == wanted]
    if isinstance(verdict, Commit):
        ends = {found.end for found in on_walk if found} | ({known.end} if known else set())
        assert not same
        assert wanted.start in ends if wanted.batch_id > 0 else True
    elif isinstance(verdict, Skip):
        in_ledger = known and (known.batch_id, known.query_id, known.fingerprint) == (
            wanted.batch_id,
            wanted.query_id,
            wanted.fingerprint,
        )
        assert same or in_ledger
