"""The ledger entry and the mark: small, exact, and never taken for what they are not."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink_protocol.identity import SinkKey, SinkKind, stream_batch
from lakesink_protocol.ledger import (
    MAX_ENTRY_BYTES,
    MOST_KEYS,
    EntryUnreadable,
    LedgerEntry,
    Mark,
    mark_of,
    next_entry,
    parse_entry,
    stated_of,
)
from tests.protocol.views import FOREIGN, KEY, UUID, batch, chain, view

NAME = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
NUMBER = st.integers(0, 2**63 - 1)
DIGEST = st.text("0123456789abcdef", min_size=32, max_size=32)
KEYS = st.lists(st.integers(1, 2**31 - 1), unique=True, max_size=32).map(tuple)
ENTRY = st.builds(
    LedgerEntry,
    NUMBER,
    st.uuids().map(str),
    DIGEST,
    DIGEST,
    NUMBER,
    NUMBER,
    st.just(UUID),
    st.text(max_size=3000),
    KEYS,
)
MARK = st.builds(
    Mark,
    key=st.builds(SinkKey, NAME, st.text(min_size=1, max_size=20), st.sampled_from(SinkKind)),
    batch_id=NUMBER,
    query_id=st.uuids().map(str),
    fingerprint=DIGEST,
    end=DIGEST,
    outcome=st.sampled_from(["committed", "recovered", "accepted"]),
    accepted=st.sampled_from(["", "Gap:4:commit"]),
    ledger_batch_id=NUMBER,
    offsets=st.text(max_size=50),
    missing_inputs=NUMBER,
)


@given(ENTRY)
def test_an_entry_comes_back_and_never_exceeds_a_kibibyte(entry: LedgerEntry) -> None:
    text = entry.to_json()
    assert len(text.encode()) <= 1024
    assert parse_entry(text) in (entry, replace(entry, offsets=""))


def test_offsets_too_long_for_the_entry_leave_their_digest() -> None:
    long = stream_batch(5, "q" * 36, start=[0], end=[{f"topic-{number}": number for number in range(1000)}])
    entry = next_entry(long, snapshot_id=2**63 - 1, sequence_number=2**63 - 1, table_uuid=UUID)
    parsed = parse_entry(entry.to_json())
    assert (parsed.offsets, parsed.end) == ("", long.end)
    short = next_entry(batch(5), snapshot_id=1, sequence_number=1, table_uuid=UUID)
    assert parse_entry(short.to_json()).offsets == "[6]"


ENTRY_DOCUMENT: dict[str, Any] = {
    "version": 1,
    **next_entry(batch(5), snapshot_id=7, sequence_number=8, table_uuid=UUID, keys=(4, 2**31 - 1)).document,
}
WRONG_KEYS: list[Any] = [[0], [2**31], [1, 1], [1, True], [True], ["1"], [[1]], list(range(1, 34)), {"1": 1}, "12"]
JUNK: st.SearchStrategy[Any] = st.sampled_from([None, True, -1, 1.5, "x", [], {}, float("inf"), [1], 2**63, 10**4000])


def test_the_document_that_is_spoilt_below_is_an_entry() -> None:
    assert parse_entry(json.dumps(ENTRY_DOCUMENT)).batch_id == 5


@given(st.sampled_from(sorted(ENTRY_DOCUMENT)), JUNK)
def test_an_entry_with_a_field_of_the_wrong_type_is_unreadable(name: str, junk: Any) -> None:
    if (isinstance(junk, str) and isinstance(ENTRY_DOCUMENT[name], str)) or (name == "keys" and junk in ([], [1])):
        return
    with pytest.raises(EntryUnreadable):
        parse_entry(json.dumps(ENTRY_DOCUMENT | {name: junk}))


@pytest.mark.parametrize("keys", WRONG_KEYS, ids=str)
def test_an_entry_with_keys_that_no_table_has_is_unreadable(keys: Any) -> None:
    with pytest.raises(EntryUnreadable):
        parse_entry(json.dumps(ENTRY_DOCUMENT | {"keys": keys}))


def test_the_keys_of_an_entry_come_back_and_an_append_has_no_word_of_them() -> None:
    keyed = next_entry(batch(5), snapshot_id=7, sequence_number=8, table_uuid=UUID, keys=(4, 2**31 - 1))
    assert parse_entry(keyed.to_json()) == keyed
    appended = replace(keyed, keys=())
    before = (
        '{"batch_id":5,"end":"%s","fingerprint":"%s","offsets":"[6]","query_id":"%s","sequence_number":8,'
        '"snapshot_id":7,"table_uuid":"%s","version":1}'
    )
    assert appended.to_json() == before % (appended.end, appended.fingerprint, appended.query_id, UUID)


def test_an_entry_with_as_many_keys_as_possible_is_no_longer_than_others() -> None:
    keys = tuple(range(2**31 - MOST_KEYS, 2**31))
    entry = next_entry(batch(5), snapshot_id=2**63 - 1, sequence_number=2**63 - 1, table_uuid=UUID, keys=keys)
    text = entry.to_json()
    assert len(text.encode()) <= MAX_ENTRY_BYTES
    assert parse_entry(text).keys == keys


@pytest.mark.parametrize("name", sorted(ENTRY_DOCUMENT))
def test_an_entry_that_lacks_a_field_is_unreadable_unless_it_is_the_offsets_or_the_keys(name: str) -> None:
    text = json.dumps({key: value for key, value in ENTRY_DOCUMENT.items() if key != name})
    if name in {"offsets", "keys"}:
        assert not getattr(parse_entry(text), name)
    else:
        with pytest.raises(EntryUnreadable):
            parse_entry(text)


@pytest.mark.parametrize("version", [2, 99, "2", 10**30, "9" * 5000])
def test_a_newer_version_is_refused_and_never_ignored(version: Any) -> None:
    with pytest.raises(EntryUnreadable, match="ledger version") as refused:
        parse_entry(json.dumps(ENTRY_DOCUMENT | {"version": version, "a field of the future": 1}))
    assert len(str(refused.value)) < 100


def test_an_entry_that_nobody_can_have_written_is_unreadable() -> None:
    with pytest.raises(EntryUnreadable, match="characters"):
        parse_entry(json.dumps(ENTRY_DOCUMENT | {"offsets": "x" * 100_000}))


def test_a_field_that_this_version_does_not_know_is_refused() -> None:
    with pytest.raises(EntryUnreadable):
        parse_entry(json.dumps(ENTRY_DOCUMENT | {"more": 1}))


@pytest.mark.parametrize("name", sorted(ENTRY_DOCUMENT))
def test_a_field_that_is_there_twice_is_refused_whichever_counts(name: str) -> None:
    text = json.dumps(ENTRY_DOCUMENT)
    twice = json.dumps({name: ENTRY_DOCUMENT[name]})[1:-1]
    for doubled in (f"{{{twice},{text[1:]}", f"{text[:-1]},{twice}}}"):
        with pytest.raises(EntryUnreadable):
            parse_entry(doubled)


@given(st.text(max_size=200) | st.just("[" * 100_000) | st.just('{"version":' * 50_000))
def test_text_is_no_entry(text: str) -> None:
    with pytest.raises(EntryUnreadable):
        parse_entry(text)


@given(MARK)
def test_a_mark_comes_back_from_the_summary(mark: Mark) -> None:
    summary = mark.to_summary()
    assert all(isinstance(value, str) for value in summary.values())
    assert mark_of(summary | {"operation": "append", "added-records": "3"}) == mark


def test_offsets_too_long_for_a_mark_leave_their_digest() -> None:
    long = stream_batch(5, "q", start=[0], end=["x" * 5000])
    mark = mark_of(Mark(KEY, outcome="committed", accepted="", ledger_batch_id=5, **stated_of(long)).to_summary())
    assert mark is not None
    assert (mark.offsets, mark.end) == ("", long.end)


SUMMARY = Mark(KEY, outcome="committed", accepted="", ledger_batch_id=5, **stated_of(batch(5))).to_summary()
FORGED: dict[str, Any] = {
    "no summary": None,
    "empty": {},
    "another tool's": {"operation": "append"},
    "newer": SUMMARY | {"lakesink.version": "2"},
    "batch is no number": SUMMARY | {"lakesink.batch-id": "five"},
    "batch is empty": SUMMARY | {"lakesink.batch-id": ""},
    "ledger is no number": SUMMARY | {"lakesink.ledger-batch-id": "1.5"},
    "batch is below zero": SUMMARY | {"lakesink.batch-id": "-1"},
    "batch in other digits": SUMMARY | {"lakesink.batch-id": "\u0665"},
    "batch with an underscore": SUMMARY | {"lakesink.batch-id": "1_0"},
    "batch padded": SUMMARY | {"lakesink.batch-id": " 5"},
    "batch beyond 64 bits": SUMMARY | {"lakesink.batch-id": str(2**63)},
    "batch that Python would not read": SUMMARY | {"lakesink.ledger-batch-id": "9" * 5_000},
    "kind unknown": SUMMARY | {"lakesink.kind": "tree"},
    "no batch": {key: value for key, value in SUMMARY.items() if key != "lakesink.batch-id"},
}


@pytest.mark.parametrize("name", FORGED)
def test_a_summary_that_is_no_mark_reads_as_none(name: str) -> None:
    assert mark_of(FORGED[name]) is None


def test_the_largest_number_that_readers_can_hold_is_read() -> None:
    largest = 2**63 - 1
    found = mark_of(SUMMARY | {"lakesink.batch-id": str(largest), "lakesink.ledger-batch-id": str(largest)})
    assert found is not None
    assert (found.batch_id, found.ledger_batch_id) == (largest, largest)


def test_the_walk_ends_at_the_first_missing_parent() -> None:
    whole, cut = chain(batch(0), FOREIGN, batch(1)), chain(batch(4), FOREIGN, first=7, parent=106)
    assert [snap.snapshot_id for snap in view(whole).ancestry()] == [103, 102, 101]
    assert [snap.snapshot_id for snap in view(cut, elsewhere=whole).ancestry()] == [108, 107]
    assert list(view((), elsewhere=whole).ancestry()) == []
    assert list(view((), head=999).ancestry()) == []


@pytest.mark.parametrize("back_to", [0, 1, 2])
def test_a_walk_in_a_circle_ends(back_to: int) -> None:
    """Nothing keeps a foreign writer from naming a child as the parent."""
    first, *rest = chain(batch(0), FOREIGN, batch(1))
    circle = [replace(first, parent_snapshot_id=[first, *rest][back_to].snapshot_id), *rest]
    assert [snap.snapshot_id for snap in view(circle).ancestry()] == [103, 102, 101]
