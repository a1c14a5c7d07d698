"""What tables show afterwards, held against what writers heard: every lie is seen, and honest races pass."""

import pytest

from lakesink_tools.checks.certify.state import Sent, State, not_landed, not_refused, race_figures

HONEST = State("u", head=2, tag=2, entry=2, snapshots=((1, None), (2, 1)))
NEW = State("u", head=None, tag=None, entry=None, snapshots=())
ONE, TWO = Sent((1,)), Sent((2,))
REFUSED = Sent((3,), "CommitFailedException")


def broken(sent: list[Sent], *states: State, ledger_tag: bool = True) -> str:
    shown = states or (HONEST,)
    return race_figures(sent, [NEW] * len(shown), shown, ledger_tag=ledger_tag).broken


def test_an_honest_race_is_counted() -> None:
    sent = [ONE, TWO, REFUSED, Sent((4,), "ReadTimeout", unknown=True)]
    figures = race_figures(sent, [NEW], [HONEST], ledger_tag=True)
    assert (figures.acknowledged, figures.refused, figures.unknown, figures.broken) == (2, 1, 1, "")


def test_an_answer_that_was_lost_may_belong_to_a_commit_that_landed() -> None:
    assert broken([ONE, Sent((2,), "ReadTimeout", unknown=True)]) == ""


@pytest.mark.parametrize(
    ("sent", "state", "words"),
    [
        ([ONE, TWO, Sent((3,))], HONEST, "1 of 3 acknowledged commits are lost"),
        ([ONE, TWO], State("u", 2, 2, 2, ((1, None), (2, None))), "1 of 2 acknowledged commits are lost, 1 snapshot"),
        ([ONE, TWO], State("u", 2, 2, 2, ((1, None), (2, 1), (3, 1))), "1 snapshot with the parent of another"),
        ([ONE, TWO], State("u", 2, 2, 2, ((1, None), (2, 1), (2, 1))), "1 snapshot with the parent of another"),
        ([ONE, Sent((2,), read_back=False)], HONEST, "1 acknowledged commit not visible"),
        ([ONE, TWO], State("u", 2, 2, 1, HONEST.snapshots), "ledger entry or tag"),
        ([ONE, TWO], State("u", 2, 1, 2, HONEST.snapshots), "ledger entry or tag"),
        ([ONE], State("u", None, None, None, ()), "1 of 1 acknowledged commits are lost"),
    ],
)
def test_a_lie_is_seen(sent: list[Sent], state: State, words: str) -> None:
    assert words in broken(sent, state)


def test_where_snapshots_are_forgotten_the_ledger_counts_what_is_lost() -> None:
    def shown(batches: int) -> State:
        return State("u", 2, 2, 2, ((2, None),), batches)

    assert broken([ONE, TWO], shown(batches=2)) == ""
    assert broken([ONE, TWO, Sent((3,))], shown(batches=2)) == "1 of 3 acknowledged commits are lost"


def test_the_tag_counts_only_where_it_is_set() -> None:
    assert broken([ONE, TWO], State("u", 2, None, 2, HONEST.snapshots), ledger_tag=False) == ""


def test_a_commit_that_is_in_one_of_two_tables_is_torn_whatever_was_said() -> None:
    other = State("u2", head=11, tag=11, entry=11, snapshots=((11, None),))
    assert broken([Sent((1, 11)), Sent((2, 12), "CommitFailedException")], HONEST, other) == (
        "1 commit in one table and not in the other"
    )


def test_a_chain_that_bites_its_tail_ends() -> None:
    assert State("u", 2, 2, 2, ((1, 2), (2, 1))).branch == (2, 1)


BEFORE = State("u", head=1, tag=1, entry=1, snapshots=((1, None),))


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (HONEST, ""),
        (BEFORE, "does not show"),
        (State("u", 1, 2, 2, HONEST.snapshots), "does not show"),
        (State("u", 2, 2, 2, ((2, None),)), ""),
        (State("u", 2, 2, 2, ((1, None), (2, None))), "does not show"),
        (State("u", 2, 2, 2, ((1, None), (2, 1), (2, 1))), "does not show"),
        (State("u", 2, 2, 2, ((1, None), (2, 1), (3, 1))), "other snapshots"),
        (State("u", 2, 2, 1, HONEST.snapshots), "the table property"),
        (State("u", 2, 1, 2, HONEST.snapshots), "the tag"),
    ],
)
def test_a_commit_that_was_accepted_is_there_whole(after: State, words: str) -> None:
    wrong = not_landed(BEFORE, after, 2, ledger_tag=True)
    assert (words in wrong) if words else wrong == ""


@pytest.mark.parametrize(
    ("after", "refused_as", "words"),
    [
        (BEFORE, "ValueError", ""),
        (BEFORE, "", "It accepted a stale commit."),
        (HONEST, "", "It accepted a stale commit, and the table shows it."),
        (HONEST, "ValueError", "It refused (ValueError) a stale commit, and the table shows it."),
    ],
)
def test_a_commit_that_was_refused_leaves_no_trace(after: State, refused_as: str, words: str) -> None:
    assert not_refused(BEFORE, after, refused_as, "a stale commit") == words
