"""What the ledger topic says decides on a batch by the same rules as a table does."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lakesink.sinks.kafka.commit_record import (
    MAX_RECORD_BYTES,
    CommitRecord,
    LedgerState,
    RecordDamaged,
    parse_commit_record,
)
from lakesink.sinks.kafka.failures import WORDS
from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import Batch, stream_batch
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.refusals.message import refusal
from lakesink_protocol.verdict import Commit, Refuse, Skip, Verdict

HERE, ELSEWHERE = "a" * 32, "b" * 32


def batch(number: int, *, query: str = "query-1", start: int | None = None, end: int | None = None) -> Batch:
    first = number if start is None else start
    return stream_batch(number, query, start=[first], end=[number + 1 if end is None else end])


def record(number: int, of: Batch, **changes: Any) -> CommitRecord:
    made = CommitRecord(
        number=number,
        sink_id="orders",
        target_id=HERE,
        batch=of,
        ledger=of,
        outcome="committed",
        accepted="",
        commit_id="c" * 32,
        rows=12,
        committed_at="2026-11-25T04:00:00+00:00",
        lakesink="0.2.0",
    )
    return replace(made, **changes)


def verdict(state: LedgerState, of: Batch, *, start_id: str = HERE, accept: Accept | None = None) -> Verdict:
    return state.decide_on("orders", of, start_id, accept).verdict


def reason(state: LedgerState, of: Batch, *, start_id: str = HERE) -> Reason:
    found = verdict(state, of, start_id=start_id)
    assert isinstance(found, Refuse), found
    return found.reason


def test_a_record_comes_back_as_it_was_written() -> None:
    for of in (batch(7), replace(batch(0), start=None), replace(batch(2**63 - 1), query_id="q\u0000ü€𝄞")):
        written = record(2**63 - 1, of, outcome="recovered", rows=0)
        assert parse_commit_record(written.to_bytes(), "orders") == written


def test_offsets_that_are_too_long_are_left_out_and_their_digest_stays() -> None:
    of = replace(batch(7), offsets="x" * 5000)
    found = parse_commit_record(record(0, of).to_bytes(), "orders")
    assert found.batch == replace(of, offsets="")
    assert len(record(0, of).to_bytes()) < MAX_RECORD_BYTES


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": 2}, "version 2"),
        ({"version": True}, "version True"),
        ({"number": -1}, "wrong type"),
        ({"number": 2**63}, "wrong type"),
        ({"rows": 1.5}, "wrong type"),
        ({"commit_id": None}, "wrong type"),
        ({"batch": {}}, "not one of lakesink"),
        ({"batch": None}, "not one of lakesink"),
        ({"sink_id": "payments"}, "of sink 'payments'"),
    ],
)
def test_a_record_of_another_form_is_damage(change: dict[str, Any], why: str) -> None:
    document = json.loads(record(0, batch(0)).to_bytes()) | change
    with pytest.raises(RecordDamaged, match=why):
        parse_commit_record(json.dumps(document).encode(), "orders")


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"1", b"\xff", b"[" * 20_000, b" " * (MAX_RECORD_BYTES + 1)])
def test_anything_else_in_the_ledger_topic_is_damage(value: bytes | None) -> None:
    with pytest.raises(RecordDamaged):
        parse_commit_record(value, "orders")


def test_an_empty_ledger_takes_the_first_batch_and_no_other() -> None:
    empty = LedgerState(None, HERE)
    assert isinstance(verdict(empty, batch(0)), Commit)
    assert reason(empty, batch(1)) is Reason.UNKNOWN_HISTORY


def test_each_batch_after_the_newest_one_has_its_verdict() -> None:
    state = LedgerState(record(7, batch(7)), HERE)
    assert isinstance(verdict(state, batch(8)), Commit)
    assert verdict(state, batch(7)) == Skip(14, 7)
    assert reason(state, batch(7, end=99)) is Reason.BATCH_CHANGED
    assert reason(state, batch(8, start=3)) is Reason.BATCH_CHANGED
    assert reason(state, batch(9)) is Reason.GAP
    assert reason(state, batch(6)) is Reason.REWOUND
    assert reason(state, batch(0, query="query-2")) is Reason.NEW_CHECKPOINT
    assert isinstance(verdict(state, batch(0, query="query-2", start=8)), Commit), "it starts where the ledger ends"


def test_another_topic_under_the_same_name_is_refused() -> None:
    state = LedgerState(record(7, batch(7), target_id=ELSEWHERE), HERE)
    assert reason(state, batch(8)) is Reason.TABLE_REPLACED
    assert reason(LedgerState(record(7, batch(7)), HERE), batch(8), start_id=ELSEWHERE) is Reason.TABLE_REPLACED


def test_damage_is_refused_whatever_the_batch() -> None:
    state = LedgerState(None, HERE, damage="its newest record was deleted by a tombstone")
    assert reason(state, batch(0)) is Reason.LEDGER_DAMAGED
    assert reason(state, batch(8)) is Reason.LEDGER_DAMAGED


def test_every_refusal_says_what_to_do_about_a_topic() -> None:
    states = {
        Reason.UNKNOWN_HISTORY: (LedgerState(None, HERE), batch(1)),
        Reason.LEDGER_DAMAGED: (LedgerState(None, HERE, damage="it is torn"), batch(1)),
        Reason.TABLE_REPLACED: (LedgerState(record(7, batch(7), target_id=ELSEWHERE), HERE), batch(8)),
        Reason.BATCH_CHANGED: (LedgerState(record(7, batch(7)), HERE), batch(7, end=99)),
        Reason.GAP: (LedgerState(record(7, batch(7)), HERE), batch(9)),
        Reason.REWOUND: (LedgerState(record(7, batch(7)), HERE), batch(6)),
    }
    for why, (state, of) in states.items():
        error = refusal(why, state.decide_on("orders", of, HERE, None).situation, WORDS)
        assert error.reason is why
        assert "topic" in str(error)
        assert "table" not in str(error).partition("More:")[0], str(error)


def test_an_accepted_replay_of_an_old_batch_leaves_the_ledger_at_its_batch_and_counts_once() -> None:
    state = LedgerState(record(7, batch(7)), HERE)
    old = batch(5)
    error = refusal(Reason.REWOUND, state.decide_on("orders", old, HERE, None).situation, WORDS)
    word = next(choice.split('accept="')[1].split('"')[0] for choice in error.choices if ":commit" in choice)
    decision = state.decide_on("orders", old, HERE, Accept.parse(word))
    assert isinstance(decision.verdict, Commit)
    assert not decision.verdict.moves_ledger
    after = LedgerState(record(8, old, ledger=batch(7), outcome="accepted", accepted=word), HERE)
    assert verdict(after, old, accept=Accept.parse(word)) == Skip(18, 8)
    assert isinstance(verdict(after, batch(8)), Commit)
