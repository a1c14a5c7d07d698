"""The diagrams of the documents are what the code's tables say, and what the coordinator does."""

import re
from collections.abc import Iterator

import pytest

from lakesink_catalog.failpoints import FAILPOINTS
from lakesink_protocol.errors import Reason
from lakesink_protocol.verdict import STREAM_RULES
from servers.jars import ROOT
from tests.proof.seam_calls import calls_of


def diagrams(page: str) -> list[str]:
    return re.findall(r"```mermaid\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


LIFE, VERDICTS = diagrams("docs/start/concepts.md")
_, SEAM = diagrams("docs/understand/how-it-works.md")


def test_the_life_of_a_batch_shows_every_failpoint_in_its_order_with_its_outcome() -> None:
    shown = re.findall(r"Note right of [DE]: ([a-z-]+): (.+)", LIFE)
    assert shown == [(name, point.replay) for name, point in FAILPOINTS.items() if not point.needs]


def test_the_decision_path_ends_in_the_verdict_of_every_rule() -> None:
    shown = re.findall(r"(\d+) (commit|skip|refuse \w+)", VERDICTS)
    rules = {
        (str(rule.number), f"refuse {rule.then.value}" if isinstance(rule.then, Reason) else rule.then)
        for rule in STREAM_RULES
    }
    assert sorted(shown) == sorted(rules)


@pytest.mark.parametrize("has", [False, True])
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("writes", [False, True])
def test_the_diagram_of_the_seam_shows_the_calls_of_the_coordinator(has: bool, prepared: bool, writes: bool) -> None:  # noqa: FBT001 - cases
    true = {"the target has the batch": has, "an earlier run left a record": prepared, "a task fails": not writes}
    shown = list(calls_shown(true))
    ended = shown.index("abort") + 1 if "abort" in shown else len(shown)
    assert calls_of(has=has, prepared=prepared, writes=writes) == shown[:ended]


def calls_shown(true: dict[str, bool]) -> Iterator[str]:
    """The calls on the path through the diagram's alternatives for which the conditions are true."""
    open_blocks: list[bool] = []
    for line in map(str.strip, SEAM.splitlines()):
        word, _, condition = line.partition(" ")
        if word in ("alt", "opt"):
            open_blocks.append(true[condition])
        elif word == "else":
            open_blocks[-1] = not open_blocks[-1]
        elif word == "end":
            open_blocks.pop()
        elif all(open_blocks) and (call := re.match(r"C->>[SL]: (\w+)", line)):
            yield call[1]
