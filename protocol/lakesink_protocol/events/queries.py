"""A run of a query: its options and sources, its start and its end."""

from lakesink_protocol.events.event import INFO, WARNING, Event, SinkBatchEvent, SinkEvent


class PropertiesIgnored(Event):
    """lakesink ignores these table properties."""

    line = "lakesink.settings.ignored properties=%(properties)s"
    properties: tuple[str, ...]


class PartitionByUnused(Event):
    """The option differs from the partitions of a table whose partitioning evolved."""

    line = (
        "lakesink.partition_by.unused table=%(table)s: its partitions are %(partitions)s, partition_by is %(asked)s."
        " The table's own partitions are used; leave partition_by out"
    )
    table: str
    partitions: str
    asked: str


class SortByUnused(Event):
    """The option is no order of the table."""

    line = (
        "lakesink.sort_by.unused table=%(table)s: its order is %(order)s, sort_by is %(asked)s. The table's own order"
        " is kept; leave sort_by out"
    )
    table: str
    order: str
    asked: str


class LedgerTagOff(SinkEvent):
    """The option `ledger_tag` is off, which weakens the guarantee."""

    line = (
        "lakesink.ledger.without-tag table=%(table)s sink=%(sink)s: without the tag, lakesink cannot detect a rollback"
        " that expiry hides, or a late request on an old head"
    )


class OrderTrusted(SinkEvent):
    """Changes have no `sequence_by`, and the source keeps no order of its own: a later batch counts as newer."""

    line = (
        "lakesink.changes.order-trusted table=%(table)s sink=%(sink)s: without sequence_by, a later batch counts as"
        " newer, and a batch with two changes of a key is refused"
    )


class InputUnchecked(Event):
    """This process cannot check whether the input files of a batch exist."""

    line = "lakesink.input.unchecked %(error)s: lakesink assumes that its files exist"
    error: str


class ServerUnchecked(Event):
    """The format was registered in a Spark Connect session: what its server has cannot be checked from here."""

    line = "lakesink.server.unchecked spark=%(spark)s: its first batch finds what is wrong there"
    spark: str


class QueryStarted(SinkBatchEvent):
    """The first batch of a run begins; `is_weakened` if a fact of the query weakens the guarantee."""

    level = INFO
    line = (
        "lakesink.query.started table=%(table)s sink=%(sink)s query=%(query_id)s batch=%(batch_id)d sources=%(sources)s"
        " guarantee='%(guarantee)s' unstable='%(unstable)s' output_mode=%(output_mode)s speculation=%(speculation)s"
        " checkpoint=%(checkpoint)s"
    )
    query_id: str
    sources: tuple[str, ...]
    guarantee: str
    is_weakened: bool
    unstable: tuple[str, ...]
    output_mode: str
    speculation: bool
    checkpoint: str

    @property
    def severity(self) -> int:
        """A weakened guarantee is a warning."""
        return WARNING if self.is_weakened else self.level


class SourceReadsUncommitted(SinkEvent):
    """A Kafka source also reads records of aborted transactions."""

    line = (
        "lakesink.source.read-uncommitted table=%(table)s sink=%(sink)s query=%(query_id)s note='records of aborted"
        " transactions are rows too; kafka.isolation.level=read_committed leaves them out'"
    )
    query_id: str


class QueryFactsUnwritten(SinkEvent):
    """The facts for `doctor --query` were not stored."""

    line = "lakesink.query.notes-unwritten table=%(table)s sink=%(sink)s query=%(query_id)s error=%(error)s"
    query_id: str
    error: str


class QueryEnded(Event):
    """A run of a query that somebody watches has ended."""


class QueryProgressed(Event):
    """A query runs; `unread` offsets are in its sources that it had not read at Spark's last progress."""

    unread: int


class BatchesRead(SinkBatchEvent):
    """A query has read the batches of another sink up to this one."""

    branch: str
