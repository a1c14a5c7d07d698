"""The verdict table decides as the protocol writes it; who may overrule it; what holds whatever a table shows."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.ledger import mark_of
from lakesink_protocol.refusals.accept import Accept, accept_of
from lakesink_protocol.refusals.choices import choices
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Commit, Refuse, Skip, decide
from tests.protocol.verdict_cases import CASES, EVERY, L2, UNDER_FOREIGN
from tests.protocol.views import FOREIGN, KEY, UUID, batch, chain, entry, mark, view


@pytest.mark.parametrize("name", EVERY)
def test_the_verdict_table_decides_as_written(name: str) -> None:
    case = EVERY[name]
    assert decide(case.situation, case.accept) == case.verdict


def test_of_what_a_sink_wrote_to_other_branches_the_newest_batch_counts() -> None:
    audit = [mark(batch(number, "q2"), SinkKey("events", "audit")) for number in (0, 3, 2)]
    seen = view(chain(FOREIGN), elsewhere=chain(*audit, first=2, parent=101))
    for entries, newest in (
        ({}, 3),
        ({"x": entry(batch(9), 5)}, 9),
        ({"x": entry(batch(1), 5)}, 3),
        ({"x": None}, 2**63 - 1),
    ):
        assert Situation(replace(seen, elsewhere=entries), KEY, batch(1), UUID).newest_elsewhere == newest


def test_every_row_of_the_table_has_a_case() -> None:
    assert {case.verdict.rule for case in CASES.values()} == set(range(1, 21))


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
    if (case.batch.batch_id, case.batch.fingerprint) in [(mark.batch_id, mark.fingerprint) for mark in same]:
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
        *("UnknownHistory:7@none:skip", "LedgerLost:7@none-0a1b2c:commit", "Rewound:7@9-0a1b2c:skip"),
        "NewCheckpoint+InputMissing:0@6-0a1b2c:commit",
    ],
)
def test_an_acceptance_is_spelled_as_it_is_read(text: str) -> None:
    assert str(Accept.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "Gap", "Gap:4", "Gap:4:", "Gap:4:both", "gap:4:commit", "Gap:4:commit", "Gap:4:commit:4", "*:4:commit"),
        *("Gap:*:commit", "Gap:-1:commit", "Gap:+4:commit", "Gap: 4:commit", "Gap:\u0664:commit", "Gap:4.0:commit"),
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
