"""What lakesink keeps tidy in a target: small files, manifests, old metadata, markers."""

from lakesink_protocol.events.event import INFO, BatchEvent, Event


class CompactionDue(BatchEvent):
    """The live rows of small files are rewritten after this batch; their compaction is about to be committed."""


class FilesCompacted(BatchEvent):
    """The rows of so many small `files` are `into` so many new ones, in a snapshot of its own."""

    level = INFO
    line = (
        "lakesink.files.compacted batch=%(batch_id)d snapshot=%(snapshot_id)d files=%(files)d into=%(into)d"
        " rows=%(rows)d"
    )
    snapshot_id: int
    files: int
    into: int
    rows: int


class CompactionLost(BatchEvent):
    """Another writer has changed the table meanwhile, so the small files stay; a later batch tries again."""

    level = INFO
    line = "lakesink.compaction.lost batch=%(batch_id)d: another writer was quicker; a later batch tries again"


class CompactionFailed(BatchEvent):
    """Small files could not be compacted after this batch; they stay, or the answer was lost. Either is right."""

    line = (
        "lakesink.compaction.failed batch=%(batch_id)d %(trouble)s: the batch is in the table, and a later one tries to"
        " compact its small files again"
    )
    trouble: str


class MaintenanceFailed(Event):
    """A table could not be maintained; its batches do not depend on it."""

    line = "lakesink.maintenance.failed table=%(table)s error=%(trouble)s: batches go on, and it is tried again"
    table: str
    trouble: str


class TableMaintainedElsewhere(Event):
    """A service maintains the table, as a property says, so streams leave it alone; once in a run."""

    line = "lakesink.maintenance.elsewhere table=%(table)s by=%(by)s: %(said_by)s says so; the stream leaves it alone"
    table: str
    by: str
    said_by: str


class TableUnhealthy(Event):
    """Figures of the table's health are past their bounds after its maintenance; once in a run."""

    line = (
        "lakesink.table.unhealthy table=%(table)s: %(figures)s; give the stream's maintenance a larger budget or"
        " gate=True, or run lakesink maintain"
    )
    table: str
    figures: str


class ManifestsUnmerged(Event):
    """A merge of manifests failed; they stay as they are."""

    line = "lakesink.manifests.unmerged count=%(count)d error=%(error)s"
    count: int
    error: str


class ManifestSetAside(Event):
    """A manifest cannot be read exactly, so it is never merged."""

    level = INFO
    line = "lakesink.manifests.carried-over path=%(path)s reason=%(reason)s"
    path: str
    reason: str


class MetadataKept(Event):
    """An old metadata file could not be removed."""

    level = INFO
    line = "lakesink.metadata.kept path=%(path)s error=%(error)s"
    path: str
    error: str


class HighWaterKept(Event):
    """The number of markers could not be recorded."""

    line = "lakesink.high-water.kept sink=%(sink)s error=%(error)s"
    sink: str
    error: str
