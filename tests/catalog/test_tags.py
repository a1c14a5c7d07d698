"""When a batch gets a tag of its own, and that no name of one is another's."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink.settings import Settings
from lakesink_catalog.errors import SettingsError
from lakesink_catalog.identity import MAIN_BRANCH, SinkKey, SinkKind
from lakesink_catalog.tags import EveryBatches, EveryPeriod

DAY_MS = 24 * 3_600_000
NEEDED = {"sink_id": "events", "checkpoint": "ck"}
KEYS = st.builds(
    SinkKey,
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True) | st.sampled_from(["a", "a-batch-5", "txn-a"]),
    st.sampled_from([MAIN_BRANCH, "audit", "a/batch-5", "x@y", "batch-5", "~"]) | st.text(min_size=1, max_size=8),
    st.sampled_from(SinkKind),
)


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
