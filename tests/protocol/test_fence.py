"""A change is attempted until the target shows it, and what is unknown at the end is looked at once more."""

from dataclasses import dataclass, field

import pytest

from lakesink_protocol.errors import BatchRefused, LakesinkError
from lakesink_protocol.fence import NOT_SHOWN, GivenUp, LostRace, Unseen, fenced
from lakesink_protocol.retry import RetryPolicy
from tests.protocol.test_retry import Waits

Step = str | Exception | None
TWICE = RetryPolicy(num_retries=1)
REFUSED = BatchRefused.of("BRANCH_MISSING.new_table", branch="audit", table="demo.events")


@dataclass
class Scripted:
    """A change whose attempts, and the look at the end, have these results."""

    attempts: list[Step]
    seen: Step = None
    story: list[str] = field(default_factory=list)

    def attempt(self, number: int) -> str | None:
        self.story.append(f"attempt {number}")
        return self._result(self.attempts[number - 1])

    def look(self, number: int) -> str | None:
        self.story.append(f"look after {number}")
        return self._result(self.seen)

    def unsure(self, number: int, error: Exception) -> str:
        if isinstance(error, LakesinkError):
            raise error
        return f"{number}: {error}"

    @staticmethod
    def _result(step: Step) -> str | None:
        if isinstance(step, Exception):
            raise step
        return step


@pytest.mark.parametrize(
    ("change", "found", "story"),
    [
        (Scripted(["done"]), "done", ["attempt 1"]),
        (Scripted([None, "done"]), "done", ["attempt 1", "attempt 2"]),
        (Scripted([OSError("lost"), "done"]), "done", ["attempt 1", "attempt 2"]),
        (Scripted([None, None], "seen"), "seen", ["attempt 1", "attempt 2", "look after 2"]),
        (Scripted([None, None]), Unseen(NOT_SHOWN, 2, ""), ["attempt 1", "attempt 2", "look after 2"]),
        (Scripted([None, OSError("lost")]), Unseen("2: lost", 2, ""), ["attempt 1", "attempt 2", "look after 2"]),
        (Scripted([GivenUp("no more", "Wait.")], "seen"), "seen", ["attempt 1", "look after 1"]),
        (Scripted([GivenUp("no more", "Wait.")]), Unseen("no more", 1, "Wait."), ["attempt 1", "look after 1"]),
        (
            Scripted([None, None], OSError("no answer")),
            Unseen("OSError: no answer", 2, ""),
            ["attempt 1", "attempt 2", "look after 2"],
        ),
        (
            Scripted([None, OSError("lost")], OSError("no answer")),
            Unseen("2: lost", 2, ""),
            ["attempt 1", "attempt 2", "look after 2"],
        ),
    ],
)
def test_the_result_is_what_the_target_shows(change: Scripted, found: str | Unseen, story: list[str]) -> None:
    assert fenced(change, TWICE, Waits()) == found
    assert change.story == story


@pytest.mark.parametrize("change", [Scripted([REFUSED]), Scripted([None, None], REFUSED)])
def test_a_final_error_and_a_refusal_are_raised(change: Scripted) -> None:
    with pytest.raises(BatchRefused) as raised:
        fenced(change, TWICE, Waits())
    assert raised.value is REFUSED


def test_a_lost_race_is_no_failure_and_the_wait_follows_what_it_took() -> None:
    waits = Waits()
    change = Scripted([LostRace("another was quicker", took_ms=30), LostRace("and another", took_ms=30), "done"])
    assert fenced(change, RetryPolicy(num_retries=0), waits) == "done"
    assert waits.slept == [15, 30]
