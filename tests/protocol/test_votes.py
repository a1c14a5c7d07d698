"""The count of votes: one of every planned task, for every participant, with the driver's lakesink."""

import pytest

from lakesink_protocol.errors import WriteError
from lakesink_protocol.votes import Vote, Votes


def cast(*tasks: int, version: str = "1.0") -> list[Vote]:
    return [Vote(task, {"a": b"%d" % task}, version) for task in tasks]


def refused(votes: Votes, *participants: str) -> WriteError:
    with pytest.raises(WriteError) as caught:
        votes.check(participants)
    assert len(str(caught.value).partition("\n")[0]) < 200
    assert caught.value.what.isprintable()
    return caught.value


def test_receipts_are_given_in_the_order_of_their_tasks_whichever_came_first() -> None:
    votes = Votes(3, cast(2, 0, 1), "1.0")
    votes.check(["a"])
    assert votes.receipts("a") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("tasks", [[], [0], [0, 1, 1], [0, 2], [0, 1, 2], [1, 2], [1, 1], [-1, 0]])
def test_a_vote_that_is_missing_doubled_or_unplanned_fails_the_batch(tasks: list[int]) -> None:
    error = refused(Votes(2, cast(*tasks), "1.0"), "a")
    assert error.code == "LAKESINK_VOTES_INCOMPLETE"
    assert error.what.startswith(f"Tasks that Spark planned: 2; receipts that arrived: {len(tasks)}, from")


def test_a_task_that_has_nothing_for_a_participant_fails_the_batch() -> None:
    votes = Votes(2, [Vote(0, {"a": b"", "b": b""}, "1.0"), Vote(1, {"a": b""}, "1.0")], "1.0")
    votes.check(["a"])
    error = refused(votes, "a", "b")
    assert (error.code, error.what) == ("LAKESINK_VOTES_INCOMPLETE", "1 of 2 tasks sent no receipt for b.")


@pytest.mark.parametrize("version", ["0.9", "", "\x1b[2J\n" + "9" * 5_000])
def test_a_task_of_another_lakesink_fails_the_batch(version: str) -> None:
    error = refused(Votes(2, [*cast(0), *cast(1, version=version)], "1.0"), "a")
    assert error.code == "LAKESINK_RECEIPT_REJECTED"
    assert "the driver runs 1.0" in error.what


def test_a_job_without_tasks_has_every_vote() -> None:
    Votes(0, []).check(["a"])
    assert Votes.in_order({}) == Votes(0, [])


def test_receipts_in_order_become_one_vote_of_every_task_and_keep_what_a_participant_lacks() -> None:
    votes = Votes.in_order({"a": [b"a0", b"a1"], "b": [b"b0"]})
    assert votes == Votes(2, [Vote(0, {"a": b"a0", "b": b"b0"}), Vote(1, {"a": b"a1"})])
    assert refused(votes, "a", "b").code == "LAKESINK_VOTES_INCOMPLETE"
