"""A log of which one step is forged, missing or out of order is no log of the model's drivers."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from lakesink_catalog import failpoints
from lakesink_catalog.failpoints import FailpointReached
from lakesink_protocol.errors import BatchRefused
from proof.model.checker import check
from proof.model.steps import AFTER, STEPS, State
from testkit.builders import Lake, Stream
from testkit.maintenance import append_foreign, roll_back
from testkit.tracing import VARIABLE, TraceEvent, trace_sinks

Said = dict[str, Any]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> list[Said]:
    """A driver that commits, one that dies prepared, one that recovers and loses an answer, a rollback, a refusal."""
    folder = tmp_path_factory.mktemp("trace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(folder / "trace"))
        trace_sinks(patch.setattr)
        stream = Stream(Lake.make(folder))
        sink = stream.sink()
        stream.run_with(sink, 0)
        stream.run_with(sink, 1)
        patch.setenv(failpoints.VARIABLE, "after-prepared@2=raise")
        with pytest.raises(FailpointReached):
            stream.run(2)
        patch.delenv(failpoints.VARIABLE)
        stream.lake.catalog.faults = [stream.lake.catalog.arrives_late]
        stream.run(2)
        append_foreign(stream.lake)
        stream.run(3)
        roll_back(stream.lake, stream.snapshot_of(2))
        stream.run(3)
        with pytest.raises(BatchRefused):
            stream.run(5)
    return [json.loads(line) for line in (folder / "trace").read_text().splitlines()]


def dumped(log: list[Said]) -> list[str]:
    return [json.dumps(said) for said in log]


def copied(log: list[Said]) -> list[Said]:
    copy: list[Said] = json.loads(json.dumps(log))
    return copy


def test_the_whole_log_is_accepted(log: list[Said]) -> None:
    assert check(dumped(log)) == []
    assert {said["event"] for said in log} >= {"recovered", "aborted", "answer", "look", "attempt", "committed"}


def test_a_log_that_ends_anywhere_is_that_of_drivers_that_died(log: list[Said]) -> None:
    lines = dumped(log)
    assert all(check(lines[:end]) == [] for end in range(len(lines)))


def test_any_missing_line_but_a_driver_s_last_is_noticed(log: list[Said]) -> None:
    last = {said["driver"]: place for place, said in enumerate(log)}
    lines = dumped(log)
    for place, said in enumerate(log):
        left = check(lines[:place] + lines[place + 1 :])
        assert bool(left) or last[said["driver"]] == place, said


def test_a_driver_of_whom_all_is_missing_is_noticed_if_it_has_committed(log: list[Said]) -> None:
    first, *later = dict.fromkeys(said["driver"] for said in log if said["event"] == "committed")
    assert later
    assert first == log[0]["driver"]  # without it, this is a log that begins later
    for driver in later:
        assert check(dumped([said for said in log if said["driver"] != driver]))


def test_steps_of_one_driver_in_another_order_are_noticed(log: list[Said]) -> None:
    lines = dumped(log)
    for place, (one, other) in enumerate(pairwise(log)):
        if one["driver"] == other["driver"]:
            assert check([*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]]), (one, other)


def test_a_driver_that_sees_a_commit_before_it_was_sent_is_noticed(log: list[Said]) -> None:
    """Each driver whole, and the last but one before the one whose commit it has seen."""
    drivers = list(dict.fromkeys(said["driver"] for said in log))
    swapped = [*drivers[:-3], drivers[-2], drivers[-3], drivers[-1]]
    assert check(dumped([said for driver in swapped for said in log if said["driver"] == driver]))


UNSEEN = (TraceEvent.KNOWN, TraceEvent.AGAIN, TraceEvent.FAILED)


@pytest.mark.parametrize("event", [event for event in TraceEvent if event not in UNSEEN])
def test_a_step_left_out_of_a_log_that_is_numbered_anew_is_noticed(log: list[Said], event: TraceEvent) -> None:
    """But for a request that never arrived: it might as well have failed before it was sent."""
    for place, said in enumerate(log):
        left = copied(log[:place] + log[place + 1 :])
        later = [line for line in left[place:] if line["driver"] == said["driver"]]
        for line in later:
            line["step"] -= 1
        never_arrived = event is TraceEvent.ATTEMPT and later[:1] and later[0].get("shows") == "unknown"
        if said["event"] == event.value and later and not never_arrived:
            assert check(dumped(left)), said


def put(name: str, value: Any) -> Callable[[Said], None]:
    def change(said: Said) -> None:
        *outer, last = name.split(".")
        for part in outer:
            said = said[part]
        assert said[last] != value
        said[last] = value

    return change


FORGERIES = [
    pytest.param("begin", put("rule", 9), id="a rule that does not apply"),
    pytest.param("begin", put("verdict", "skip"), id="a verdict that is not the rule's"),
    pytest.param("begin", put("batch.start", "elsewhere"), id="a batch that starts elsewhere"),
    pytest.param("begin", put("entry.snapshot", 7), id="an entry that nobody sent"),
    pytest.param("begin", put("entry.end", "elsewhere"), id="an entry that ends elsewhere"),
    pytest.param("begin", put("tag", 7), id="a tag beside the ledger"),
    pytest.param("begin", put("tagged", value=False), id="no tag"),
    pytest.param("begin", put("kind", "txn"), id="another kind of sink"),
    pytest.param("begin", put("accepted", "Gap:3:commit"), id="a human's word"),
    pytest.param("begin", put("gone", value=False), id="a rollback that was not seen"),
    pytest.param("look", put("batch.fingerprint", "other"), id="a look for another batch"),
    pytest.param("look", put("entry", None), id="a ledger that is forgotten"),
    pytest.param("look", put("head", 7), id="another head than the one asserted"),
    pytest.param("prepared", put("batch_id", 7), id="a step of another batch"),
    pytest.param("prepared", put("snapshot", None), id="prepared without a snapshot"),
    pytest.param("recovered", put("snapshot", 7), id="a record that nobody put"),
    pytest.param("attempt", put("snapshot", 7), id="sent what was not prepared"),
    pytest.param("attempt", put("head", 7), id="an assertion on another head"),
    pytest.param("attempt", put("tag", None), id="no assertion on the tag"),
    pytest.param("answer", put("shows", "not-shown"), id="committed by an answer that does not show it"),
    pytest.param("answer", put("shows", "perhaps"), id="an answer that there is not"),
    pytest.param("committed", put("snapshot", 7), id="committed something else"),
    pytest.param("committed", put("event", "known"), id="its own commit for another's"),
    pytest.param("committed", put("event", "again"), id="written again although it landed"),
    pytest.param("committed", put("driver", "nobody"), id="a step of nobody"),
    pytest.param("committed", put("step", "8"), id="a step without a number"),
    pytest.param("committed", put("event", "celebrated"), id="an event that there is not"),
]


@pytest.mark.parametrize(("event", "forge"), FORGERIES)
def test_a_forged_step_is_noticed(log: list[Said], event: str, forge: Callable[[Said], None]) -> None:
    forged = copied(log)
    forge([said for said in forged if said["event"] == event and said["batch_id"] in (2, 3)][-1])
    assert check(dumped(forged))


def test_a_snapshot_id_that_is_used_twice_is_noticed(log: list[Said]) -> None:
    forged = copied(log)
    first, *_, last = [said for said in forged if said["event"] == "prepared"]
    for said in forged:
        if said["driver"] == last["driver"] and said.get("snapshot") == last["snapshot"]:
            said["snapshot"] = first["snapshot"]
    assert "a snapshot id that was used before" in [broken.what for broken in check(dumped(forged))]


def test_two_commits_on_one_entry_are_noticed(log: list[Said]) -> None:
    """A whole run that landed where another one had: each step is right, only the fence must have been passed twice."""
    run = [said for said in log if said["driver"] == log[0]["driver"] and said["batch_id"] == 1]
    twin = copied(run)
    for number, said in enumerate(twin, 1):
        said |= {"driver": "twin", "step": number}
        if said.get("snapshot"):
            said["snapshot"] = 7
    place = log.index(run[0])
    woven = [said for pair in zip(run, twin, strict=True) for said in pair]
    found = check(dumped(log[:place] + woven))
    assert [broken.what for broken in found] == ["two commits have followed the same ledger entry"]


def test_a_stale_look_is_noticed(log: list[Said]) -> None:
    """A driver that saw batch 1 land, and then a table from before."""
    run = [said for said in log if said["driver"] == log[0]["driver"]]
    stale = copied([said for said in run if said["event"] == "begin" and said["batch_id"] == 1])
    stale[0] |= {"step": len(run) + 1}
    found = check(dumped(run + stale))
    assert [broken.what for broken in found] == ["the ledger shows less than was seen before this look"]


@pytest.mark.parametrize("text", ["{", "[]", "7", '{"event":"begin"}', '{"event":"look","driver":"a"}'])
def test_what_is_no_line_is_noticed(log: list[Said], text: str) -> None:
    [broken] = check([*dumped(log), text])
    assert broken.line == len(log) + 1


def test_every_state_can_be_left_and_reached() -> None:
    assert {step.before for step in STEPS} == set(State) - {State.ENDED}
    assert {step.after for step in STEPS} == set(State)
    assert len(AFTER) == len(STEPS)
