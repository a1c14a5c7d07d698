"""When a batch gets a tag of its own, and that no name of one is another's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import MAIN_BRANCH, SinkKey, SinkKind
from lakesink_protocol.situation import Situation
from lakesink_protocol.tags import EveryBatches, EveryPeriod, Refs, TaggedSnapshot, is_due, place_of_tag
from tests.protocol.views import KEY, UUID, batch, mark, view

DAY_MS = 24 * 3_600_000
NOON_MS = 20_000 * DAY_MS + DAY_MS // 2
NEEDED = {"sink_id": "events", "checkpoint": "ck"}
KEYS = st.builds(
    SinkKey,
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True) | st.sampled_from(["a", "a-batch-5", "txn-a"]),
    st.sampled_from([MAIN_BRANCH, "audit", "a/batch-5", "x@y", "batch-5", "~"]) | st.text(min_size=1, max_size=8),
    st.sampled_from(SinkKind),
)


@dataclass(frozen=True, slots=True)
class Tagged:
    snapshot_id: int
    timestamp_ms: int
    summary: Mapping[str, str] | None
    parent_snapshot_id: int | None = None
    sequence_number: int | None = 1


class OfAnotherDay:
    """A tagged snapshot of which only the time may be asked for."""

    timestamp_ms = NOON_MS - DAY_MS

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of a snapshot of another day")


def of_batch(batch_id: int, time_ms: int, key: SinkKey = KEY) -> Tagged:
    return Tagged(100 + batch_id, time_ms, mark(batch(batch_id), key).to_summary())


def due(
    refs: Refs,
    *,
    time_ms: int = NOON_MS,
    batch_id: int = 7,
    every: EveryBatches | EveryPeriod,
    walk: Sequence[Tagged] = (),
) -> bool:
    tips = [tagged for tagged in refs.values() if isinstance(tagged, Tagged)]
    return is_due(every, Situation(view(walk or tips[-1:]), KEY, batch(batch_id), UUID), refs, time_ms)  # type: ignore[arg-type] # a snapshot like those


@pytest.mark.parametrize(
    ("tagged_ms", "time_ms", "tags"),
    [
        (NOON_MS, NOON_MS + 1, False),
        (NOON_MS, NOON_MS + DAY_MS // 2 - 1, False),
        (NOON_MS, NOON_MS + DAY_MS // 2, True),
        (NOON_MS - DAY_MS // 2, NOON_MS, False),
        (NOON_MS - DAY_MS // 2 - 1, NOON_MS, True),
        (NOON_MS, NOON_MS + 40 * DAY_MS, True),
        (NOON_MS + DAY_MS, NOON_MS, True),
    ],
)
def test_a_batch_of_a_day_without_a_tag_is_tagged(tagged_ms: int, time_ms: int, tags: bool) -> None:  # noqa: FBT001 - a case
    assert due({KEY.audit_tag(6): of_batch(6, tagged_ms)}, time_ms=time_ms, every=EveryPeriod(DAY_MS)) is tags


OTHERS: dict[str, dict[str, TaggedSnapshot | None]] = {
    "none": {},
    "branches": {"main": None, KEY.audit_tag(6): None},
    "the ledger's": {KEY.ledger_tag: of_batch(6, NOON_MS)},
    "of another sink": {SinkKey("clicks").audit_tag(6): of_batch(6, NOON_MS, SinkKey("clicks"))},
    "of another branch": {SinkKey("events", "x").audit_tag(6): of_batch(6, NOON_MS, SinkKey("events", "x"))},
    "a human's, at a foreign snapshot": {KEY.audit_tag(6): Tagged(1, NOON_MS, {"operation": "append"})},
}


@pytest.mark.parametrize("refs", OTHERS.values(), ids=OTHERS)
def test_no_other_ref_is_the_tag_of_a_day(refs: Refs) -> None:
    assert due(refs, every=EveryPeriod(DAY_MS))


def test_of_the_tags_of_other_days_only_the_time_is_looked_at() -> None:
    """There may be hundreds, and to prove that one was rolled back costs a read of the ancestry."""
    others: Any = {KEY.audit_tag(batch_id): OfAnotherDay() for batch_id in range(6)}
    assert due(others, every=EveryPeriod(DAY_MS))


def test_snapshots_without_sequence_numbers_prove_no_tag_undone() -> None:
    """Only a snapshot that is certainly older, and the tagged one not met before it, prove a rollback."""
    tagged = replace(of_batch(6, NOON_MS), sequence_number=None)
    head = Tagged(200, NOON_MS, None, parent_snapshot_id=tagged.snapshot_id, sequence_number=None)
    assert not due({KEY.audit_tag(6): tagged}, every=EveryPeriod(DAY_MS), walk=[tagged, head])


def test_the_tag_of_a_batch_is_undone_if_the_branch_shows_nothing_more() -> None:
    tagged = of_batch(6, NOON_MS)
    empty = Situation(replace(view([tagged]), head=None), KEY, batch(6), UUID)  # type: ignore[list-item] # a snapshot like those
    assert place_of_tag(empty, {KEY.audit_tag(6): tagged}) == (KEY.audit_tag(6), tagged.snapshot_id)
    shown = Situation(view([tagged]), KEY, batch(6), UUID)  # type: ignore[list-item] # a snapshot like those
    other = f"{KEY.audit_tag(6)}-{batch(6).fingerprint[:8]}"
    assert place_of_tag(shown, {KEY.audit_tag(6): tagged}) == (other, None)


@given(st.lists(st.tuples(KEYS, st.integers(0, 2**63 - 1)), min_size=2, max_size=6, unique=True))
def test_no_tag_bears_the_name_of_another(named: list[tuple[SinkKey, int]]) -> None:
    audit = [key.audit_tag(batch_id) for key, batch_id in named]
    with_fingerprint = [f"{name}-0123abcd" for name in audit]
    assert len({*audit, *with_fingerprint}) == 2 * len(named)
    assert not {key.ledger_tag for key, _ in named} & {*audit, *with_fingerprint}
    for (key, _), name in zip(named, audit, strict=True):
        assert {other for other, _ in named if name.startswith(other.audit_tag_prefix)} == {key}


def test_tags_are_named_by_sink_branch_and_batch() -> None:
    assert SinkKey("events").audit_tag(7) == "lakesink-events/batch-7"
    assert SinkKey("events", "audit/x").audit_tag(7) == "lakesink-events@audit%2Fx/batch-7"
    assert SinkKey("nightly", kind=SinkKind.TXN).audit_tag(7) == "lakesink.txn-nightly/batch-7"


@pytest.mark.parametrize(
    ("given_as", "meant"),
    [
        (100, EveryBatches(100)),
        ("100", EveryBatches(100)),
        (" 1 batch", EveryBatches(1)),
        ("20 Batches", EveryBatches(20)),
        ("1 day", EveryPeriod(DAY_MS)),
        ("6h", EveryPeriod(DAY_MS // 4)),
        (timedelta(days=2), EveryPeriod(2 * DAY_MS)),
    ],
)
def test_batches_and_spans_are_read(given_as: Any, meant: Any) -> None:
    settings = Settings.parse(NEEDED | {"tag_every": given_as})
    assert (settings.tag_every, settings.tag_max_age) == (meant, timedelta(days=365))


@pytest.mark.parametrize(
    "options",
    [
        *({"tag_every": value} for value in (0, -1, True, 1.5, "0 batches", "daily", "", "1 ms", "5 batches 3")),
        {"tag_every": "1 day", "ledger_tag": False},
        {"tag_max_age": "1 day"},
        {"tag_every": "2 days", "tag_max_age": "1 day"},
    ],
)
def test_a_rhythm_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"LAKESINK_OPTION_INVALID.*tag_"):
        Settings.parse(NEEDED | options)


def test_an_append_is_tagged_by_time_and_not_by_number() -> None:
    assert Settings.parse({"tag_every": "1 day"}, entry=Entry.APPEND).tag_every == EveryPeriod(DAY_MS)
    with pytest.raises(SettingsError, match=r"LAKESINK_OPTION_INVALID.*versions of an append"):
        Settings.parse({"tag_every": 10}, entry=Entry.APPEND)
