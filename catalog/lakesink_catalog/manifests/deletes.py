"""Writes delete manifests: new files of position deletes, and an end to those that they replace.

Small delete manifests that lakesink wrote are merged in the same step, so that readers of the table open few of them.
Each merges only with as many other entries, so that without a replacement an entry is rewritten only now and then.

A manifest that cannot be read exactly stays as it is, and with it the older files that it lists. That is only slower to
read: the new files contain their positions.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table

from lakesink_catalog.manifests.copying import AtOnce, entries_of
from lakesink_catalog.manifests.live import LiveFile
from lakesink_catalog.manifests.rewriting import MOST_ENTRIES, OWN_DELETES, FileChange
from lakesink_protocol.change import ContentFile
from lakesink_protocol.events import Listener

FEW_ENTRIES = 100
"""A manifest of so few is always merged: to open it takes readers longer than to read its entries."""


@dataclass(frozen=True, slots=True)
class DeleteManifests:
    """The delete manifests of a new snapshot.

    Attributes:
        written: Those that the snapshot adds.
        kept: All other manifests of its parent, those of data files too.
        removed: The replaced files whose entries ended.
    """

    written: tuple[ManifestFile, ...]
    kept: Sequence[ManifestFile]
    removed: tuple[LiveFile, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteChange:
    """What a snapshot changes in the files of position deletes.

    Attributes:
        manifests: All manifests of its parent.
        added: New files; each has the spec and the partition of the data file that it names.
        replaced: Older files whose positions the new ones contain, as they are live in the parent.
    """

    manifests: Sequence[ManifestFile]
    added: Sequence[ContentFile]
    replaced: Sequence[LiveFile]
    snapshot_id: int

    def write(self, table: Table, emit: Listener, at_once: AtOnce = map) -> DeleteManifests:
        """Write the manifests. They are right only in a snapshot on that parent."""
        touched = {file.manifest_path for file in self.replaced}
        chosen = to_rewrite(self.manifests, touched, Counter(file.spec_id for file in self.added))
        change = FileChange(ManifestContent.DELETES, self.added, self.replaced, self.snapshot_id)
        done = change.write(table, chosen, emit, at_once)
        kept = tuple(one for one in self.manifests if one.manifest_path not in done.gone)
        return DeleteManifests(done.written, kept, done.removed)


def to_rewrite(
    manifests: Iterable[ManifestFile], touched: Collection[str], adds: Mapping[int, int]
) -> list[ManifestFile]:
    """The delete manifests to write again: those that are touched, and small ones where files are added.

    `adds` has the number of new files by spec. Only manifests that lakesink named are merged: others mostly have other
    layouts.
    """
    of_deletes = [one for one in manifests if one.content == ManifestContent.DELETES]
    chosen = [one for one in of_deletes if one.manifest_path in touched]
    for spec_id, count in adds.items():
        gathered = count + sum(entries_of(one) for one in chosen if one.partition_spec_id == spec_id)
        own = [
            one for one in of_deletes if one.partition_spec_id == spec_id and one.manifest_path.endswith(OWN_DELETES)
        ]
        for one in sorted((one for one in own if one.manifest_path not in touched), key=entries_of):
            more = entries_of(one)
            if more > max(gathered, FEW_ENTRIES) or gathered + more > MOST_ENTRIES:
                break
            chosen.append(one)
            gathered += more
    return chosen
