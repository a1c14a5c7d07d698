"""The verdict table decides as the protocol writes it; who may overrule it; what holds whatever a table shows."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink_catalog.errors import Reason
from lakesink_catalog.identity import Batch, SinkKey, SinkKind, transaction_batch
from lakesink_catalog.ledger import TableView
from lakesink_catalog.situation import Situation
from lakesink_catalog.verdict import Accept, Commit, Refuse, Skip, Verdict, decide
from tests.catalog.verdict_cases import CASES, CUT
from tests.catalog.views import FOREIGN, KEY, OTHER_UUID, UUID, batch, chain, entry, mark, view


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_table_decides_as_written(name: str) -> None:
    case = CASES[name]
    assert decide(case.situation) == case.verdict


def test_every_row_of_the_table_has_a_case() -> None:
    assert {case.verdict.rule for case in CASES.values()} == set(range(1, 21))


OVERRULABLE = {name: case for name, case in CASES.items() if isinstance(case.verdict, Refuse) and case.verdict.rule > 3}


@pytest.mark.parametrize("adds_rows", [True, False], ids=["commit", "skip"])
@pytest.mark.parametrize("name", OVERRULABLE)
def test_a_human_overrules_one_refusal_of_one_batch(name: str, adds_rows: bool) -> None:  # noqa: FBT001 - a case
    case = OVERRULABLE[name]
    assert isinstance(case.verdict, Refuse)
    n, reason = case.batch.batch_id, case.verdict.reason
    accepted = decide(case.situation, Accept(reason, n, adds_rows))
    assert isinstance(accepted, Commit)
    assert (accepted.rule, accepted.adds_rows) == (case.verdict.rule, adds_rows)
    assert accepted.accepted == f"{reason.value}:{n}:{'commit' if adds_rows else 'skip'}"
    assert accepted.moves_ledger == (reason is not Reason.REWOUND)
    assert decide(case.situation, Accept(reason, n + 1, adds_rows)) == case.verdict
    other = next(word for word in Reason if word is not reason)
    assert decide(case.situation, Accept(other, n, adds_rows)) == case.verdict


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.verdict.rule <= 3])
def test_nobody_overrules_what_the_table_itself_forbids(name: str) -> None:
    case = CASES[name]
    assert isinstance(case.verdict, Refuse)
    n, reason = case.batch.batch_id, case.verdict.reason
    with pytest.raises(ValueError, match="is not one of"):
        Accept.parse(f"{reason.value}:{n}:commit")
    assert decide(case.situation, Accept(reason, n, adds_rows=True)) == case.verdict


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not isinstance(case.verdict, Refuse)])
def test_accepting_a_refusal_changes_no_other_verdict(name: str, reason: Reason) -> None:
    case = CASES[name]
    assert decide(case.situation, Accept(reason, case.batch.batch_id, adds_rows=True)) == case.verdict


@pytest.mark.parametrize(
    "text", ["Gap:4:commit", "RolledBack:0:skip", "NewCheckpoint:12345678901:commit", "Rewound:7:skip"]
)
def test_an_acceptance_is_spelled_as_it_is_read(text: str) -> None:
    assert str(Accept.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "Gap", "Gap:4", "Gap:4:", "Gap:4:both", "gap:4:commit", "Gap:4:commit:4", "*:4:commit", "Gap:*:commit"),
        *("Gap:-1:commit", "Gap:+4:commit", "Gap: 4:commit", "Gap:\u0664:commit", "Gap:4.0:commit"),
    ],
)
def test_an_acceptance_that_is_not_exact_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|is not one of"):
        Accept.parse(text)


LOAD = SinkKey("nightly", kind=SinkKind.TXN)
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
    "rolled back, the last version": (UNLOADED, 8, Commit, None),
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
