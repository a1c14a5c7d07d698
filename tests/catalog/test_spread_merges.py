"""A merge that several commits share: all files once at any time, and nothing is written before the merge is done."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestFile

from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.manifests.copying import ENTRIES_PER_PART, ManifestCopy
from lakesink_catalog.manifests.merging import ManifestMerger, MergePolicy
from lakesink_catalog.manifests.write import ENTRIES_PER_BLOCK, codec_of
from lakesink_protocol.change import ContentFile
from lakesink_protocol.outcome import Committed
from testkit.builders import Chance, Lake, Stream
from testkit.commits import fence_of, land
from testkit.maintenance import append_foreign, expire
from tests.catalog.raw_avro import raw
from tests.catalog.test_manifests import live, manifests, receipts

POLICY = MergePolicy(min_count=6, entries_per_commit=2)
"""Six manifests of one file are a merge of five commits: one chooses, three copy, one writes."""


@dataclass
class Process:
    """A process that commits batch after batch of one file to a table, and remembers its merges."""

    lake: Lake
    files: list[ContentFile]
    sink_id: str = "events"
    policy: MergePolicy = POLICY
    number: int = 0
    fence: FencedCommit = field(init=False)

    def __post_init__(self) -> None:
        self.fence = fence_of(self.lake.table, self.stream.key, Chance().effects(), merge=self.policy)

    def commit(self, times: int = 1) -> None:
        for _ in range(times):
            files = [replace(one, path=f"{one.path}-{self.sink_id}-{self.number}") for one in self.files]
            assert isinstance(land(self.fence, self.stream.batch(self.number), files), Committed)
            self.number += 1

    @property
    def stream(self) -> Stream:
        return Stream(self.lake, self.sink_id)

    @property
    def is_merging(self) -> bool:
        return self.fence.merges.copy is not None


@pytest.fixture
def process(lake: Lake) -> Process:
    return Process(lake, receipts(lake))


def merged(lake: Lake) -> list[str]:
    return [path.name for path in lake.files() if path.name.endswith("-merged.avro")]


def test_five_commits_share_a_merge_and_every_snapshot_has_every_file_once(lake: Lake, process: Process) -> None:
    process.commit(6)
    found = []
    for _ in range(5):
        process.commit()
        found.append((len(manifests(lake)), len(merged(lake)), process.is_merging))
    assert found == [(7, 0, True), (8, 0, True), (9, 0, True), (10, 0, True), (6, 1, False)]
    for batch_id, snapshot in enumerate(lake.table().metadata.snapshots):
        assert len(live(lake, snapshot)) == batch_id + 1


def test_a_long_stream_keeps_few_manifests_and_writes_no_merged_one_in_vain(lake: Lake, process: Process) -> None:
    most = 0
    for number in range(150):
        process.commit()
        most = max(most, len(manifests(lake)))
        if number % 25 == 0:
            expire(lake)
    assert most <= 3 * 9
    assert len(live(lake)) == 150
    assert 15 < len(merged(lake)) <= 150 / 6 + 150 / 36


def test_entries_of_a_merge_in_parts_have_the_bytes_of_one_at_once(lake: Lake, process: Process) -> None:
    process.commit(6)
    group = sorted(manifests(lake), key=lambda one: one.sequence_number)
    found = []
    for most in (2, 6):
        copy = ManifestCopy(group, codec_of(lake.table()))
        steps = 1
        while not copy.step(lake.table().io, map, most):
            steps += 1
        written = copy.write(lake.table(), 7)
        assert written is not None
        records = raw(written.manifest_path).records
        found.append((6 // most, records, [*written._data[1:]]))  # noqa: SLF001 # all but its path
        assert steps == 6 // most
    assert found[0][1:] == found[1][1:]


def test_a_step_of_a_merge_ends_with_a_part_of_a_block(lake: Lake) -> None:
    [file] = receipts(lake)
    files = [replace(file, path=f"{file.path}-{number}") for number in range(2 * ENTRIES_PER_BLOCK + 500)]
    Process(lake, files).commit(2)
    copy = ManifestCopy(sorted(manifests(lake), key=lambda one: one.sequence_number), codec_of(lake.table()))
    steps = 1
    while not copy.step(lake.table().io, map, ENTRIES_PER_BLOCK + 1):
        steps += 1
    assert steps == 4
    assert ENTRIES_PER_BLOCK % ENTRIES_PER_PART == 0
    written = copy.write(lake.table(), 7)
    assert written is not None
    assert len(raw(written.manifest_path).records) == 5 * ENTRIES_PER_BLOCK


def test_a_rival_that_only_appends_makes_the_merge_be_done_at_once(lake: Lake, process: Process) -> None:
    process.commit(7)
    assert process.is_merging
    append_foreign(lake)
    process.commit()
    assert (len(merged(lake)), process.is_merging) == (1, False)
    assert len(live(lake)) == 9


def test_a_rival_that_merges_the_same_manifests_makes_the_part_be_dropped(lake: Lake, process: Process) -> None:
    rival = Process(lake, process.files, "rival")
    rival.commit()
    process.commit(6)
    assert process.is_merging
    rival.commit()
    assert len(merged(lake)) == 1
    process.commit()
    assert (len(merged(lake)), process.is_merging) == (1, False)
    assert len(live(lake)) == 9


def test_a_merge_of_manifests_that_left_the_table_is_dropped(lake: Lake, process: Process) -> None:
    """After a rollback, or after another writer rewrote them."""
    process.commit(7)
    memory, table, left = process.fence.merges, lake.table(), manifests(lake)[:5]
    assert process.is_merging
    found = ManifestMerger(POLICY, 8, memory).merge(table, left, memory.snapshot_id)
    assert found == left
    assert (merged(lake), process.is_merging) == ([], False)


@pytest.mark.parametrize("name", ["manifest_length", "sequence_number", "added_snapshot_id"])
def test_a_manifest_of_the_same_path_with_another_origin_is_another_one(
    lake: Lake, process: Process, name: str
) -> None:
    """Its entries inherit what the list states."""
    process.commit(7)
    memory, table, listed = process.fence.merges, lake.table(), manifests(lake)
    before = memory.copy
    names = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[2].fields]
    known = {each: getattr(listed[-1], each) for each in names}
    changed = [*listed[:-1], ManifestFile(*(known | {name: known[name] + 1}).values())]
    ManifestMerger(POLICY, 8, memory).merge(table, changed, memory.snapshot_id)
    assert memory.copy is not before
    assert merged(lake) == []


def test_processes_that_end_after_each_commit_leave_a_long_merge_until_it_is_due_twice(
    lake: Lake, process: Process
) -> None:
    for number in range(12):
        Process(lake, process.files, number=number).commit()
    assert merged(lake) == []
    Process(lake, process.files, number=12).commit()
    assert (len(merged(lake)), len(manifests(lake))) == (1, 2)
    assert len(live(lake)) == 13


def test_processes_that_end_after_each_commit_make_a_short_merge_at_once(lake: Lake, process: Process) -> None:
    policy = MergePolicy(min_count=6, entries_per_commit=6)
    for number in range(7):
        Process(lake, process.files, policy=policy, number=number).commit()
    assert len(merged(lake)) == 1
    assert len(live(lake)) == 7


def test_the_first_commit_of_a_process_leaves_a_long_merge_to_the_next_one(lake: Lake, process: Process) -> None:
    process.commit(6)
    after = Process(lake, process.files, number=6)
    after.commit()
    assert (merged(lake), after.is_merging) == ([], False)
    after.commit(5)
    assert (merged(lake), after.is_merging) == ([], True)
    after.commit()
    assert (len(merged(lake)), after.is_merging) == (1, False)
    assert len(live(lake)) == 13


def test_a_manifest_that_is_spoilt_is_set_aside_by_the_commit_that_comes_to_it(lake: Lake, process: Process) -> None:
    process.commit(7)
    path = sorted(manifests(lake), key=lambda one: one.sequence_number)[4].manifest_path
    Path(urlsplit(path).path).write_bytes(b"no manifest")
    process.commit(2)
    assert process.is_merging
    process.commit()
    assert process.fence.merges.layouts[path] is None
    assert (len(merged(lake)), process.is_merging) == (0, False)
    process.commit(7)
    assert len(merged(lake)) == 1
    assert path in {one.manifest_path for one in manifests(lake)}


def test_a_batch_of_many_files_copies_half_as_many_more(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakesink_catalog.manifests.copying.ENTRIES_PER_PART", 1)
    [file] = receipts(lake)
    files = [replace(file, path=f"{file.path}-{number}") for number in range(4)]
    process = Process(lake, files, policy=MergePolicy(min_count=6, entries_per_commit=1))
    process.commit(6)
    for copied in (6, 12, 18):
        process.commit()
        assert process.fence.merges.copy is not None
        assert process.fence.merges.copy._read == copied  # noqa: SLF001
    process.commit()
    assert (len(merged(lake)), process.is_merging) == (1, False)
