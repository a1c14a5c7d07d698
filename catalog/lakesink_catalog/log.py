"""The log: the one listener that formats log lines. The first word of a line is the stable name of its event."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from logging import DEBUG, ERROR, INFO, WARNING
from typing import IO, Any

from lakesink_protocol import events
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome

logger = logging.getLogger("lakesink")

LINES: Mapping[type[events.Event], str] = {
    events.ListenerFailed: "lakesink.listener.failed listener=%(listener)s event=%(event)s error=%(error)s",
    events.CatalogNotCertified: "lakesink.catalog.not-certified name=%(name)s %(by)s=%(value)s",
    events.FirstSnapshotUnproven: "lakesink.first-snapshot.unproven name=%(name)s scratch=%(scratch)s error=%(error)s",
    events.PartitionByUnused: (
        "lakesink.partition_by.unused table=%(table)s: its partitions are %(partitions)s, partition_by is %(asked)s."
        " The table's own partitions are used; leave partition_by out"
    ),
    events.PropertiesIgnored: "lakesink.settings.ignored properties=%(properties)s",
    events.OrderTrusted: (
        "lakesink.changes.order-trusted table=%(table)s sink=%(sink)s: without sequence_by, a later batch counts as"
        " newer, and a batch with two changes of a key is refused"
    ),
    events.LedgerTagOff: (
        "lakesink.ledger.without-tag table=%(table)s sink=%(sink)s: without the tag, lakesink cannot detect a rollback"
        " that expiry hides, or a late request on an old head"
    ),
    events.QueryFactsUnwritten: (
        "lakesink.query.notes-unwritten table=%(table)s sink=%(sink)s query=%(query_id)s error=%(error)s"
    ),
    events.InputUnchecked: "lakesink.input.unchecked %(error)s: lakesink assumes that its files exist",
    events.ServerUnchecked: "lakesink.server.unchecked spark=%(spark)s: its first batch finds what is wrong there",
    events.ReadPlanned: (
        "lakesink.read.planned table=%(table)s sink=%(sink)s first=%(first)s last=%(last)s batches=%(batches)d"
        " files=%(files)d rows=%(rows)d"
    ),
    events.OthersNotRead: (
        "lakesink.read.others table=%(table)s sink=%(sink)s snapshots=%(snapshots)d rows=%(rows)d: rows of other"
        " writers are not part of the sink's batches, and are not read"
    ),
    events.ReadWaits: (
        "lakesink.read.waits table=%(table)s sink=%(sink)s: the table was rolled back behind the batches that were"
        " read; nothing is read until they are written again. If its sink went on otherwise, start this query again: it"
        " tells what to do"
    ),
    events.ReplayLost: (
        "lakesink.read.replay-lost table=%(table)s sink=%(sink)s replay=%(replay)d: the table was rolled back behind a"
        " replay of dead letters that was read. Replay the same letters again: they are not read a second time"
    ),
    events.HoldNotMoved: (
        "lakesink.read.hold-not-moved table=%(table)s reader=%(reader)s why=%(why)s: batches are read all the same; it"
        " is tried again with a later micro-batch"
    ),
    events.TableCreated: "lakesink.table.created table=%(table)s batch=%(batch_id)d",
    events.AcceptUnused: (
        "lakesink.accept.unused %(kind)s=%(target)s sink=%(sink)s batch=%(batch_id)d accept=%(accept)s: it did not"
        " apply; remove it"
    ),
    events.EntryUnverifiable: (
        "lakesink.ledger.unproven table=%(table)s sink=%(sink)s batch=%(batch_id)d: expiry removed its snapshot; the"
        " entry is trusted"
    ),
    events.PreparedUnusable: "lakesink.prepared.dropped batch=%(batch_id)d reason=%(reason)s",
    events.RowsBeforeUnread: (
        "lakesink.changelog.unread table=%(table)s batch=%(batch_id)d rows=%(rows)d: values before these deletes do not"
        " fit; the changelog has NULL for them"
    ),
    events.DeletesLate: (
        "lakesink.deletes.late table=%(table)s batch=%(batch_id)d rows=%(rows)d: the stored rows have a higher sequence"
        " and stay; if the events have no sequence before a delete, set REPLICA IDENTITY FULL in PostgreSQL or"
        " binlog_row_image=FULL in MySQL"
    ),
    events.ExpectationsUnmet: (
        "lakesink.expectation.unmet table=%(table)s batch=%(batch_id)d: rows that do not meet an expectation are in the"
        " table: %(unmet)s"
    ),
    events.RowsPutAside: (
        "lakesink.rows.put-aside table=%(table)s batch=%(batch_id)d rows=%(rows)d: they become dead letters in"
        " %(letters)s"
    ),
    events.RowsRescued: (
        "lakesink.decode.rescued table=%(table)s batch=%(batch_id)d: the rescue column keeps what other columns do not"
        " hold: %(reasons)s"
    ),
    events.ColumnsMissing: (
        "lakesink.columns.missing table=%(table)s sink=%(sink)s batch=%(batch_id)d: the rows lack these columns of the"
        " table, which become NULL: %(names)s"
    ),
    events.ColumnsIgnored: (
        "lakesink.columns.ignored table=%(table)s sink=%(sink)s batch=%(batch_id)d: the table lacks these columns of"
        " the rows, which are left out: %(names)s"
    ),
    events.SchemaEvolved: "lakesink.schema.evolved table=%(table)s batch=%(batch_id)d: %(change)s",
    events.SchemaIdTaken: (
        "lakesink.schema.id-taken table=%(table)s batch=%(batch_id)d snapshot=%(snapshot_id)d: another writer changed"
        " the schema at the same moment; readers of this snapshot may see other columns; its files are right"
    ),
    events.KeysUnknown: (
        "lakesink.decode.unknown-keys table=%(table)s batch=%(batch_id)d: keys without a column are left out: %(names)s"
    ),
    events.BatchAborted: "lakesink.batch.aborted %(kind)s=%(target)s batch=%(batch_id)d",
    events.TagTaken: "lakesink.tag.taken tag=%(tag)s: another tag or branch has this name, so the batch gets no tag",
    events.ManifestsUnmerged: "lakesink.manifests.unmerged count=%(count)d error=%(error)s",
    events.ChangesLocatedAgain: "lakesink.changes.located-again batch=%(batch_id)d head=%(head)s",
    events.FilesCompacted: (
        "lakesink.files.compacted batch=%(batch_id)d snapshot=%(snapshot_id)d files=%(files)d into=%(into)d"
        " rows=%(rows)d"
    ),
    events.CompactionLost: (
        "lakesink.compaction.lost batch=%(batch_id)d: another writer was quicker; a later batch tries again"
    ),
    events.CompactionFailed: (
        "lakesink.compaction.failed batch=%(batch_id)d %(trouble)s: the batch is in the table, and a later one tries"
        " to compact its small files again"
    ),
    events.ManifestSetAside: "lakesink.manifests.carried-over path=%(path)s reason=%(reason)s",
    events.ClockBehind: "lakesink.clock.behind seconds=%(seconds)d",
    events.ClockAhead: "lakesink.clock.ahead seconds=%(seconds)d: until then, Java writers refuse the table",
    events.ClockUnknown: "lakesink.clock.untold error=%(error)s",
    events.TurnPassedOver: (
        "lakesink.turn.passed-over table=%(table)s error=%(error)s: commits go on without turns for ten minutes"
    ),
    events.CommitNotShown: "lakesink.commit.not-shown batch=%(batch_id)d attempt=%(attempt)d",
    events.TagsLeftOut: (
        "lakesink.catalog.without-tags table=%(table)s sink=%(sink)s code=LAKESINK_CATALOG_WITHOUT_TAGS: the catalog"
        " accepts commits and leaves out their tags; lakesink cannot detect a rollback that expiry hides, or a late"
        " request on an old head; ledger_tag=False sends no tag"
    ),
    events.CommitUnknown: "lakesink.commit.unknown batch=%(batch_id)d attempt=%(attempt)d %(trouble)s",
    events.ChangeUnknown: "lakesink.%(command)s.unknown attempt=%(attempt)d %(trouble)s",
    events.CommittedByAnother: (
        "lakesink.commit.by-another batch=%(batch_id)d snapshot=%(snapshot_id)s: its rows are in the table, and the"
        " rows of this run are not"
    ),
    events.MetadataKept: "lakesink.metadata.kept path=%(path)s error=%(error)s",
    events.HighWaterKept: "lakesink.high-water.kept sink=%(sink)s error=%(error)s",
    events.RecordKept: "lakesink.prepared.kept path=%(path)s error=%(error)s",
    events.FailpointActs: "lakesink.failpoint.reached name=%(name)s batch=%(batch_id)d action=%(action)s",
}
"""Lines with fixed fields. The other lines have fields that depend on values."""
LEVELS: Mapping[type[events.Event], int] = {
    **dict.fromkeys(
        (
            events.ReadPlanned,
            events.TableCreated,
            events.SchemaEvolved,
            events.BatchAborted,
            events.ChangesLocatedAgain,
            events.FilesCompacted,
            events.CompactionLost,
            events.ManifestSetAside,
            events.MetadataKept,
        ),
        INFO,
    ),
    **dict.fromkeys((events.ClockUnknown, events.RecordKept), DEBUG),
}
"""Levels of lines that are not warnings."""
Fields = dict[str, object]


def log(event: events.Event) -> None:
    """Write the line of an event, if it has one."""
    match event:
        case events.PreparedDropped():
            _write(WARNING, "lakesink.prepared.dropped", _known(event))
        case events.QueryStarted():
            _start(event)
        case events.BatchEnded():
            _end(event)
        case _ if type(event) in LINES:
            shown = {part.name: _shown(getattr(event, part.name)) for part in fields(event)}
            logger.log(LEVELS.get(type(event), WARNING), LINES[type(event)], shown)


def _shown(value: Any) -> Any:
    return ",".join(value) if isinstance(value, tuple) else value


def _write(level: int, name: str, found: Fields, details: Sequence[str] = ()) -> None:
    first = f"{name} {' '.join(f'{key}={value}' for key, value in found.items())}"
    logger.log(level, "%s", "\n".join([first, *(f"  - {detail}" for detail in details)]))


def _known(event: events.PreparedDropped) -> Fields:
    facts = {"reason": event.reason, "batch": event.batch_id, "age_s": event.age_s}
    facts |= {"path": event.path, "error": event.error}
    return {key: value for key, value in facts.items() if value is not None}


def _start(event: events.QueryStarted) -> None:
    query: Fields = {"table": event.table, "sink": event.sink, "query": event.query_id}
    facts = {
        "batch": event.batch_id,
        "sources": ",".join(event.sources),
        "guarantee": f"'{event.guarantee}'",
        "unstable": f"'{','.join(event.unstable)}'",
        "output_mode": event.output_mode,
        "speculation": str(event.speculation).lower(),
        "checkpoint": f"{event.scheme}{'' if event.creates_atomically else ' (not atomic)'}",
    }
    _write(_level(event), "lakesink.query.started", query | facts)
    if event.reads_uncommitted:
        note = "'records of aborted transactions are rows too; kafka.isolation.level=read_committed leaves them out'"
        _write(WARNING, "lakesink.source.read-uncommitted", query | {"note": note})


def _end(event: events.BatchEnded) -> None:
    facts: Fields = {"table": event.table, "sink": event.sink, "batch": event.batch_id}
    times: Fields = {"seconds": f"{event.seconds:.3f}", "write_seconds": f"{event.write_seconds:.3f}"}
    match event:
        case events.BatchFinished(outcome=outcome):
            _write(_level(event), _name(outcome), facts | _counts(outcome) | times)
        case events.BatchInterrupted():
            _write(_level(event), "lakesink.batch.interrupted", facts | times)
        case events.BatchFailed(code=code, error=error):
            name = "lakesink.batch.refused" if event.is_refused else "lakesink.batch.failed"
            _write(_level(event), name, facts | {"code": code} | times | {"error": error}, event.details)


def _name(outcome: Outcome) -> str:
    match outcome:
        case AlreadyCommitted():
            return "lakesink.batch.already-committed"
        case Committed(recovered=True):
            return "lakesink.batch.recovered"
        case Committed(rows=0, changes=None):
            return "lakesink.batch.empty"
        case Committed():
            return "lakesink.batch.committed"


def _counts(outcome: Outcome) -> Fields:
    if isinstance(outcome, AlreadyCommitted):
        return {"snapshot": outcome.snapshot_id}
    counts: Fields = {
        "snapshot": outcome.snapshot_id,
        "rows": outcome.rows,
        "files": outcome.files,
        "bytes": outcome.bytes,
        "attempts": outcome.attempts,
    }
    quality = outcome.quality
    if quality.unknown_keys:
        counts |= {"unknown_keys": quality.unknown_keys, "unknown_names": quality.names_text}
    if quality.unmet_rows:
        counts |= {"unmet_rows": quality.unmet_rows}
    if quality.dead_letters:
        counts |= {"dead_letters": quality.dead_letters}
    if quality.rescued_rows:
        counts |= {"rescued_rows": quality.rescued_rows}
    if outcome.changes is not None:
        counts |= {name: count for name, count in asdict(outcome.changes).items() if count}
    if outcome.recovered:
        counts["note"] = "'holds what the earlier run wrote'"
    return counts if outcome.accepted is None else counts | {"accepted": outcome.accepted}


# Beside a terminal that shows batches itself


def log_beside_terminal(event: events.Event) -> None:
    """As `log`, but without what Python prints by itself where no logging is configured: the terminal shows it."""
    if not isinstance(event, events.BatchEnded) or is_configured():
        log(event)


def is_configured() -> bool:
    """True if the program configured logging, for lakesink or for all."""
    return logger.hasHandlers()


def shows(event: events.Event, *places: IO[str] | None) -> bool:
    """True if a handler that the user configured writes the line of this event to one of these places."""
    level = _level(event)
    handlers = [handler for handler in _handlers() if level >= handler.level] if logger.isEnabledFor(level) else []
    return any(_writes_to(handler, place) for handler in handlers for place in places if place is not None)


def _level(event: events.Event) -> int:
    match event:
        case events.QueryStarted(is_weakened=True) | events.BatchFinished(outcome=Committed(recovered=True)):
            return WARNING
        case events.BatchFailed():
            return ERROR
    return INFO


def _handlers() -> Iterator[logging.Handler]:
    at: logging.Logger | None = logger
    while at is not None:
        yield from at.handlers
        at = at.parent if at.propagate else None


def _writes_to(handler: logging.Handler, place: IO[str]) -> bool:
    stream = getattr(handler, "stream", None) or getattr(getattr(handler, "console", None), "file", None)
    return stream is not None and (stream is place or (stream.isatty() and place.isatty()))
