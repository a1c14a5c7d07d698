"""A sink that is retired: one fenced commit, rows untouched, and its name refused from then on."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.refs import SnapshotRefType

from lakesink_catalog.read.history import sinks
from lakesink_protocol.errors import BatchRefused, CommitUnresolved, Reason, SettingsError, WriteError
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.ledger import FORGOTTEN
from lakesink_protocol.outcome import Committed
from lakesink_protocol.retry import RetryPolicy
from lakesink_tools.operate.forget import Forgetting
from testkit.answers import lands_but_says
from testkit.builders import Apply, Lake, Stream, counted, expected
from testkit.maintenance import (
    append_foreign,
    branch_off,
    expire,
    expire_like_java,
    remove_ref,
    roll_back,
    upgrade,
)


def forgetting(stream: Stream, **changed: Any) -> Forgetting:
    return Forgetting(stream.lake.table, stream.key, effects=stream.chance.effects(), **changed)


def test_an_error_in_code_before_anything_was_sent_ends_the_command_at_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AttributeError("a defect")

    stream = Stream(lake)
    stream.run(0)
    monkeypatch.setattr("lakesink_catalog.commit.request.manifests_under", fail)
    with pytest.raises(WriteError, match="before anything was sent: AttributeError: a defect"):
        forgetting(stream).run()
    assert stream.chance.waited_ms == []
    monkeypatch.undo()
    lake.catalog.faults = [lands_but_says(AttributeError("a defect"))]
    assert forgetting(stream).run().snapshot_id == lake.head().snapshot_id


@pytest.mark.parametrize("kind", SinkKind)
def test_entry_and_tag_go_and_rows_stay(lake: Lake, kind: SinkKind) -> None:
    stream, other = Stream(lake, kind=kind), Stream(lake, "other", query="query-2")
    stream.run(0)
    other.run(0)
    before, files = lake.table(), counted(lake)
    done = forgetting(stream).run()
    table = lake.table()
    assert stream.key.ledger_property not in table.properties
    assert stream.key.ledger_tag not in table.metadata.refs
    assert table.properties[other.key.ledger_property] == before.properties[other.key.ledger_property]
    assert table.metadata.refs[other.key.ledger_tag] == before.metadata.refs[other.key.ledger_tag]
    head = lake.head()
    assert (head.snapshot_id, head.parent_snapshot_id) == (done.snapshot_id, before.metadata.current_snapshot_id)
    assert head.summary is not None
    assert head.summary[FORGOTTEN] == stream.key.ledger_property
    assert head.summary["total-records"] == "6"
    assert counted(lake) == files
    assert [state.sink for state in sinks(table)] == ["other"]
    assert isinstance(other.run(1), Committed)


def test_a_stream_of_the_same_name_is_refused_afterwards(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    forgetting(stream).run()
    for batch in (stream.batch(0), stream.batch(1), Stream(lake, query="query-9").batch(0)):
        with pytest.raises(BatchRefused) as error:
            stream.run(batch)
        assert error.value.reason is Reason.LEDGER_LOST
        assert "`lakesink forget` removed this sink, use another sink id" in error.value.action
    assert counted(lake) == expected(0)


def test_a_sink_that_commits_meanwhile_is_seen(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    loads = iter([lake.table(), lake.table()])  # the first looks; the second attempt's is stale by a batch
    stream.run(1)
    stale = Forgetting(lambda: next(loads, None) or lake.table(), stream.key, effects=stream.chance.effects())
    stale.run()
    assert counted(lake) == expected(0, 1)
    assert [mark.batch_id for mark in stream.marks()] == [0, 1]


def test_rows_that_others_commit_meanwhile_stay(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)

    def others_first(apply: Apply) -> Any:
        append_foreign(lake)
        return apply()

    lake.catalog.faults = [others_first]
    forgetting(stream).run()
    assert counted(lake).total() == expected(0).total() + 1
    assert stream.key.ledger_property not in lake.table().properties


def test_a_tag_that_somebody_moves_meanwhile_is_looked_at_again(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    append_foreign(lake)

    def moved_first(apply: Apply) -> Any:
        remove_ref(lake, stream.key.ledger_tag)
        branch_off(lake, stream.key.ledger_tag)
        return apply()

    lake.catalog.faults = [moved_first]
    forgetting(stream).run()
    assert lake.table().metadata.refs[stream.key.ledger_tag].snapshot_ref_type is SnapshotRefType.BRANCH


@pytest.mark.parametrize("landed", [True, False])
def test_an_answer_that_is_lost_is_looked_for(lake: Lake, landed: bool) -> None:  # noqa: FBT001 - a parameter
    stream = Stream(lake)
    stream.run(0)

    def lose(apply: Apply) -> Any:
        if landed:
            apply()
        raise TimeoutError("no answer")

    lake.catalog.faults = [lose]
    append_foreign(lake)
    done = forgetting(stream).run()
    table = lake.table()
    assert stream.key.ledger_property not in table.properties
    assert len([s for s in table.metadata.snapshots if s.summary and s.summary.get(FORGOTTEN)]) == 1
    assert table.metadata.current_snapshot_id == done.snapshot_id


def test_a_catalog_that_never_answers_ends_by_name(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)

    def never(_: Apply) -> Any:
        raise TimeoutError("no answer")

    lake.catalog.faults = [never] * 3
    with pytest.raises(CommitUnresolved):
        forgetting(stream, retry=RetryPolicy(num_retries=2)).run()
    assert stream.key.ledger_property in lake.table().properties


def test_a_commit_that_lands_in_the_last_attempt_is_seen(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)

    def land_in_silence(apply: Apply) -> Any:
        apply()
        raise TimeoutError("no answer")

    lake.catalog.faults = [land_in_silence]
    done = forgetting(stream, retry=RetryPolicy(num_retries=0)).run()
    assert lake.head().snapshot_id == done.snapshot_id
    assert stream.key.ledger_property not in lake.table().properties


def test_a_table_of_another_version_is_left_as_it_is(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    upgrade(lake)
    before = sorted(lake.folder.rglob("*"))
    with pytest.raises(SettingsError, match=r"LAKESINK_UNSUPPORTED.*format version 3"):
        forgetting(stream).run()
    assert sorted(lake.folder.rglob("*")) == before


def tags_of(stream: Stream) -> set[str]:
    return {name for name in stream.lake.table().metadata.refs if name.startswith(stream.key.ledger_tag)}


@pytest.mark.parametrize("at_once", [True, False])
def test_audit_tags_go_if_they_are_named_at_once_or_later(lake: Lake, at_once: bool) -> None:  # noqa: FBT001 - a case
    stream, other = [Stream(lake, name, query=name, options={"tag_every": 1}) for name in ("events", "events-batch-0")]
    for batch_id in range(2):
        stream.run(batch_id)
        other.run(batch_id)
    others = tags_of(other)
    audit = tuple(sorted(stream.key.audit_tag(batch_id) for batch_id in range(2)))
    if not at_once:
        assert forgetting(stream).run().audit_tags == ()
        assert tags_of(stream) - others == set(audit)
        with pytest.raises(SettingsError, match="--tags removes audit tags"):
            forgetting(stream).run()
    assert forgetting(stream, with_audit_tags=True).run().audit_tags == audit
    assert tags_of(stream) == tags_of(other) == others
    assert counted(lake) == Counter(dict.fromkeys(expected(0, 1), 2))


@pytest.mark.parametrize("expiry", [expire, expire_like_java])
def test_a_retired_sink_is_no_trouble_when_only_its_audit_tags_are_left(
    lake: Lake, expiry: Callable[[Lake], None]
) -> None:
    stream, other = Stream(lake, options={"tag_every": 1}), Stream(lake, "other", query="query-2")
    stream.run(0)
    forgetting(stream).run()
    other.run(0)
    expiry(lake)
    assert {stream.key.audit_tag(0)} == tags_of(stream)
    assert [state.sink for state in sinks(lake.table())] == ["other"]


def test_a_branch_that_bears_the_name_of_a_tag_stays(lake: Lake) -> None:
    stream = Stream(lake, options={"tag_every": 1})
    stream.run(0)
    for name in (stream.key.ledger_tag, stream.key.audit_tag(0)):
        remove_ref(lake, name)
        branch_off(lake, name)
    branches = lake.table().metadata.refs
    forgetting(stream, with_audit_tags=True).run()
    assert {name: lake.table().metadata.refs[name] for name in branches if name != "main"} == {
        name: ref for name, ref in branches.items() if name != "main"
    }


def test_a_damaged_entry_can_be_forgotten(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    with lake.table().transaction() as change:
        change.set_properties({stream.key.ledger_property: "torn"})
    forgetting(stream).run()
    assert stream.key.ledger_property not in lake.table().properties


def test_a_sink_of_a_branch_that_is_gone_is_forgotten_on_main(lake: Lake) -> None:
    Stream(lake).run(0)
    lake.table().manage_snapshots().create_branch(lake.head().snapshot_id, "audit").commit()
    stream = Stream(lake, "audit", branch="audit", query="query-2")
    stream.run(0)
    lake.table().manage_snapshots().remove_branch("audit").commit()
    assert forgetting(stream).run().branch == "main"
    assert stream.key.ledger_property not in lake.table().properties


def test_an_unknown_sink_names_the_nearest(lake: Lake) -> None:
    Stream(lake).run(0)
    with pytest.raises(SettingsError) as error:
        forgetting(Stream(lake, "event")).run()
    assert error.value.code == "LAKESINK_SINK_UNKNOWN"
    assert "'events'" in error.value.action


@pytest.mark.parametrize("expiry", [expire, expire_like_java])
def test_the_name_is_free_once_no_batch_of_it_is_retained(lake: Lake, expiry: Callable[[Lake], None]) -> None:
    old, other = Stream(lake), Stream(lake, "other", query="query-2")
    old.run(0)
    forgetting(old).run()
    other.run(0)
    expiry(lake)
    with pytest.raises(BatchRefused) as error:
        old.run(1)
    assert error.value.reason is Reason.UNKNOWN_HISTORY
    assert isinstance(Stream(lake, query="query-3").run(0), Committed)


def dies(_: Apply) -> Any:
    raise KeyboardInterrupt


def test_a_late_request_of_a_forgotten_sink_lands_nowhere(lake: Lake) -> None:
    stream = Stream(lake)
    stream.run(0)
    head = lake.head().snapshot_id
    lake.catalog.faults = [lake.catalog.arrives_late, dies]
    with pytest.raises(KeyboardInterrupt):
        stream.run(1)
    forgetting(stream).run()
    roll_back(lake, head)
    with pytest.raises(CommitFailedException, match="lakesink-events"):
        lake.catalog.late[0]()
    assert counted(lake) == expected(0)
    with pytest.raises(BatchRefused) as error:
        stream.run(1)
    assert error.value.reason is Reason.LEDGER_LOST
