"""A batch that is there twice, or is missing, is reported, whoever accepted it; headline and exit code say so."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lakesink_protocol.identity import SinkKind
from lakesink_tools.audit.audit import audit
from lakesink_tools.audit.finding import Code
from lakesink_tools.cli.run.audit import audit_report
from lakesink_tools.operate.remove_sink import Forgetting
from testkit.builders import START_MS, Lake, Stream, counted, expected
from testkit.maintenance import append_foreign, branch_off, expire, remove_ref, roll_back

Story = Callable[[Lake, Stream], None]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path)


@pytest.fixture
def stream(lake: Lake) -> Stream:
    stream = Stream(lake)
    for batch_id in range(4):
        stream.run(batch_id)
    return stream


def a_gap(_: Lake, stream: Stream) -> None:
    stream.overrule(stream.batch(9, start=9))
    stream.run(10)


def a_gap_that_was_skipped(_: Lake, stream: Stream) -> None:
    stream.overrule(stream.batch(9, start=9), "skip")
    stream.run(10)


def a_gap_that_was_filled_later(_: Lake, stream: Stream) -> None:
    stream.overrule(stream.batch(5, start=5))
    stream.overrule(4)


def a_batch_once_more(lake: Lake, stream: Stream) -> None:
    append_foreign(lake)
    old = stream.snapshot_of(1)
    lake.table().manage_snapshots().create_tag(old, "keep").commit()
    expire(lake)
    stream.overrule(1)


def another_cut_of_an_old_batch(_: Lake, stream: Stream) -> None:
    stream.overrule(stream.batch(1, start=7))


def a_new_checkpoint_from_the_beginning(lake: Lake, _: Stream) -> None:
    second = Stream(lake, query="query-2")
    second.overrule(0)
    second.run(1)


def changed_data(_: Lake, stream: Stream) -> None:
    stream.overrule(stream.batch(3, end=9))


def changed_data_that_was_skipped(_: Lake, stream: Stream) -> None:
    stream.overrule(stream.batch(3, end=9), "skip")


STORIES: dict[Story, set[str]] = {
    a_gap: {"BATCH_ACCEPTED", "BATCH_GAP"},
    a_gap_that_was_skipped: {"BATCH_ACCEPTED", "BATCH_GAP"},
    a_gap_that_was_filled_later: {"BATCH_ACCEPTED"},
    a_batch_once_more: {"BATCH_ACCEPTED"},
    another_cut_of_an_old_batch: {"BATCH_ACCEPTED"},
    a_new_checkpoint_from_the_beginning: {"BATCH_ACCEPTED"},
    changed_data: {"BATCH_ACCEPTED"},
    changed_data_that_was_skipped: {"BATCH_ACCEPTED", "BATCH_GAP"},
}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_what_an_operator_accepted_is_never_called_clean(
    lake: Lake, stream: Stream, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story(lake, stream)
    proof = audit(lake.table())
    assert {finding.code.name for finding in proof.findings} == STORIES[story]
    assert all(finding.accepted for finding in proof.findings)
    monkeypatch.setattr("lakesink_tools.cli.run.audit.connect", lambda *_, **__: lake.catalog)
    monkeypatch.setattr("time.time_ns", lambda: (START_MS + 10**9) * 10**6)  # these tables were written in that year
    report = audit_report("demo.events", None, checkpoint=None, sink=None, footers=True)
    assert report.exit_code == 3
    assert "not clean: an operator accepted" in report.title
    assert report.document["accepted_only"] is True
    remove_ref(lake, stream.key.ledger_tag)
    broken = audit_report("demo.events", None, checkpoint=None, sink=None, footers=True)
    assert broken.exit_code == 3, "a tag that is not there is a note"


def test_a_gap_names_the_batches_that_are_missing_still(lake: Lake, stream: Stream) -> None:
    stream.overrule(stream.batch(7, start=7))
    stream.overrule(5)
    [gap] = [finding for finding in audit(lake.table()).findings if finding.code is Code.BATCH_GAP]
    assert gap.items == ("4, 6",)
    assert "as an operator accepted" in gap.found


def test_what_an_operator_had_a_retired_sink_leave_out_is_still_told(lake: Lake, stream: Stream) -> None:
    stream.overrule(stream.batch(9, start=9), "skip")
    Forgetting(lake.table, stream.key, effects=stream.chance.effects()).run()
    found = audit(lake.table(), footers=False).findings
    assert {finding.code for finding in found} == {Code.BATCH_ACCEPTED, Code.BATCH_GAP}
    assert all(finding.accepted and "retired" in finding.subject for finding in found)


@pytest.mark.parametrize("kind", SinkKind)
def test_a_batch_that_came_under_two_branches_is_there_twice(lake: Lake, kind: SinkKind) -> None:
    """As an older lakesink would have committed it: today it is refused."""
    Stream(lake, kind=kind).run(0)
    branch_off(lake, "audit")
    first = lake.head().summary
    assert first is not None
    said = {name: value for name, value in first.additional_properties.items() if name.startswith("lakesink.")}
    rows = lake.table().scan().to_arrow()
    lake.table().append(rows, snapshot_properties=said | {"lakesink.branch": "audit"}, branch="audit")
    assert counted(lake, "audit") == expected(0, 0)
    found = [finding for finding in audit(lake.table()).findings if finding.code is Code.BATCH_TWICE]
    assert [(finding.items, finding.accepted) for finding in found] == [(("0",), False)]


def test_an_orderly_rollback_names_the_batch_to_rewind_to(lake: Lake, stream: Stream) -> None:
    roll_back(lake, stream.snapshot_of(1))
    [found] = [finding for finding in audit(lake.table()).findings if finding.code is Code.ROLLED_BACK]
    assert found.found.endswith("The newest batch in the branch is 1: lakesink rewind <checkpoint> --to-batch 1.")
