"""A replayed batch is neither written nor committed again, whatever maintenance did to the table since."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lakesink_protocol.errors import BatchRefused, Reason
from lakesink_protocol.identity import MAIN_BRANCH, SinkKind
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import Lake, Stream, counted, expected, offered
from testkit.maintenance import (
    append_foreign,
    branch_off,
    expire,
    expire_like_java,
    remove_ref,
    rewrite,
    roll_back,
)

BATCHES = 3
Step = Callable[[Lake, Stream], object]
Foreign = Counter[tuple[int, int]]


def others(lake: Lake, stream: Stream) -> Foreign:
    return append_foreign(lake, stream.branch)


def expiry(lake: Lake, stream: Stream) -> None:  # noqa: ARG001 - a step
    expire(lake)


def javas_expiry(lake: Lake, stream: Stream) -> None:  # noqa: ARG001 - a step
    expire_like_java(lake)


def tag_lost(lake: Lake, stream: Stream) -> None:
    """As when it outlived its `max-ref-age-ms`."""
    remove_ref(lake, stream.key.ledger_tag)


def rewritten(lake: Lake, stream: Stream) -> None:  # noqa: ARG001 - a step
    rewrite(lake)


HISTORIES: dict[str, tuple[Step, ...]] = {
    "nothing": (),
    "expired": (expiry,),
    "expired as Java does": (javas_expiry,),
    "others": (others, others),
    "expired, then others": (expiry, others, others),
    "expired as Java does, then others": (javas_expiry, others, others),
    "others, then expired but for the head": (others, others, expiry),
    "others, then expired but for the head as Java does": (others, others, javas_expiry),
    "others, expired, others, expired": (others, others, expiry, others, others, expiry),
    "the same as Java does": (others, others, javas_expiry, others, others, javas_expiry),
    "both libraries by turns": (others, others, javas_expiry, others, others, expiry, others),
    "others, tag lost, expired": (others, others, tag_lost, expiry),
    "others, tag lost, expired as Java does": (others, others, tag_lost, javas_expiry),
    "tag lost, expired, others": (tag_lost, expiry, others),
    "rewritten": (rewritten,),
    "rewritten, expired": (rewritten, expiry),
    "rewritten, expired as Java does": (rewritten, javas_expiry),
    "rewritten, others, expired": (rewritten, others, expiry),
    "others, rewritten, others, expired as Java does": (others, rewritten, others, javas_expiry),
    "rewritten, tag lost, expired": (rewritten, tag_lost, expiry),
}
TRIMMED = {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"}


def happens(lake: Lake, stream: Stream, steps: tuple[Step, ...]) -> Foreign:
    """Carries out the steps and returns the rows that others added."""
    foreign: Foreign = Counter()
    for step in steps:
        added = step(lake, stream)
        foreign.update(added if isinstance(added, Counter) else ())
    return foreign


def replays_exactly(lake: Lake, stream: Stream, steps: tuple[Step, ...]) -> None:
    stream.filled(BATCHES)
    foreign = happens(lake, stream, steps)
    location, files = lake.table().metadata_location, lake.files()
    assert isinstance(stream.run(BATCHES - 1), AlreadyCommitted)
    assert (lake.table().metadata_location, lake.files()) == (location, files)
    assert stream.writes == BATCHES
    assert isinstance(stream.run(BATCHES), Committed)
    assert isinstance(stream.run(BATCHES), AlreadyCommitted)
    assert counted(lake, stream.branch) == expected(*range(BATCHES + 1)) + foreign


@pytest.mark.parametrize("name", HISTORIES)
def test_a_replay_is_recognised_and_the_stream_goes_on_after(tmp_path: Path, name: str) -> None:
    lake = Lake.make(tmp_path)
    replays_exactly(lake, Stream(lake), HISTORIES[name])


UNTRIMMABLE = ("rewritten, others, expired", "others, rewritten, others")
"""All manifests rewritten, the walk cut, and no older metadata: no evidence is left."""


@pytest.mark.parametrize("name", [name for name in HISTORIES if not name.startswith(UNTRIMMABLE)])
def test_the_same_with_metadata_trimmed_to_the_last_version(tmp_path: Path, name: str) -> None:
    lake = Lake.make(tmp_path, properties=TRIMMED)
    replays_exactly(lake, Stream(lake), HISTORIES[name])
    assert len(lake.table().metadata.metadata_log) == 1


SOME = ("expired", "the same as Java does", "both libraries by turns", "others, tag lost, expired")


@pytest.mark.parametrize("name", SOME)
def test_the_same_on_a_branch_while_main_moves(tmp_path: Path, name: str) -> None:
    lake = Lake.make(tmp_path)
    foreign = append_foreign(lake)
    branch_off(lake, "audit")
    stream = Stream(lake, branch="audit")
    for batch_id in range(BATCHES):
        stream.run(batch_id)
        append_foreign(lake)
    foreign += happens(lake, stream, HISTORIES[name])
    append_foreign(lake)
    assert isinstance(stream.run(BATCHES - 1), AlreadyCommitted)
    assert isinstance(stream.run(BATCHES), Committed)
    assert counted(lake, "audit") == expected(*range(BATCHES + 1)) + foreign
    assert all(row not in counted(lake) for row in expected(0))


@pytest.mark.parametrize("name", [*SOME, "rewritten, others, expired"])
def test_the_same_for_transactions(tmp_path: Path, name: str) -> None:
    lake = Lake.make(tmp_path)
    loads = Stream(lake, sink_id="nightly", kind=SinkKind.TXN)
    for version in (3, 8):
        loads.run(version)
    foreign = happens(lake, loads, HISTORIES[name])
    assert isinstance(loads.run(8), AlreadyCommitted)
    assert isinstance(loads.run(9), Committed)
    assert counted(lake) == expected(3, 8, 9) + foreign


EXPIRIES: dict[str, Step] = {"PyIceberg": expiry, "Java": javas_expiry}
EVIDENCE: dict[str, dict[str, str]] = {"all metadata kept": {}, "metadata trimmed": TRIMMED}


@pytest.mark.parametrize("properties", EVIDENCE.values(), ids=EVIDENCE)
@pytest.mark.parametrize("cut", EXPIRIES.values(), ids=EXPIRIES)
@pytest.mark.parametrize("kept", range(BATCHES - 1))
def test_a_rollback_hidden_by_others_and_expiry_is_still_seen(
    tmp_path: Path, kept: int, cut: Step, properties: dict[str, str]
) -> None:
    """The walk ends above the sink's snapshots in the very same way; here rows are missing."""
    lake = Lake.make(tmp_path, properties=properties)
    stream = Stream(lake).filled(BATCHES)
    roll_back(lake, stream.snapshot_of(kept))
    happens(lake, stream, (others, others, cut))
    for wanted in (BATCHES - 1, BATCHES):
        with pytest.raises(BatchRefused) as refused:
            stream.run(wanted)
        assert refused.value.reason is Reason.ROLLED_BACK
    assert stream.writes == BATCHES


@pytest.mark.parametrize("cut", EXPIRIES.values(), ids=EXPIRIES)
def test_a_rollback_whose_tag_was_lost_too_is_trusted_and_said(
    tmp_path: Path, cut: Step, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be proven: nothing of the batch is left but the ledger's word."""
    lake = Lake.make(tmp_path)
    stream = Stream(lake).filled(BATCHES)
    roll_back(lake, stream.snapshot_of(0))
    happens(lake, stream, (others, others, tag_lost, cut))
    caplog.clear()
    assert isinstance(stream.run(BATCHES - 1), AlreadyCommitted)
    assert "lakesink.ledger.unproven" in caplog.text


@pytest.mark.parametrize("ledger_tag", [True, False])
def test_what_is_not_proven_without_a_tag_is_said_once_at_the_start(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    ledger_tag: bool,  # noqa: FBT001 - a case
) -> None:
    stream = Stream(Lake.make(tmp_path), options={"ledger_tag": ledger_tag})
    sink = stream.sink()
    for batch_id in range(3):
        stream.run_with(sink, batch_id)
    assert caplog.text.count("lakesink.ledger.without-tag") == (0 if ledger_tag else 1)


def test_with_neither_links_nor_content_nor_metadata_the_batch_is_refused_and_one_word_helps(tmp_path: Path) -> None:
    """The false alarm that is left: everything rewritten, the walk cut, older metadata gone."""
    lake = Lake.make(tmp_path, properties=TRIMMED)
    stream = Stream(lake).filled(BATCHES)
    foreign = happens(lake, stream, (rewritten, expiry, others))
    with pytest.raises(BatchRefused) as refused:
        stream.run(BATCHES)
    assert refused.value.reason is Reason.ROLLED_BACK
    assert "no longer shows" in refused.value.what
    assert "nothing was rolled back" in refused.value.action
    assert isinstance(stream.run(BATCHES, accept=offered(refused.value)["commit"]), Committed)
    assert isinstance(stream.run(BATCHES + 1), Committed)
    assert counted(lake) == expected(*range(BATCHES + 2)) + foreign


def test_older_metadata_that_cannot_be_read_is_no_evidence_and_no_crash(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    stream = Stream(lake).filled(BATCHES)
    happens(lake, stream, (rewritten, expiry, others))
    for entry in lake.table().metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).write_text('{"format-vers')
    with pytest.raises(BatchRefused) as refused:
        stream.run(BATCHES)
    assert refused.value.reason is Reason.ROLLED_BACK


def test_ordinary_commits_never_look_for_evidence(tmp_path: Path) -> None:
    lake = Lake.make(tmp_path)
    stream = Stream(lake).filled(BATCHES)
    append_foreign(lake)
    expire(lake)
    for path in lake.files():
        if path.name.endswith(".metadata.json") and not lake.table().metadata_location.endswith(path.name):
            path.unlink()
    assert isinstance(stream.run(BATCHES), Committed)


@pytest.mark.parametrize("branch", [MAIN_BRANCH, "audit"])
def test_metadata_files_go_as_the_table_asks_and_only_those(tmp_path: Path, branch: str) -> None:
    lake = Lake.make(tmp_path, properties=TRIMMED)
    if branch != MAIN_BRANCH:
        append_foreign(lake)
        branch_off(lake, branch)
    stream = Stream(lake, branch=branch)
    for batch_id in range(5):
        before = {path for path in lake.files() if path.suffix in (".parquet", ".avro")}
        stream.run(batch_id)
        assert before < lake.files()
    assert len([path for path in lake.files() if path.name.endswith(".metadata.json")]) == 2
