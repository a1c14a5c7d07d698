"""What lakesink keeps tidy in a target: small files, manifests, old metadata, markers."""

from lakesink_protocol.events.event import INFO, BatchEvent, Event


class CompactionDue(BatchEvent):
    """The live rows of small files are rewritten after this batch; their compaction is about to be committed."""


class MaintenanceFailed(Event):
    """A table could not be maintained; its batches do not depend on it."""

    line = "lakesink.maintenance.ended table=%(table)s error=%(trouble)s: batches go on, and it is tried again"
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


class GroupRewritten(BatchEvent):
    """The live rows of a group of files are in new files, proved to be the same; nothing references these yet.

    The batch is the one after which a stream maintains its table; -1 in a process without one.
    """


class GroupReplaced(Event):
    """A snapshot of its own has replaced so many `files` by `into` new ones with the same rows."""

    level = INFO
    line = (
        "lakesink.maintenance.replaced table=%(table)s snapshot=%(snapshot_id)d files=%(files)d into=%(into)d"
        " rows=%(rows)d dropped=%(dropped)d carried=%(carried)d"
    )
    table: str
    snapshot_id: int
    files: int
    into: int
    rows: int
    dropped: int
    carried: int


class GroupLost(Event):
    """Another writer was quicker, so the files of a group stay; a later run tries again."""

    level = INFO
    line = "lakesink.maintenance.lost table=%(table)s files=%(files)d %(why)s; a later run tries again"
    table: str
    files: int
    why: str


class GroupFailed(Event):
    """A group of files could not be rewritten. They stay, or the answer of the catalog was lost; either is right."""

    line = (
        "lakesink.maintenance.failed table=%(table)s files=%(files)d %(trouble)s: the files stay, or the answer was"
        " lost; no row is concerned"
    )
    table: str
    files: int
    trouble: str


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
