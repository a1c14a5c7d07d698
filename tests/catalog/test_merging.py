"""Which manifests are merged, and when: a tier at a time, without an end, and never what does not fit together."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from pyiceberg.manifest import ManifestFile

from lakesink_catalog.manifests.merging import LayoutsOf, MergePolicy, choose

MEBIBYTE = 1024 * 1024
LEVELS = 4


def _manifest(files: int, length: int, sequence: int, spec_id: int = 0) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=f"m{sequence}",
        manifest_length=length,
        partition_spec_id=spec_id,
        content=0,
        sequence_number=sequence,
        min_sequence_number=sequence,
        added_snapshot_id=1,
        added_files_count=files,
        existing_files_count=0,
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
