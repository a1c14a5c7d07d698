"""Which manifests are merged, and when: a tier at a time, without an end, and never what does not fit together."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestFile

from lakesink_catalog.manifests.copying import ManifestCopy
from lakesink_catalog.manifests.merging import LayoutsOf, ManifestMerger, MergeMemory, MergePolicy, choose
from lakesink_catalog.manifests.write import codec_of, write_batch_manifests
from lakesink_protocol.events import Event, ManifestSetAside, ManifestsUnmerged
from testkit.builders import Lake
from tests.catalog.test_encoded_entries import any_file

MEBIBYTE = 1024 * 1024
LEVELS = 4


def _manifest(files: int, length: int, sequence: int, spec_id: int = 0, existing: int = 0) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=f"m{sequence}",
        manifest_length=length,
        partition_spec_id=spec_id,
        content=0,
        sequence_number=sequence,
        min_sequence_number=sequence,
        added_snapshot_id=1,
        added_files_count=files,
        existing_files_count=existing,
    )


def alike(_: ManifestFile) -> str:
    """All manifests have one layout."""
    return "one"


def each(layout_of: Callable[[ManifestFile], str | None]) -> LayoutsOf:
    """The layouts of many."""
    return lambda manifests: [layout_of(manifest) for manifest in manifests]


@dataclass
class Table:
    """The manifest list of a table, as commits and merges leave it; a merged manifest is as large as its parts."""

    policy: MergePolicy
    layout_of: Callable[[ManifestFile], str | None] = alike
    manifests: list[ManifestFile] = field(default_factory=list)
    rewritten: int = 0
    longest: int = 0
    sequence: int = 0

    def add(self, files: int, length: int) -> None:
        self.sequence += 1
        self.manifests.append(_manifest(files, length, self.sequence))

    def commit(self, files: int, length: int) -> None:
        """One batch; what its commit merges is there before its own manifest."""
        group = choose(self.manifests, self.policy, each(self.layout_of))
        if group:
            replaced = {manifest.manifest_path for manifest in group}
            self.manifests = [one for one in self.manifests if one.manifest_path not in replaced]
            merged = sum(manifest.added_files_count or 0 for manifest in group)
            self.rewritten += merged
            self.longest = max(self.longest, merged)
            self.add(merged, sum(manifest.manifest_length for manifest in group))
        self.add(files, length)

    @property
    def most_manifests(self) -> float:
        """Less than a tier on each level, and beyond that only manifests that are half full at least."""
        files = sum((manifest.added_files_count or 0) for manifest in self.manifests)
        full = self.bytes / self.policy.target_size_bytes, files / self.policy.most_entries
        return LEVELS * self.policy.min_count + 2 * max(full)

    @property
    def bytes(self) -> int:
        return sum(manifest.manifest_length for manifest in self.manifests)


@pytest.mark.parametrize("entry_bytes", [100, 400, 2_000])
@pytest.mark.parametrize("files", [1, 10, 100, 240, 1_000, 10_000])
def test_merging_never_stops_and_is_short_however_large_the_batches_are(files: int, entry_bytes: int) -> None:
    table, batches = Table(MergePolicy()), 1_000 if files < 10_000 else 400
    for _ in range(batches):
        table.commit(files, files * entry_bytes)
    assert len(table.manifests) <= table.most_manifests
    assert table.rewritten <= LEVELS * files * batches
    assert table.longest <= 20_000


def test_manifests_with_many_entries_do_not_keep_others_from_being_merged() -> None:
    """As another writer leaves them, whose manifests may have any number."""
    table = Table(MergePolicy(min_count=10, most_entries=100))
    for _ in range(20):
        table.add(70, 1_000)
    for _ in range(500):
        table.commit(20, 1_000)
    assert len(table.manifests) <= 20 + 500 / 5 + 2 * 10
    assert table.longest == 100


def test_a_full_manifest_as_the_oldest_does_not_keep_others_from_being_merged() -> None:
    """As Spark's `rewrite_manifests` leaves them."""
    table = Table(MergePolicy(min_count=10))
    for _ in range(20):
        table.add(8_000, 8 * MEBIBYTE)
    for _ in range(30):
        table.add(5, 5 * MEBIBYTE)
    for _ in range(500):
        table.commit(5, 1_000)
    assert len(table.manifests) <= 20 + 30 + 4 * 10


def test_manifests_of_several_layouts_that_come_in_turn_are_all_merged() -> None:
    """Two of which fill the target, so that the oldest that fit are never of one layout."""
    policy = MergePolicy(min_count=4, target_size_bytes=1000)
    table = Table(policy, lambda manifest: str(manifest.manifest_length % 10))
    for number in range(400):
        table.commit(1, 400 + number % 3)
    assert len(table.manifests) <= 400 / 2 + 3 * 4


def test_what_cannot_be_merged_does_not_keep_others_from_being_merged() -> None:
    table = Table(MergePolicy(min_count=5), lambda manifest: None if manifest.manifest_length == 77 else "one")
    for number in range(100):
        table.commit(1, 77 if number % 10 == 0 else 500)
    assert len(table.manifests) <= 10 + 3 * 5


OF_FOUR = MergePolicy(min_count=4)


def chosen(*files: int, policy: MergePolicy = OF_FOUR) -> list[int]:
    """Which of manifests with so many files are merged, by their places."""
    listed = [_manifest(count, 100, place) for place, count in enumerate(files, 1)]
    return [one.sequence_number - 1 for one in choose(listed, policy, each(alike))]


def test_a_tier_begins_with_a_manifest_of_as_many_files_as_make_a_merge() -> None:
    assert chosen(1, 2, 3, 3) == [0, 1, 2, 3]
    assert chosen(1, 2, 3, 4) == []
    assert chosen(4, 15, 4, 15) == [0, 1, 2, 3]
    assert chosen(4, 15, 4, 16) == []
    assert chosen(16, 16, 16, 16) == [0, 1, 2, 3]


def test_of_several_full_tiers_the_lowest_is_merged() -> None:
    assert chosen(5, 5, 5, 5, 1, 1, 1, 1) == [4, 5, 6, 7]


@pytest.mark.parametrize("min_count", [0, 1, 2])
def test_two_manifests_are_the_fewest_of_a_merge(min_count: int) -> None:
    policy = MergePolicy(min_count=min_count)
    assert (chosen(1, 1, policy=policy), chosen(1, policy=policy)) == ([0, 1], [])
    assert chosen(1, 2, policy=policy) == []


def test_files_that_a_merge_has_copied_count_as_those_that_a_batch_adds() -> None:
    once_merged = [_manifest(0, 100, number, existing=4) for number in range(1, 4)]
    assert choose([*once_merged, _manifest(1, 100, 4)], OF_FOUR, each(alike)) == []
    full = [*once_merged, _manifest(2, 100, 4, existing=2)]
    assert choose(full, OF_FOUR, each(alike)) == full


def test_manifests_from_before_there_were_sequence_numbers_are_left_alone() -> None:
    """The first that may be merged has the number 1."""
    listed = [_manifest(1, 100, sequence) for sequence in (0, 1, 2, 3)]
    assert choose(listed, OF_FOUR, each(alike)) == []
    listed.append(_manifest(1, 100, 4))
    assert choose(listed, OF_FOUR, each(alike)) == listed[1:]


def test_a_tier_must_be_full_so_many_times() -> None:
    listed = [_manifest(1, 100, sequence) for sequence in range(1, 9)]
    assert choose(listed[:7], OF_FOUR, each(alike), times=2) == []
    assert choose(listed, OF_FOUR, each(alike), times=2) == listed


@dataclass
class Written:
    """Manifests in files that snapshots have added one after the other, the snapshot 1 the first."""

    lake: Lake
    manifests: list[ManifestFile] = field(default_factory=list)

    def add(self, files: int = 1) -> None:
        number, table = len(self.manifests) + 1, self.lake.table()
        one = any_file(random.Random(number), ())
        added = [replace(one, path=f"{number}-{each}", record_count=1) for each in range(files)]
        [record] = write_batch_manifests(table, added, schema=table.schema(), snapshot_id=number)
        names = [each.name for each in MANIFEST_LIST_FILE_SCHEMAS[2].fields]
        numbers = {"sequence_number": number, "min_sequence_number": number}
        stated = {name: getattr(record.to_manifest_file(), name) for name in names} | numbers
        self.manifests.append(ManifestFile(*stated.values()))

    def merge(self, memory: MergeMemory, policy: MergePolicy, head: int, adds: int = 0) -> int:
        """How many manifests are left when the snapshot behind this head is prepared, which adds so many files."""
        merger = ManifestMerger(policy, head + 1, memory, adds=adds)
        return len(merger.merge(self.lake.table(), self.manifests, head))


@pytest.fixture
def written(tmp_path: Path) -> Written:
    found = Written(Lake.make(tmp_path))
    for _ in range(6):
        found.add()
    return found


SPREAD = MergePolicy(min_count=6, entries_per_commit=2)


def test_a_long_merge_goes_on_with_each_commit_of_a_process_that_commits_alone(written: Written) -> None:
    """One chooses, three copy two entries each, and one writes."""
    memory, left = MergeMemory(snapshot_id=6), []
    for head in range(6, 11):
        left.append(written.merge(memory, SPREAD, head))
        written.add()
    assert left == [6, 7, 8, 9, 5]


@pytest.mark.parametrize(("adds", "left"), [(2, [6, 7, 8, 4]), (3, [6, 2]), (4, [1])])
def test_a_commit_copies_half_as_many_entries_more_as_its_batch_adds(
    written: Written, adds: int, left: list[int]
) -> None:
    memory = MergeMemory(snapshot_id=6)
    for head, manifests in enumerate(left, 6):
        assert written.merge(memory, SPREAD, head, adds) == manifests
        written.add()


def test_a_long_merge_is_done_at_once_where_another_process_has_committed(written: Written) -> None:
    memory = MergeMemory(snapshot_id=6)
    assert written.merge(memory, SPREAD, 6) == 6
    written.add()
    assert written.merge(memory, SPREAD, 77) == 2


def test_a_short_merge_is_done_at_once(written: Written) -> None:
    """To read six manifests takes as long as to copy sixty entries."""
    for per_commit, left in ((65, 6), (66, 1)):
        policy = MergePolicy(min_count=6, entries_per_commit=per_commit)
        assert written.merge(MergeMemory(snapshot_id=6), policy, 6) == left


def test_a_manifest_that_a_merge_cannot_copy_is_set_aside_and_told_with_the_reason(written: Written) -> None:
    path, told = written.manifests[2].manifest_path, list[Event]()
    with Path(urlsplit(path).path).open("ab") as file:
        file.write(b"\0")
    merger = ManifestMerger(MergePolicy(min_count=6), 7, emit=told.append)
    assert merger.merge(written.lake.table(), written.manifests) == written.manifests
    assert told == [
        ManifestSetAside(path, "it has another size than the manifest list states"),
        ManifestsUnmerged(6, "ManifestMalformed"),
    ]


def test_a_merged_manifest_states_the_files_and_rows_that_it_has_and_their_lowest_number(tmp_path: Path) -> None:
    written = Written(Lake.make(tmp_path))
    for count in (2, 1):
        written.add(count)
    table = written.lake.table()
    copied = ManifestCopy(written.manifests, codec_of(table))
    assert copied.write(table, 7) is None
    assert copied.step(table.io, map, 100)
    merged = copied.write(table, 7)
    assert merged is not None
    files = merged.added_files_count, merged.existing_files_count, merged.deleted_files_count
    rows = merged.added_rows_count, merged.existing_rows_count, merged.deleted_rows_count
    assert (files, rows, merged.min_sequence_number) == ((0, 3, 0), (0, 3, 0), 1)
    assert (merged.partition_spec_id, merged.added_snapshot_id) == (0, 7)


def test_manifests_are_read_at_once_as_far_as_a_step_goes(tmp_path: Path) -> None:
    written, asked = Written(Lake.make(tmp_path)), list[int]()
    for files in (1, 1, 5, 1, 1, 1):
        written.add(files)

    def at_once(function: Callable[[Any], Any], things: Sequence[Any]) -> list[Any]:
        asked.append(len(things))
        return list(map(function, things))

    table = written.lake.table()
    copied = ManifestCopy(written.manifests, codec_of(table))
    while not copied.step(table.io, at_once, 3):
        pass
    assert asked == [2, 1, 3]


def _random_lists() -> Iterator[list[ManifestFile]]:
    for seed in range(50):
        chance = random.Random(seed)
        yield [
            _manifest(
                chance.choice([1, 1, 1, 5, 30]), chance.choice([10, 100, 1000]), sequence, chance.choice([0, 0, 1])
            )
            for sequence in range(1, chance.randrange(1, 30))
        ]


def test_what_is_merged_is_of_one_spec_and_layout_more_than_one_and_below_the_target_size() -> None:
    policy, merged = MergePolicy(min_count=4, target_size_bytes=500, most_entries=20), 0

    def layout_of(manifest: ManifestFile) -> str | None:
        return (None, "odd", "even", "even")[manifest.sequence_number % 4]

    for listed in _random_lists():
        group = choose(listed, policy, each(layout_of))
        merged += bool(group)
        assert len(group) != 1
        assert len({manifest.partition_spec_id for manifest in group}) <= 1
        assert len({layout_of(manifest) for manifest in group} - {None}) == bool(group)
        assert sum(manifest.manifest_length for manifest in group) <= policy.target_size_bytes
        assert sum(manifest.added_files_count or 0 for manifest in group) <= policy.most_entries
        assert choose(listed, MergePolicy(enabled=False), each(alike)) == []
        assert choose(listed[:3], policy, each(alike)) == []
    assert merged > 10
