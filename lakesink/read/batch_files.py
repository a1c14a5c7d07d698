"""The files that one batch added, from its own manifests; if they are gone, from the live entries of the head.

Entries keep the snapshot that added a file, also in merged and rewritten manifests, until the file is compacted. So the
files of a batch whose snapshot has expired are still known, and are complete if their number and rows are those of the
batch's summary. A batch that cannot be shown whole is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyiceberg.table import Table

from lakesink.read.reading_errors import batch_gone
from lakesink_catalog.manifests.lists import read_list
from lakesink_catalog.manifests.live import LiveFile
from lakesink_catalog.manifests.live_reading import LiveMemory, files_in, live_files
from lakesink_catalog.read.past import Past, PastCommit
from lakesink_protocol.change import Content


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
    head = _Head(table, past.head.snapshot_id if past.head else None)
    return [_files_of(table, past, batch, head) for batch in batches]


def _files_of(table: Table, past: Past, batch: PastCommit, head: "_Head") -> BatchFiles:
    files = _own_files(table, batch)
    if files is None:
        files = head.files_added_by(batch.snapshot_id)
    data = [file for file in files if file.content is Content.DATA]
    deletes = [file for file in files if file.content is Content.POSITION_DELETES]
    found = len(data), sum(file.record_count for file in data), len(deletes)
    if found != (batch.files, batch.rows, batch.added.delete_files or 0):
        raise batch_gone(past.table, batch, found[0])
    return BatchFiles(batch, data, deletes, _schema_json(table, batch))


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


def _schema_json(table: Table, batch: PastCommit) -> str:
    schema_id = batch.snapshot.schema_id
    found = table.schema() if schema_id is None else table.schemas().get(schema_id, table.schema())
    return found.model_dump_json()


@dataclass(slots=True)
class _Head:
    """The live files of the table by the snapshot that added them; read once, and only if needed."""

    table: Table
    snapshot_id: int | None
    _files: dict[int | None, list[LiveFile]] | None = field(default=None, init=False)

    def files_added_by(self, snapshot_id: int) -> Sequence[LiveFile]:
        if self._files is None:
            live = live_files(self.table, self.snapshot_id, LiveMemory())
            self._files = {}
            for file in (*live.data, *live.deletes):
                self._files.setdefault(file.added_by, []).append(file)
        return self._files.get(snapshot_id, ())
