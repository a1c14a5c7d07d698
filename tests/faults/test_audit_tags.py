"""Audit tags: set by the commit of their batch and by nothing else, once, whatever happens; what they show stays."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from lakesink_protocol.identity import SinkKind
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import Apply, Lake, Stream, counted, expected
from testkit.maintenance import append_foreign, branch_off, expire, expire_like_java, remove_ref, roll_back

DAY_MS = 24 * 3_600_000


def tagging(lake: Lake, every: Any = 2, **changed: Any) -> Stream:
    return Stream(lake, options={"tag_every": every}, **changed)


def run_all(stream: Stream, batches: Iterable[int]) -> None:
    for batch_id in batches:
        stream.run(batch_id)


def tags(stream: Stream) -> dict[str, int]:
    """Where the sink's audit tags point, by what follows the sink's part of their names."""
    refs = stream.lake.table().metadata.refs
    prefix = stream.key.audit_tag_prefix
    return {name.removeprefix(prefix): ref.snapshot_id for name, ref in refs.items() if name.startswith(prefix)}


def tagged(stream: Stream, *batches: int) -> dict[str, int]:
    return {str(batch_id): stream.snapshot_of(batch_id) for batch_id in batches}


def rows_at(lake: Lake, snapshot_id: int) -> Counter[tuple[int, int]]:
    """By snapshot, as time travel by the tag reads it."""
    rows = lake.table().scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return Counter((row["batch"], row["position"]) for row in rows)


def expire_by_pyiceberg(lake: Lake) -> None:
    """Its own procedure, which looks at the ages of refs too."""
    held = {ref.snapshot_id for ref in lake.table().metadata.refs.values()}
    gone = [snapshot.snapshot_id for snapshot in lake.table().metadata.snapshots if snapshot.snapshot_id not in held]
    lake.table().maintenance.expire_snapshots().by_ids(gone).commit()


@pytest.mark.parametrize("every", [1, 2, 3, 100])
def test_batches_that_the_number_divides_are_tagged_by_their_own_commit(lake: Lake, every: int) -> None:
    stream = tagging(lake, every)
    run_all(stream, range(5))
    assert tags(stream) == tagged(stream, *(batch_id for batch_id in range(5) if batch_id % every == 0))
    assert len(lake.catalog.sent) == 5
    assert lake.table().metadata.refs[stream.key.audit_tag(0)].max_ref_age_ms == 365 * DAY_MS


@pytest.mark.parametrize("expiry", [expire, expire_like_java, expire_by_pyiceberg])
def test_what_a_tag_shows_outlives_expiry(lake: Lake, expiry: Callable[[Lake], None]) -> None:
    stream = tagging(lake)
    run_all(stream, range(4))
    foreign = append_foreign(lake)
    run_all(stream, range(4, 6))
    kept, gone = tagged(stream, 0, 2, 4), stream.snapshot_of(1)
    expiry(lake)
    assert lake.table().snapshot_by_id(gone) is None
    assert tags(stream) == kept
    assert rows_at(lake, kept["2"]) == expected(0, 1, 2)
    assert rows_at(lake, kept["4"]) == expected(*range(5)) + foreign
    run_all(stream, [6])
    assert tags(stream) == kept | tagged(stream, 6)
    assert counted(lake) == expected(*range(7)) + foreign


@pytest.mark.parametrize("expiry", [lambda _: None, expire, expire_like_java], ids=["kept", "cut", "cut like java"])
def test_the_first_batch_of_each_period_is_tagged(lake: Lake, expiry: Callable[[Lake], None]) -> None:
    stream = tagging(lake, "1 day")
    days: dict[int, int] = {}
    for batch_id in range(8):
        stream.run(batch_id)
        days[batch_id] = lake.head().timestamp_ms // DAY_MS
        expiry(lake)
        stream.chance.move_ms(DAY_MS // 3)
    firsts = [batch_id for batch_id, day in days.items() if days.get(batch_id - 1) != day]
    assert sorted(tags(stream)) == [str(batch_id) for batch_id in firsts]
    assert 2 < len(firsts) < 8


def test_a_period_without_its_tag_gets_one_from_the_next_batch(lake: Lake) -> None:
    run_all(Stream(lake), [0])
    stream = tagging(lake, "1 day")
    run_all(stream, [1, 2])
    assert tags(stream) == tagged(stream, 1)
    remove_ref(lake, stream.key.audit_tag(1))
    run_all(stream, [3, 4])
    assert tags(stream) == tagged(stream, 3)


def test_periods_of_other_sinks_are_their_own(lake: Lake) -> None:
    streams = [tagging(lake, "1 day"), tagging(lake, "1 day", sink_id="events-batch-0", query="query-2")]
    for batch_id in range(2):
        for stream in streams:
            stream.run(batch_id)
    assert [tags(stream) for stream in streams] == [tagged(stream, 0) for stream in streams]


def lost(*, landed: bool) -> Callable[[Apply], Any]:
    def fault(apply: Apply) -> Any:
        if landed:
            apply()
        raise TimeoutError("no answer")

    return fault


@pytest.mark.parametrize("every", [1, "1 s"])
@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_leaves_one_tag(lake: Lake, every: Any, landed: bool) -> None:  # noqa: FBT001 - a case
    stream = tagging(lake, every)
    run_all(stream, [0])
    lake.catalog.faults = [lost(landed=landed)]
    run_all(stream, [1])
    assert tags(stream) == tagged(stream, 0, 1)
    assert isinstance(stream.run(1), AlreadyCommitted)
    assert tags(stream) == tagged(stream, 0, 1)


def test_a_batch_that_is_committed_from_its_record_is_tagged(lake: Lake) -> None:
    stream = tagging(lake, 1)
    sink, batch = stream.sink(), stream.batch(0)

    def dies(_: Apply) -> Any:
        raise KeyboardInterrupt

    lake.catalog.faults = [dies]
    with pytest.raises(KeyboardInterrupt):
        stream.run_with(sink, batch)
    done = stream.run(0)
    assert isinstance(done, Committed)
    assert done.recovered
    assert tags(stream) == tagged(stream, 0)


def test_the_tag_goes_with_the_attempt_that_lands(lake: Lake) -> None:
    stream = tagging(lake, 1)
    run_all(stream, [0])

    def others_first(apply: Apply) -> Any:
        append_foreign(lake)
        return apply()

    lake.catalog.faults = [others_first]
    run_all(stream, [1])
    assert len(lake.catalog.sent) == 3
    assert tags(stream) == tagged(stream, 0, 1)


@pytest.mark.parametrize("kind", ["tag", "branch"])
@pytest.mark.parametrize("when", ["before", "between look and request"])
def test_what_others_named_so_stays_and_the_batch_has_another_tag(lake: Lake, kind: str, when: str) -> None:
    stream = tagging(lake, 1)
    run_all(stream, [0])
    name, there = stream.key.audit_tag(1), lake.head().snapshot_id
    changes = lake.table().manage_snapshots()
    make = (changes.create_tag(there, name) if kind == "tag" else changes.create_branch(there, name)).commit

    def taken_meanwhile(apply: Apply) -> Any:
        make()
        return apply()

    if when == "before":
        make()
    else:
        lake.catalog.faults = [taken_meanwhile]
    batch = stream.batch(1)
    assert isinstance(stream.run(batch), Committed)
    assert tags(stream) == tagged(stream, 0) | {"1": there, f"1-{batch.fingerprint[:8]}": stream.snapshot_of(1)}


def test_a_batch_goes_without_a_tag_where_every_name_is_taken(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    stream = tagging(lake, 1)
    run_all(stream, [0])
    batch, name = stream.batch(1), stream.key.audit_tag(1)
    for taken in (name, f"{name}-{batch.fingerprint[:8]}"):
        lake.table().manage_snapshots().create_tag(lake.head().snapshot_id, taken).commit()
    before = tags(stream)
    assert isinstance(stream.run(batch), Committed)
    assert tags(stream) == before
    assert caplog.text.count("lakesink.tag.taken") == 1


@pytest.mark.parametrize("every", [1, "1 s"])
def test_a_batch_that_is_replayed_after_a_rollback_takes_its_tag_along(lake: Lake, every: Any) -> None:
    stream = tagging(lake, every)
    run_all(stream, range(4))
    old = tags(stream)
    roll_back(lake, old["1"])
    run_all(stream, [2])
    assert tags(stream) == old | tagged(stream, 2)
    assert tags(stream)["2"] != old["2"]
    run_all(stream, [3, 4])
    assert tags(stream) == tagged(stream, *range(5))
    assert rows_at(lake, tags(stream)["3"]) == expected(*range(4))


def test_a_period_whose_tag_was_rolled_back_is_tagged_again(lake: Lake) -> None:
    stream = tagging(lake, "1 day")
    run_all(stream, [0])
    stream.chance.move_ms(2 * DAY_MS)
    run_all(stream, [1, 2])
    old = tags(stream)
    roll_back(lake, old["0"])
    again = stream.batch(1, end=3)
    assert isinstance(stream.run(again), Committed)
    assert set(old) == {"0", "1"}
    assert tags(stream) == old | tagged(stream, 1)
    assert tags(stream)["1"] != old["1"]


@pytest.mark.parametrize("there", ["another batch", "another sink's batch", "a branch at this very batch"])
def test_only_the_tag_of_the_very_batch_is_taken_along(lake: Lake, there: str) -> None:
    stream, other = tagging(lake, 1), tagging(lake, 1, sink_id="other", query="query-2")
    run_all(stream, range(2))
    run_all(other, range(3))
    run_all(stream, range(2, 4))
    name, kept = stream.key.audit_tag(2), stream.snapshot_of(1)
    shown = {"another batch": stream.snapshot_of(3), "another sink's batch": other.snapshot_of(2)}
    remove_ref(lake, name)
    if there in shown:
        lake.table().manage_snapshots().create_tag(shown[there], name).commit()
    else:
        branch_off(lake, name, stream.snapshot_of(2))
    before = lake.table().metadata.refs[name]
    roll_back(lake, kept)
    batch = stream.batch(2)
    assert isinstance(stream.run(batch), Committed)
    assert lake.table().metadata.refs[name] == before
    assert tags(stream)[f"2-{batch.fingerprint[:8]}"] == stream.snapshot_of(2)


def test_a_batch_id_that_comes_again_from_a_new_checkpoint_leaves_the_older_tag(lake: Lake) -> None:
    first, second = tagging(lake), tagging(lake, query="query-2")
    run_all(first, range(3))
    old = tags(first)
    again = second.batch(0, start=3, end=4)
    assert isinstance(second.run(again), Committed)
    assert tags(first) == old | {f"0-{again.fingerprint[:8]}": lake.head().snapshot_id}


def test_an_old_batch_that_a_human_let_in_again_leaves_the_tag_of_the_first(lake: Lake) -> None:
    stream = tagging(lake, 1)
    run_all(stream, range(3))
    old = tags(stream)
    batch = stream.batch(1, end=9)
    stream.overrule(batch)
    assert tags(stream) == old | {f"1-{batch.fingerprint[:8]}": lake.head().snapshot_id}


def test_empty_batches_versions_and_branches_are_tagged_alike(lake: Lake) -> None:
    run_all(Stream(lake), [0])
    branch_off(lake, "audit")
    stream = tagging(lake, "1 s", sink_id="load", branch="audit", kind=SinkKind.TXN)
    for version in (3, 5, 12, 20):
        stream.run(version, rows=0)
    assert tags(stream) == tagged(stream, 3, 5, 12, 20)
