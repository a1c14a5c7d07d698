"""Reads the live files of a snapshot from its manifests.

Manifests never change, so each is decoded once: a later snapshot costs its manifest list and its new manifests.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from lakesink_catalog.manifests.avro_values import Malformed
from lakesink_catalog.manifests.copying import AtOnce, check_counts, contents
from lakesink_catalog.manifests.lists import manifests_under
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_catalog.manifests.live_entries import LiveEntries, Origin, live_entries
from lakesink_catalog.manifests.partitions import Kind, kinds_of, promoted, schema_for
from lakesink_catalog.snapshots import snapshots_by_id
from lakesink_protocol.change import Content
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.redact import redact

MOST_REMEMBERED = 50_000
"""Files that a sink remembers between batches, at about one kilobyte each."""

Kinds = tuple[Kind, ...]
Key = tuple[str, int, int, int | None, frozenset[int], Kinds | None]
"""Of a decoded manifest: equal only for one file with one origin, of which the same bounds and types are wanted."""


@dataclass(slots=True)
class LiveMemory:
    """The decoded manifests of the newest snapshot, kept by a sink from batch to batch, up to a limit of files."""

    most_files: int = MOST_REMEMBERED
    known: dict[Key, LiveEntries] = field(default_factory=dict, init=False)

    def keep(self, decoded: Mapping[Key, LiveEntries]) -> None:
        """Remember these manifests and no others; if they are too many, those at the end of the list: the oldest."""
        left, self.known = self.most_files, {}
        for key, found in reversed(list(decoded.items())):
            if len(found.files) <= left:
                self.known[key] = found
                left -= len(found.files)


def live_files(
    table: Table,
    head: int | None,
    memory: LiveMemory,
    *,
    bounds_of: Collection[int] = (),
    at_once: AtOnce = map,
    equality: bool = False,
) -> LiveFiles:
    """The live files of one snapshot of the table; none for an empty branch.

    Args:
        table: The table as loaded.
        head: Id of the snapshot.
        memory: The sink's memory of manifests that it has decoded.
        bounds_of: Ids of the columns whose bounds are wanted.
        at_once: Reads several manifests, perhaps in parallel.
        equality: True if the caller leaves alone what equality deletes apply to.

    Raises:
        CatalogError: EQUALITY_DELETES if there are any and `equality` is False; MANIFEST_UNREADABLE if a manifest
            cannot be read exactly.
    """
    snapshot = None if head is None else snapshots_by_id(table.metadata).get(head)
    wanted = frozenset(bounds_of)
    of_specs = {spec_id: _present_kinds(table, spec) for spec_id, spec in table.specs().items()}
    listed = manifests_under(table.io, snapshot)
    manifests: dict[Key, ManifestFile] = {}
    for one in listed:
        origin = one.manifest_length, one.sequence_number, one.added_snapshot_id
        manifests[one.manifest_path, *origin, wanted, of_specs.get(one.partition_spec_id)] = one
    new = [manifest for key, manifest in manifests.items() if key not in memory.known]
    found = iter(at_once(partial(_read, table.io, wanted, of_specs), new) if new else ())
    decoded = {key: memory.known.get(key) or next(found) for key in manifests}
    memory.keep(decoded)
    found_files = _live_files(decoded.values())
    if found_files.equality and not equality:
        raise CatalogError.of("EQUALITY_DELETES")
    return replace(found_files, manifests=tuple(one.manifest_length for one in listed))


def files_in(table: Table, manifests: Iterable[ManifestFile]) -> Iterator[LiveFile]:
    """The live files in some manifests of the table, without bounds; raises CatalogError as `live_files` does."""
    of_specs = {spec_id: _present_kinds(table, spec) for spec_id, spec in table.specs().items()}
    for manifest in manifests:
        found = _read(table.io, frozenset(), of_specs, manifest)
        if found.equality:
            raise CatalogError.of("EQUALITY_DELETES")
        yield from found.files


def _present_kinds(table: Table, spec: PartitionSpec) -> Kinds | None:
    """The types of a spec's values as they are now; None if no schema has all of its columns."""
    schema = schema_for(spec, table.metadata)
    return None if schema is None else kinds_of(spec, schema)


def _read(
    io: FileIO, wanted: frozenset[int], of_specs: Mapping[int, Kinds | None], manifest: ManifestFile
) -> LiveEntries:
    path = manifest.manifest_path
    deletes = manifest.content == ManifestContent.DELETES
    origin = Origin(
        path, manifest.partition_spec_id, manifest.sequence_number, deletes, snapshot_id=manifest.added_snapshot_id
    )
    try:
        data = contents(io, manifest)
        found = live_entries(data, origin, wanted)
        every = (*found.files, *found.equality)
        check_counts(manifest, len(every), sum(file.record_count for file in every))
        kinds = of_specs.get(manifest.partition_spec_id)
        if kinds is not None:
            files, equality = (tuple(_promoted(file, kinds) for file in one) for one in (found.files, found.equality))
            found = replace(found, files=files, equality=equality)
    except Malformed as error:
        raise CatalogError.of("MANIFEST_UNREADABLE", why=error, path=redact(path)) from error
    return found


def _promoted(file: LiveFile, kinds: Kinds) -> LiveFile:
    """The file with its partition in the present types: files of before and after a widening share a partition."""
    if len(kinds) != len(file.partition):
        raise Malformed("a partition with other fields than its spec")
    partition = promoted(kinds, file.partition)
    return file if partition == file.partition else replace(file, partition=partition)


def _live_files(decoded: Collection[LiveEntries]) -> LiveFiles:
    files = [file for one in decoded for file in one.files]
    data = tuple(file for file in files if file.content is Content.DATA)
    deletes = tuple(file for file in files if file.content is Content.POSITION_DELETES)
    derived = frozenset[str]().union(*(one.derived for one in decoded))
    if derived:
        live = {file.path for file in data}
        # A bound that is no live data file may be the beginning of several of their paths.
        deletes = tuple(
            replace(file, referenced_data_file="")
            if file.path in derived and file.referenced_data_file not in live
            else file
            for file in deletes
        )
    return LiveFiles(data, deletes, tuple(file for one in decoded for file in one.equality))
