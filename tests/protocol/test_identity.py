"""Keys and batches: nothing of one sink can be taken for another's, and equal offsets make equal batches."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink_protocol.identity import (
    BATCH_FACTS,
    NAME_PATTERN,
    Batch,
    SinkKey,
    SinkKind,
    digest,
    escape,
    stream_batch,
    transaction_batch,
)

NAMES = ["events", "a", "txn", "txn-a", "a.b", "a-b", "events-audit", "x" * 64]
BRANCHES = ["main", "audit", "a/b", "a@b", "..", ".", "%2E", "ü", "lakesink-events"]
KEYS = [SinkKey(*parts) for parts in itertools.product(NAMES, BRANCHES, SinkKind)]


@pytest.mark.parametrize("place", ["ledger_property", "ledger_tag", "record_folder"])
def test_no_two_sinks_share_a_place(place: str) -> None:
    assert len({getattr(key, place) for key in KEYS}) == len(KEYS)


@given(st.text(min_size=1, max_size=40))
def test_an_escaped_branch_is_one_harmless_segment(branch: str) -> None:
    segment = escape(branch.encode("utf-8", "replace").decode())
    assert segment.isascii()
    assert segment.isprintable()
    assert "/" not in segment
    assert segment not in {"", ".", ".."}


def test_the_places_are_those_of_the_protocol() -> None:
    key, branch = SinkKey("events"), SinkKey("events", "audit/x")
    load = SinkKey("nightly", kind=SinkKind.TXN)
    assert (key.ledger_property, branch.ledger_property) == (
        "lakesink.ledger.stream.events",
        "lakesink.ledger.stream.events@audit/x",
    )
    assert load.ledger_property == "lakesink.ledger.txn.nightly"
    assert (key.ledger_tag, branch.ledger_tag) == ("lakesink-events", "lakesink-events@audit%2Fx")
    assert (key.record_folder, branch.record_folder) == ("lakesink/events/main", "lakesink/events/audit%2Fx")


@pytest.mark.parametrize("name", ["", ".hidden", "-x", "_txn-a", "a b", "a/b", "a@b", "ü", "a\n", "x" * 65])
def test_a_name_that_could_be_mistaken_is_none(name: str) -> None:
    assert NAME_PATTERN.fullmatch(name) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.integers(0, 3))
def test_offsets_spelled_otherwise_are_the_same_batch(offsets: Any, indent: int) -> None:
    spelled = json.loads(json.dumps(offsets, indent=indent, ensure_ascii=False))
    if isinstance(spelled, dict):
        spelled = dict(reversed(list(spelled.items())))
    assert stream_batch(1, "q", start=[0], end=[offsets]) == stream_batch(1, "q", start=[0], end=[spelled])


@given(JSON, JSON)
def test_other_offsets_are_another_batch(one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (digest(one) == digest(other)) == same


BATCH = stream_batch(3, "q", start=[{"p": 1}], end=[{"p": 2}], source_log=["a.csv"])
CHANGED = {
    "start": stream_batch(3, "q", start=[{"p": 0}], end=[{"p": 2}], source_log=["a.csv"]),
    "start unknown": stream_batch(3, "q", start=None, end=[{"p": 2}], source_log=["a.csv"]),
    "end": stream_batch(3, "q", start=[{"p": 1}], end=[{"p": 3}], source_log=["a.csv"]),
    "files": stream_batch(3, "q", start=[{"p": 1}], end=[{"p": 2}], source_log=["b.csv"]),
    "source moved": stream_batch(3, "q", start=[{"p": 1}], end=[None, {"p": 2}], source_log=["a.csv"]),
}


@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED)
def test_whatever_a_batch_reads_is_in_its_fingerprint(changed: Batch) -> None:
    assert changed.fingerprint != BATCH.fingerprint


def test_input_files_that_are_missing_are_no_part_of_a_batch() -> None:
    assert replace(BATCH, missing_inputs=("a.csv",)) == BATCH
    assert BATCH_FACTS == ("batch_id", "query_id", "fingerprint", "start", "end", "offsets")


def test_a_batch_starts_where_the_one_before_ended() -> None:
    following = stream_batch(4, "q", start=[{"p": 2}], end=[{"p": 9}])
    assert following.start == BATCH.end
    assert stream_batch(0, "q", start=None, end=[1]).start is None
    assert json.loads(BATCH.offsets) == [{"p": 2}]


def test_a_version_is_its_own_identity() -> None:
    assert transaction_batch(7) == transaction_batch(7)
    assert transaction_batch(7).fingerprint != transaction_batch(8).fingerprint
    assert (transaction_batch(7).query_id, transaction_batch(7).start) == ("", None)
