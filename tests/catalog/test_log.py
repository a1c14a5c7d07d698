"""Each event has the log line that documents and users know, or none."""

import logging
from dataclasses import replace

import pytest

from lakesink_catalog.log import log
from lakesink_protocol import events
from lakesink_protocol.measures import RESCUED_ROWS, Tally
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.quality import Quality
from lakesink_protocol.row_changes import ChangeCounts

SILENT: set[type[events.Event]] = {
    events.Event,
    events.SinkEvent,
    events.BatchEvent,
    events.TableBatchEvent,
    events.SinkBatchEvent,
    events.BatchStarted,
    events.QueryEnded,
    events.QueryProgressed,
    events.BatchesRead,
    events.OffsetsRead,
    events.Decided,
    events.BatchRecovered,
    events.FileClosing,
    events.BatchPrepared,
    events.RecordDue,
    events.RecordStored,
    events.BatchRecorded,
    events.ChangesLocated,
    events.CompactionDue,
    events.GroupRewritten,
    events.CommitDue,
    events.CommitAnswered,
    events.CommitShown,
    events.BatchInTable,
    events.CommitEnded,
    events.BatchLanded,
    events.BatchEnded,
}
STARTED = events.QueryStarted(
    batch_id=3,
    table="demo.events",
    sink="events",
    query_id="q1",
    sources=("files", "kafka"),
    guarantee="exactly once",
    is_weakened=True,
    unstable=("rand", "uuid"),
    output_mode="append",
    speculation=False,
    checkpoint="s3 (not atomic)",
)
FINISHED = "table=demo.events sink=events batch=3 snapshot=7"
TIMES = "seconds=1.500 write_seconds=1.000"
RESCUED = Quality(Tally({RESCUED_ROWS: 2}))


def finished(outcome: Committed | AlreadyCommitted) -> events.BatchFinished:
    return events.BatchFinished(3, "demo.events", "events", 1.5, 1.0, outcome)


def failed(*, is_refused: bool) -> events.BatchFailed:
    return events.BatchFailed(
        3, "demo.events", "events", 1.5, 1, is_refused, "LAKESINK_GAP", "it is", ("  - row 1", "  - row 2")
    )


CASES: list[tuple[events.Event, str, str]] = [
    (
        events.MetricsNotServed("127.0.0.1:9464", "OSError: taken"),
        "WARNING",
        "lakesink.metrics.not-served place=127.0.0.1:9464 error=OSError: taken: the stream runs without metrics",
    ),
    (
        events.LineageNotSent("ConnectionError: away"),
        "WARNING",
        "lakesink.lineage.not-sent error=ConnectionError: away: the stream runs on",
    ),
    (events.LineageSentAgain(3), "WARNING", "lakesink.lineage.sent-again lost=3"),
    (
        events.ListenerFailed("Counter", "BatchLanded", "boom"),
        "WARNING",
        "lakesink.listener.failed listener=Counter event=BatchLanded error=boom",
    ),
    (
        events.CatalogNotCertified("old", "type", "hive"),
        "WARNING",
        "lakesink.catalog.not-certified name=old type=hive",
    ),
    (
        events.FirstSnapshotUnproven("prod", "demo.lakesink_probe_1", "ForbiddenError: no"),
        "WARNING",
        "lakesink.first-snapshot.unproven name=prod scratch=demo.lakesink_probe_1 error=ForbiddenError: no",
    ),
    (
        events.CatalogNotCertified("mine", "class", "my.Catalog"),
        "WARNING",
        "lakesink.catalog.not-certified name=mine class=my.Catalog",
    ),
    (
        events.PartitionByUnused("demo.events", "day(ts)", "hour(ts)"),
        "WARNING",
        (
            "lakesink.partition_by.unused table=demo.events: its partitions are day(ts), partition_by is hour(ts)."
            " The table's own partitions are used; leave partition_by out"
        ),
    ),
    (
        events.SortByUnused("demo.events", "ts ASC NULLS FIRST", "id"),
        "WARNING",
        (
            "lakesink.sort_by.unused table=demo.events: its order is ts ASC NULLS FIRST, sort_by is id. The table's own"
            " order is kept; leave sort_by out"
        ),
    ),
    (
        events.SortOrderUnkept(3, "demo.events", "zorder(id) ASC NULLS FIRST"),
        "WARNING",
        (
            "lakesink.sort_order.unkept table=demo.events batch=3: lakesink cannot sort by zorder(id) ASC NULLS FIRST,"
            " so files state no order"
        ),
    ),
    (events.PropertiesIgnored(("a", "b")), "WARNING", "lakesink.settings.ignored properties=a,b"),
    (
        events.OrderTrusted("demo.orders", "orders"),
        "WARNING",
        (
            "lakesink.changes.order-trusted table=demo.orders sink=orders: without sequence_by, a later batch counts as"
            " newer, and a batch with two changes of a key is refused"
        ),
    ),
    (
        events.LedgerTagOff("demo.events", "events"),
        "WARNING",
        (
            "lakesink.ledger.without-tag table=demo.events sink=events: without the tag, lakesink cannot detect a"
            " rollback that expiry hides, or a late request on an old head"
        ),
    ),
    (
        STARTED,
        "WARNING",
        (
            "lakesink.query.started table=demo.events sink=events query=q1 batch=3 sources=files,kafka"
            " guarantee='exactly once' unstable='rand,uuid' output_mode=append speculation=false"
            " checkpoint=s3 (not atomic)"
        ),
    ),
    (
        events.SourceReadsUncommitted("demo.events", "events", "q1"),
        "WARNING",
        (
            "lakesink.source.read-uncommitted table=demo.events sink=events query=q1 note='records of aborted"
            " transactions are rows too; kafka.isolation.level=read_committed leaves them out'"
        ),
    ),
    (
        events.QueryFactsUnwritten("demo.events", "events", "q1", "boom"),
        "WARNING",
        "lakesink.query.notes-unwritten table=demo.events sink=events query=q1 error=boom",
    ),
    (
        events.InputUnchecked("no such scheme"),
        "WARNING",
        "lakesink.input.unchecked no such scheme: lakesink assumes that its files exist",
    ),
    (
        events.ServerUnchecked("4.1.4"),
        "WARNING",
        "lakesink.server.unchecked spark=4.1.4: its first batch finds what is wrong there",
    ),
    (events.TableCreated(0, "demo.events"), "INFO", "lakesink.table.created table=demo.events batch=0"),
    (
        events.AcceptUnused(3, "table", "demo.events", "events", "Gap:3:commit"),
        "WARNING",
        "lakesink.accept.unused table=demo.events sink=events batch=3 accept=Gap:3:commit: it did not apply; remove it",
    ),
    (
        events.EntryUnverifiable(3, "demo.events", "events"),
        "WARNING",
        (
            "lakesink.ledger.unproven table=demo.events sink=events batch=3: expiry removed its snapshot; the entry is"
            " trusted"
        ),
    ),
    (events.PreparedDropped("torn", path="/100%s"), "WARNING", "lakesink.prepared.dropped reason=torn path=/100%s"),
    (events.PreparedDropped("malformed", 3), "WARNING", "lakesink.prepared.dropped reason=malformed batch=3"),
    (events.PreparedDropped("age", 3, 99), "WARNING", "lakesink.prepared.dropped reason=age batch=3 age_s=99"),
    (
        events.PreparedDropped("malformed", error="KeyError"),
        "WARNING",
        "lakesink.prepared.dropped reason=malformed error=KeyError",
    ),
    (events.PreparedUnusable(3, "it is old"), "WARNING", "lakesink.prepared.dropped batch=3 reason=it is old"),
    (
        events.RowsRescued(3, "demo.events", "a.b: no column, id: not INT"),
        "WARNING",
        (
            "lakesink.decode.rescued table=demo.events batch=3: the rescue column keeps what other columns do not hold:"
            " a.b: no column, id: not INT"
        ),
    ),
    (
        events.RowsBeforeUnread(3, "demo.events", 2),
        "WARNING",
        (
            "lakesink.changelog.unread table=demo.events batch=3 rows=2: values before these deletes do not fit; the"
            " changelog has NULL for them"
        ),
    ),
    (
        events.DeletesLate(3, "demo.events", 2),
        "WARNING",
        (
            "lakesink.deletes.late table=demo.events batch=3 rows=2: the stored rows have a higher sequence and stay;"
            " if the events have no sequence before a delete, set REPLICA IDENTITY FULL in PostgreSQL or"
            " binlog_row_image=FULL in MySQL"
        ),
    ),
    (
        events.ExpectationsUnmet(3, "demo.events", "valid_age 2"),
        "WARNING",
        (
            "lakesink.expectation.unmet table=demo.events batch=3: rows that do not meet an expectation were let in:"
            " valid_age 2"
        ),
    ),
    (
        events.RowsPutAside(3, "demo.events", 2, "demo.events__dead_letters"),
        "WARNING",
        (
            "lakesink.rows.put-aside table=demo.events batch=3 rows=2: they become dead letters in"
            " demo.events__dead_letters"
        ),
    ),
    (
        events.ColumnsIgnored(3, "demo.events", "events", "a, b"),
        "WARNING",
        (
            "lakesink.columns.ignored table=demo.events sink=events batch=3: the table lacks these columns of the rows,"
            " which are left out: a, b"
        ),
    ),
    (
        events.SchemaEvolved(3, "demo.events", "added a"),
        "INFO",
        "lakesink.schema.evolved table=demo.events batch=3: added a",
    ),
    (
        events.SchemaIdTaken(3, "demo.events", 7),
        "WARNING",
        (
            "lakesink.schema.id-taken table=demo.events batch=3 snapshot=7: another writer changed the schema at the"
            " same moment; readers of this snapshot may see other columns; its files are right"
        ),
    ),
    (
        events.ColumnsMissing(3, "demo.events", "events", "a, b"),
        "WARNING",
        (
            "lakesink.columns.missing table=demo.events sink=events batch=3: the rows lack these columns of the table,"
            " which become NULL: a, b"
        ),
    ),
    (
        events.KeysUnknown(3, "demo.events", "a, b"),
        "WARNING",
        "lakesink.decode.unknown-keys table=demo.events batch=3: keys without a column are left out: a, b",
    ),
    (events.BatchAborted(3, "table", "demo.events"), "INFO", "lakesink.batch.aborted table=demo.events batch=3"),
    (events.BatchAborted(3, "directory", "/out"), "INFO", "lakesink.batch.aborted directory=/out batch=3"),
    (
        events.TagTaken("lakesink-3"),
        "WARNING",
        "lakesink.tag.taken tag=lakesink-3: another tag or branch has this name, so the batch gets no tag",
    ),
    (events.ManifestsUnmerged(9, "OSError"), "WARNING", "lakesink.manifests.unmerged count=9 error=OSError"),
    (
        events.MaintenanceFailed("demo.events", "OSError: no space"),
        "WARNING",
        ("lakesink.maintenance.ended table=demo.events error=OSError: no space: batches go on, and it is tried again"),
    ),
    (
        events.TableMaintainedElsewhere("demo.events", "Amazon S3 Tables", "the catalog's property warehouse"),
        "WARNING",
        (
            "lakesink.maintenance.elsewhere table=demo.events by=Amazon S3 Tables: the catalog's property warehouse"
            " says so; the stream leaves it alone"
        ),
    ),
    (
        events.TableUnhealthy("demo.events", "2,000 small files"),
        "WARNING",
        (
            "lakesink.table.unhealthy table=demo.events: 2,000 small files; give the stream's maintenance a larger"
            " budget or gate=True, or run lakesink maintain"
        ),
    ),
    (
        events.GroupReplaced("demo.events", 7, 12, 1, 340, 5, 2),
        "INFO",
        "lakesink.maintenance.replaced table=demo.events snapshot=7 files=12 into=1 rows=340 dropped=5 carried=2",
    ),
    (
        events.GroupLost("demo.events", 12, "lost: another writer was quicker"),
        "INFO",
        (
            "lakesink.maintenance.lost table=demo.events files=12 lost: another writer was quicker; a later run tries"
            " again"
        ),
    ),
    (
        events.GroupFailed("demo.events", 12, "proof: the number of rows changed"),
        "WARNING",
        (
            "lakesink.maintenance.failed table=demo.events files=12 proof: the number of rows changed: the files stay,"
            " or the answer was lost; no row is concerned"
        ),
    ),
    (events.ChangesLocatedAgain(3, 7), "INFO", "lakesink.changes.located-again batch=3 head=7"),
    (
        events.ManifestSetAside("m.avro", "a codec"),
        "INFO",
        "lakesink.manifests.carried-over path=m.avro reason=a codec",
    ),
    (events.ClockBehind(71), "WARNING", "lakesink.clock.behind seconds=71"),
    (events.ClockAhead(71), "WARNING", "lakesink.clock.ahead seconds=71: until then, Java writers refuse the table"),
    (events.ClockUnknown("OSError"), "DEBUG", "lakesink.clock.untold error=OSError"),
    (
        events.TagsLeftOut("demo.events", "events"),
        "WARNING",
        (
            "lakesink.catalog.without-tags table=demo.events sink=events code=LAKESINK_CATALOG_WITHOUT_TAGS: the"
            " catalog accepts commits and leaves out their tags; lakesink cannot detect a rollback that expiry hides,"
            " or a late request on an old head; ledger_tag=False sends no tag"
        ),
    ),
    (events.CommitNotShown(3, 2), "WARNING", "lakesink.commit.not-shown batch=3 attempt=2"),
    (events.CommitUnknown(3, 2, "no answer"), "WARNING", "lakesink.commit.unknown batch=3 attempt=2 no answer"),
    (events.ChangeUnknown("forget", 2, "no answer"), "WARNING", "lakesink.forget.unknown attempt=2 no answer"),
    (
        events.CommittedByAnother(3, None),
        "WARNING",
        "lakesink.commit.by-another batch=3 snapshot=None: its rows are in the table, and the rows of this run are not",
    ),
    (events.MetadataKept("v1.json", "denied"), "INFO", "lakesink.metadata.kept path=v1.json error=denied"),
    (events.HighWaterKept("clicks", "denied"), "WARNING", "lakesink.high-water.kept sink=clicks error=denied"),
    (events.RecordKept("3-a.json", "OSError"), "DEBUG", "lakesink.prepared.kept path=3-a.json error=OSError"),
    (
        events.FailpointActs(3, "after-call", "raise"),
        "WARNING",
        "lakesink.failpoint.reached name=after-call batch=3 action=raise",
    ),
    (
        finished(Committed(7, rows=5, files=2, bytes=90)),
        "INFO",
        f"lakesink.batch.committed {FINISHED} rows=5 files=2 bytes=90 attempts=1 {TIMES}",
    ),
    (
        events.ReadPlanned("demo.events", "events", "3", "replay-5", 3, 4, 1000),
        "INFO",
        "lakesink.read.planned table=demo.events sink=events first=3 last=replay-5 batches=3 files=4 rows=1000",
    ),
    (
        events.OthersNotRead("demo.events", "events", 2, 7),
        "WARNING",
        (
            "lakesink.read.others table=demo.events sink=events snapshots=2 rows=7: rows of other writers are not part"
            " of the sink's batches, and are not read"
        ),
    ),
    (
        events.ReadWaits("demo.events", "events"),
        "WARNING",
        (
            "lakesink.read.waits table=demo.events sink=events: the table was rolled back behind the batches that were"
            " read; nothing is read until they are written again. If its sink went on otherwise, start this query"
            " again: it tells what to do"
        ),
    ),
    (
        events.ReplayLost("demo.events", "events", 2),
        "WARNING",
        (
            "lakesink.read.replay-lost table=demo.events sink=events replay=2: the table was rolled back behind a"
            " replay of dead letters that was read. Replay the same letters again: they are not read a second time"
        ),
    ),
    (
        events.HoldNotMoved("demo.events", "silver", "another commit came first"),
        "WARNING",
        (
            "lakesink.read.hold-not-moved table=demo.events reader=silver why=another commit came first: batches are"
            " read all the same; it is tried again with a later micro-batch"
        ),
    ),
    (
        events.TurnPassedOver("demo.events", "TimeoutError: 30 s"),
        "WARNING",
        (
            "lakesink.turn.passed-over table=demo.events error=TimeoutError: 30 s: commits go on without turns for ten"
            " minutes"
        ),
    ),
    (
        finished(Committed(7, rows=0, changes=ChangeCounts(deletes=3, deleted=2, absent=1))),
        "INFO",
        (f"lakesink.batch.committed {FINISHED} rows=0 files=0 bytes=0 attempts=1 deletes=3 deleted=2 absent=1 {TIMES}"),
    ),
    (
        finished(Committed(7, rows=0)),
        "INFO",
        f"lakesink.batch.empty {FINISHED} rows=0 files=0 bytes=0 attempts=1 {TIMES}",
    ),
    (
        finished(Committed(7, rows=5, recovered=True, accepted="Gap:3:commit", quality=RESCUED)),
        "WARNING",
        (
            f"lakesink.batch.recovered {FINISHED} rows=5 files=0 bytes=0 attempts=1 rescued_rows=2"
            f" note='holds what the earlier run wrote' accepted=Gap:3:commit {TIMES}"
        ),
    ),
    (finished(AlreadyCommitted(7)), "INFO", f"lakesink.batch.already-committed {FINISHED} {TIMES}"),
    (
        events.BatchInterrupted(3, "demo.events", "events", 1.5, 1),
        "INFO",
        f"lakesink.batch.interrupted table=demo.events sink=events batch=3 {TIMES}",
    ),
    (
        failed(is_refused=False),
        "ERROR",
        (
            f"lakesink.batch.failed table=demo.events sink=events batch=3 code=LAKESINK_GAP {TIMES} error=it is\n"
            "  - row 1\n  - row 2"
        ),
    ),
    (
        failed(is_refused=True),
        "ERROR",
        (
            f"lakesink.batch.refused table=demo.events sink=events batch=3 code=LAKESINK_GAP {TIMES} error=it is\n"
            "  - row 1\n  - row 2"
        ),
    ),
]


@pytest.mark.parametrize(("event", "level", "line"), CASES)
def test_an_event_has_its_line(event: events.Event, level: str, line: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "lakesink"):
        log(event)
    [record] = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == ("lakesink", level, line)


def test_a_start_that_nothing_weakens_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lakesink"):
        log(replace(STARTED, is_weakened=False))
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_every_event_has_a_line_here_or_is_silent() -> None:
    told = {type(event) for event, _, _ in CASES}
    defined = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)}
    assert told == defined - SILENT
    assert not [kind for kind in SILENT if kind.line]


def test_a_line_names_only_what_its_event_has() -> None:
    with pytest.raises(TypeError, match=r"Wrong lacks what its line names: rows, file\."):

        class Wrong(events.BatchEvent):
            line = "lakesink.wrong batch=%(batch_id)d rows=%(rows)d file=%(file)s"
