"""The histories of batches with several targets find what is broken, and find nothing in what is not."""

from collections.abc import Sequence
from typing import Any

import pytest

from lakesink_protocol import coordinator
from lakesink_protocol.outcome import Committed
from lakesink_protocol.votes import Votes
from proof.seam.run import SeamFigures, run
from proof.seam.targets import Sink

HISTORIES = 40


def broken() -> str:
    return "\n".join(run(0, HISTORIES, 0, lambda _: None).broken)


def test_a_coordinator_that_keeps_its_promise_is_not_blamed() -> None:
    figures = run(0, HISTORIES, 0, lambda _: None)
    assert figures.broken == []
    assert figures.histories == HISTORIES
    assert min(figures.deaths, figures.rivals, figures.completed) > HISTORIES // 2
    assert SeamFigures().to_json().keys() == figures.to_json().keys()


def test_a_target_that_does_not_ask_again_shows_rows_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def commits(self: Sink, _: Any, prepared: Any) -> Committed:
        self.target.files += prepared.payload["files"]
        self.target.batches.append(prepared.payload["batch"])
        return Committed(0, 0)

    monkeypatch.setattr(Sink, "commit", commits)
    assert "no row is doubled" in broken()


def test_a_main_target_that_commits_first_has_batches_that_others_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    in_order = coordinator.BatchRun.commit_all

    def backwards(self: Any, ready: Sequence[Any]) -> bool:
        return in_order(self, ready[::-1])

    monkeypatch.setattr(coordinator.BatchRun, "commit_all", backwards)
    assert "the main target has a batch that others lack" in broken()


def test_a_vote_that_is_not_counted_loses_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_one_task(self: Votes, name: str) -> list[bytes]:
        return [vote.receipts[name] for vote in self.cast if name in vote.receipts][:1]

    monkeypatch.setattr(Votes, "receipts", of_one_task)
    assert "no row is lost" in broken()
