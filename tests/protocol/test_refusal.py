"""What a refusal says: what happened in one short line, what is in the table, what to do, and how to overrule it."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lakesink_protocol.errors import MOST_CHOICES, CatalogError, Reason
from lakesink_protocol.identity import SinkKey, stream_batch
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.refusals.choices import choices
from lakesink_protocol.refusals.message import refusal
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Commit, Refuse, decide
from tests.protocol.verdict_cases import CASES
from tests.protocol.views import KEY, UUID, Snap, chain, entry, view

REFUSED = {name: case for name, case in CASES.items() if isinstance(case.verdict, Refuse)}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_what_happened_what_is_in_the_table_and_what_to_do(name: str) -> None:
    case = REFUSED[name]
    assert isinstance(case.verdict, Refuse)
    error = refusal(case.verdict.reason, case.situation)
    first_line = str(error).partition("\n")[0]
    assert first_line.startswith(f"[LAKESINK_{case.verdict.reason.name}] ")
    assert len(first_line) < 200
    assert "Nothing of batch" in error.data
    adopts = bool(case.situation.iceberg_sink_epochs)
    words = re.findall(r'accept="([^"]*)" (\w+)', error.action)
    allowed = () if adopts or case.verdict.rule <= 3 else choices(case.verdict.reason, case.situation)
    assert [word.rpartition(":")[2] == "commit" for word, _ in words] == [choice.adds_rows for choice in allowed]
    assert all(isinstance(decide(case.situation, Accept.parse(word)), Commit) for word, _ in words)
    assert {does for _, does in words} <= {"adds", "keeps", "leaves"}
    assert ("lakesink adopt <table> --sink events" in error.action) == adopts


@pytest.mark.parametrize("name", REFUSED)
def test_no_message_names_a_batch_or_a_snapshot_that_does_not_exist(name: str) -> None:
    case = REFUSED[name]
    assert isinstance(case.verdict, Refuse)
    text = str(refusal(case.verdict.reason, case.situation))
    assert not re.search(r"batch none|batches up to none|VERSION AS OF <", text)


@pytest.mark.parametrize("name", [name for name, case in REFUSED.items() if case.view.entry is not None])
def test_no_row_is_said_to_come_twice_where_rows_replace_those_of_their_keys(name: str) -> None:
    case = REFUSED[name]
    assert isinstance(case.verdict, Refuse)
    assert case.view.entry is not None
    own, seen = case.situation, replace(case.view, entry=replace(case.view.entry, keys=(1,)))
    appended, replaced = (
        refusal(case.verdict.reason, Situation(view, own.key, own.batch, own.start_uuid)).action
        for view in (case.view, seen)
    )
    assert "come twice" not in replaced
    assert ("replace the rows of their keys again" in replaced) == ("come twice" in appended)


LONG_KEY = SinkKey("s" * 64, "b" * 255)


@pytest.mark.parametrize("key", [KEY, LONG_KEY], ids=["short names", "long names"])
@pytest.mark.parametrize("name", REFUSED)
def test_the_first_line_stays_short_whatever_the_table_says(name: str, key: SinkKey) -> None:
    case = REFUSED[name]
    assert isinstance(case.verdict, Refuse)
    long_offsets = '{"topic":{"' + "0" * 4000 + '":1}}'
    seen = replace(case.view, entry_damage="x" * 5000 if case.view.entry_damage else "")
    snaps = [snap for snap in seen.snapshots.values() if isinstance(snap, Snap)]
    longer = {snap.snapshot_id: replace(snap, summary=_lengthened(snap.summary, long_offsets)) for snap in snaps}
    seen = replace(seen, snapshots=longer)
    situation = Situation(seen, key, replace(case.batch, batch_id=2**62), case.start_uuid)
    first_line = str(refusal(case.verdict.reason, situation)).partition("\n")[0]
    assert len(first_line) < 200


def _lengthened(summary: Mapping[str, str] | None, offsets: str) -> dict[str, str]:
    summary = dict(summary or {})
    return summary | ({"lakesink.offsets": offsets} if "lakesink.offsets" in summary else {})


def test_a_rollback_is_answered_with_the_newest_batch_left_and_what_to_delete() -> None:
    error = refusal(Reason.ROLLED_BACK, CASES["rolled back, the batch after the entry"].situation)
    assert "behind batch 4" in error.what
    assert error.what.endswith("the newest batch in it is 2: rewind the checkpoint to it.")
    assert "commits/ and offsets/ every file above 2" in error.action


def test_a_rollback_behind_the_first_batch_of_a_checkpoint_does_not_keep_that_batch() -> None:
    """The newest batch in the table has a number in this checkpoint too, but is another batch."""
    error = refusal(Reason.ROLLED_BACK, CASES["rolled back, new checkpoint's second batch"].situation)
    assert error.what.endswith("the newest in it is of another checkpoint.")
    assert "at [3], then its first batches were rolled back too" in error.action
    assert "rewind <checkpoint> --to-batch -1" in error.action
    assert "rewind <that checkpoint> --to-batch 2" in error.action


def test_a_new_checkpoint_is_answered_with_where_the_sink_ended() -> None:
    error = refusal(Reason.NEW_CHECKPOINT, CASES["new checkpoint from the beginning"].situation)
    assert "restore the old one" in error.what
    restored, started_there, *overruled = error.choices
    assert restored.startswith("Restore the old checkpoint")
    assert "where the sink ended: [3]" in started_there
    assert [one.partition("accept=")[0] for one in overruled] == [
        "Overrule this refusal once, for this batch only: "
    ] * 2


READ = {"lakesink": 1, "uuid": "bronze", "sink": "events"}


@pytest.mark.parametrize(
    ("was", "now", "begins"),
    [
        (READ | {"batch": 2, "fingerprint": "f"}, READ | {"batch": 3}, 3),
        (READ | {"batch": 2, "read": False}, READ | {"batch": 3}, 2),
        (READ | {"batch": 2}, READ | {"batch": 0, "uuid": "another"}, None),
        (READ | {"batch": 2}, READ | {"batch": 0, "branch": "audit"}, None),
        (READ | {"batch": "2"}, READ | {"batch": 0}, None),
        ({"batch": 2}, {"batch": 0}, None),
    ],
)
def test_a_new_checkpoint_of_a_reader_is_answered_with_the_batch_at_which_it_goes_on(
    was: dict[str, Any], now: dict[str, Any], begins: int | None
) -> None:
    before = stream_batch(2, "q1", start=[1], end=[was])
    again = stream_batch(0, "q2", start=None, end=[now])
    found = Situation(view(chain(before, first=3), entry(before, 3)), KEY, again, UUID)
    error = refusal(Reason.NEW_CHECKPOINT, found)
    assert (f"starting-batch={begins}, and accept its first batch" in error.action) is (begins is not None)
    assert (f"correct if its query began with starting-batch={begins}" in error.action) is (begins is not None)
    assert ("exactly where the sink ended" in error.action) is (begins is None)


HOSTILE = "\x1b[2J\ud800" + "y" * 100_000


@pytest.mark.parametrize("name", REFUSED)
def test_what_others_wrote_into_the_table_is_bounded_and_moves_no_terminal(name: str) -> None:
    case = REFUSED[name]
    assert isinstance(case.verdict, Refuse)
    ledger = case.view.entry and replace(case.view.entry, offsets=HOSTILE, end=HOSTILE, table_uuid=HOSTILE)
    seen = replace(case.view, entry=ledger, entry_damage=HOSTILE)
    snaps = [snap for snap in seen.snapshots.values() if isinstance(snap, Snap)]
    hostile = {snap.snapshot_id: replace(snap, summary=_lengthened(snap.summary, HOSTILE)) for snap in snaps}
    seen = replace(seen, snapshots=hostile)
    text = str(refusal(case.verdict.reason, Situation(seen, KEY, case.batch, case.start_uuid)))
    assert len(text) < 10_000
    assert len(text.partition("\n")[0]) < 200
    assert all(char.isprintable() or char == "\n" for char in text)


def test_where_expiry_hides_the_newest_batch_nobody_is_sent_back_to_the_beginning() -> None:
    situations = [case.situation for case in REFUSED.values() if case.verdict == Refuse(11, Reason.ROLLED_BACK)]
    hidden = [situation for situation in situations if not situation.has_own_mark and not situation.ancestry_complete]
    assert hidden
    for situation in hidden:
        error = refusal(Reason.ROLLED_BACK, situation)
        assert "--to-batch -1" not in error.action
        assert "from the rows" in error.action


def test_no_error_forges_a_line_or_moves_a_terminal_whatever_it_is_told() -> None:
    error = CatalogError("X", "a\nb\x1b[2J", data="c\r\nd", action="e\u202ef\ud800\x9b31m")
    assert (error.what, error.data, error.action) == ("a?b?[2J", "c??d", "e?f??31m")
    assert str(error).count("\n") == 2
    long = CatalogError("X", "a" * 10**6, data="d" * 10**6, action="e" * 10**6)
    assert len(str(long).partition("\n")[0]) == 199
    assert len(str(long)) < 20_000


def test_each_choice_is_a_line_of_its_own_and_none_forges_another() -> None:
    error = CatalogError("X", "a", data="d", action=("Restore it.", "Drop it.\n    - Or believe me.\r\x1b[2J"))
    assert str(error).split("\n")[2:] == [
        "  Do: Choose one of these.",
        "    - Restore it.",
        "    - Drop it.?    - Or believe me.??[2J",
    ]
    assert error.action == "Choose one of these. Restore it. Or: Drop it.?    - Or believe me.??[2J"
    assert (CatalogError("X", "a", data="d", action=["Drop it."]).action, error.choices[0]) == (
        "Drop it.",
        "Restore it.",
    )
    many = CatalogError("X", "a", data="d", action=["e" * 10**6] * 10**4)
    assert len(many.choices) == MOST_CHOICES
    assert len(str(many)) < 20_000
