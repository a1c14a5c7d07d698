"""The files that one batch added, from its own manifests; if they are gone, from the live entries of the head.

Entries keep the snapshot that added a file, also in merged and rewritten manifests, until the file is compacted. So the
files of a batch whose snapshot has expired are still known, and are complete if their number and rows are those of the
batch's summary. A batch that cannot be shown whole is refused.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from pyiceberg.table import Table

from lakesink.read.reading_errors import batch_gone
from lakesink_catalog.manifests.lists import read_list
from lakesink_catalog.manifests.live import LiveFile
from lakesink_catalog.manifests.live_reading import LiveMemory, files_in, live_files
from lakesink_catalog.read.past import Past, PastCommit
from lakesink_protocol.change import Content

BySnapshot = Mapping[int | None, Sequence[LiveFile]]
"""Files by the snapshot that added them."""


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """What one batch added to its table.

    Attributes:
        batch: The batch, with its mark.
        data: Its data files, with path, size, rows, partition spec, and partition values in single-value form.
        deletes: Its files of position deletes; none if the batch only appended.
        schema_json: The table's schema when the batch was committed, in Iceberg's JSON form.
    """

    batch: PastCommit
    data: Sequence[LiveFile]
    deletes: Sequence[LiveFile]
    schema_json: str


def files_of(table: Table, past: Past, batches: Sequence[PastCommit]) -> list[BatchFiles]:
    """The files of these batches, in the same order.

    Raises:
        CatalogError: READ_BATCH_GONE if the files of a batch cannot be told completely.
    """

    @cache
    def live() -> BySnapshot:
        """The live files of the head by the snapshot that added them; read only if needed."""
        found = live_files(table, past.head.snapshot_id if past.head else None, LiveMemory())
        by_snapshot = defaultdict(list)
        for file in (*found.data, *found.deletes):
            by_snapshot[file.added_by].append(file)
        return by_snapshot

    return [_files_of(table, past, batch, live) for batch in batches]


def _files_of(table: Table, past: Past, batch: PastCommit, live: Callable[[], BySnapshot]) -> BatchFiles:
    files = _own_files(table, batch)
    if files is None:
        files = live().get(batch.snapshot_id, ())
    data = [file for file in files if file.content is Content.DATA]
    deletes = [file for file in files if file.content is Content.POSITION_DELETES]
    found = len(data), sum(file.record_count for file in data), len(deletes)
    if found != (batch.files, batch.rows, batch.added.delete_files or 0):
        raise batch_gone(past.table, batch, found[0])
    current, schema_id = table.schema(), batch.snapshot.schema_id
    schema = current if schema_id is None else table.schemas().get(schema_id, current)
    return BatchFiles(batch, data, deletes, schema.model_dump_json())


def _own_files(table: Table, batch: PastCommit) -> Sequence[LiveFile] | None:
    """The files that the snapshot's own manifests say it added; None if expiry has deleted one of these."""
    try:
        listed = read_list(table.io, batch.snapshot.manifest_list)
        own = [manifest for manifest in listed if manifest.added_snapshot_id == batch.snapshot_id]
        return [file for file in files_in(table, own) if file.added_by == batch.snapshot_id]
    except FileNotFoundError:
        if batch.is_retained:
            raise
        return None
