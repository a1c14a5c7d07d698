"""The cells of the table as data: what theory promises, and the moments at which a driver is killed. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

Row = tuple[int, int]
"""Device, and the number of its reading."""


class Source(Enum):
    """Whether a source can give a batch again; the value is its title."""

    REPLAYS = "source can replay"
    FORGETS = "source cannot replay"


class Guarantee(Enum):
    """What becomes of a row; the value is the table's word for it."""

    EXACTLY_ONCE = "exactly once"
    IN_THE_END = "exactly once in the end"
    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"
    NONE = "neither: rows lost and rows doubled"


@dataclass(frozen=True, slots=True)
class SinkKind:
    """One row of the table.

    Attributes:
        name: Short, for the command line.
        title: For the table.
        how: How it works, in words.
        code: Where its code is, from the root of the repository.
        promise: What theory promises where the source can replay. Where it cannot, that is at most once for everyone.
        points: Failpoints at which the driver is killed, in the order of a batch, each in words.
    """

    name: str
    title: str
    how: str
    code: str
    promise: Guarantee
    points: Mapping[str, str]

    def promised(self, source: Source) -> Guarantee:
        """What theory promises with a source."""
        return self.promise if source is Source.REPLAYS else Guarantee.AT_MOST_ONCE


_HANDED_OVER = {"example.handed-over": "the source has handed the rows over; nothing is written"}
_WRITING = {
    "example.half-written": "half of the rows are written",
    "example.written": "all rows are written; nothing remembers that",
}
_VOTED = {"before-prepared": "the rows are read; nothing of the batch is durable"}
_SPARK = {"after-commit": "the sink has the batch and knows it; Spark has not logged that"}

KINDS = {
    kind.name: kind
    for kind in (
        SinkKind(
            "at-most-once",
            "at most once",
            "`foreachBatch`: remembers the batch, then writes it",
            "examples/guarantees/at_most_once.py",
            Guarantee.AT_MOST_ONCE,
            {"example.remembered": "the batch is remembered; nothing is written"}
            | _WRITING
            | {"example.written": "all rows are written; Spark has not logged that"},
        ),
        SinkKind(
            "at-least-once",
            "at least once",
            "`foreachBatch`: writes the batch; Spark remembers it",
            "examples/guarantees/at_least_once.py",
            Guarantee.AT_LEAST_ONCE,
            _HANDED_OVER | _WRITING,
        ),
        SinkKind(
            "key-value",
            "idempotent writes",
            "`foreachBatch`: every row sets a key",
            "examples/guarantees/key_value.py",
            Guarantee.IN_THE_END,
            _HANDED_OVER | _WRITING,
        ),
        SinkKind(
            "write-ahead-log",
            "write-ahead log",
            "two phases, a commit that is not atomic: log, send row by row, confirm",
            "examples/guarantees/write_ahead_log.py",
            Guarantee.AT_LEAST_ONCE,
            _VOTED
            | {
                "after-prepared": "the log has the batch; nothing is sent",
                "example.half-written": "half of the rows are sent (hole one)",
                "example.written": "all rows are sent; that is not confirmed (hole two)",
                "after-commit": "the batch is confirmed; the log is not tidied, and Spark has not logged it",
            },
        ),
        SinkKind(
            "folders",
            "two-phase commit: files",
            "two phases: pending folder, one rename",
            "examples/guarantees/folders.py",
            Guarantee.EXACTLY_ONCE,
            _VOTED
            | {
                "after-prepared": "the batch is prepared; no reader sees it",
                "example.renamed": "in the commit: the folder is renamed; the sink does not know that yet",
            }
            | _SPARK,
        ),
        SinkKind(
            "lakesink",
            "two-phase commit: lakesink",
            "`lakesink.stream`: prepared record, one commit of an Iceberg table",
            "lakesink/sinks/iceberg/iceberg_sink.py",
            Guarantee.EXACTLY_ONCE,
            _VOTED
            | {
                "after-prepared": "the batch is prepared; no reader sees it",
                "before-call": "in the commit: about to be sent",
                "after-call": "in the commit: it has landed; its answer is not looked at",
            }
            | _SPARK,
        ),
        SinkKind(
            "kafka",
            "two-phase commit: Kafka",
            "`KafkaSink`: staged rows, one transaction of a Kafka producer with its ledger record",
            "lakesink/sinks/kafka/kafka_sink.py",
            Guarantee.EXACTLY_ONCE,
            _VOTED
            | {
                "after-prepared": "the batch is prepared; nothing is sent",
                "before-call": "in the transaction: all records are sent, none is committed",
                "after-call": "the transaction is committed; its answer is not looked at",
            }
            | _SPARK,
        ),
        SinkKind(
            "pravega",
            "two-phase commit: Pravega",
            "two phases: a durable transaction, elected by one ledger entry, committed by its id",
            "examples/transactional_sinks/pravega/pravega_sink.py",
            Guarantee.EXACTLY_ONCE,
            {
                "example.pravega-durable": "the transaction has all events; no record names it",
                "after-prepared": "the batch is prepared; no reader sees it",
                "example.pravega-elected": "in the commit: the ledger names the transaction",
                "example.pravega-committed": "in the commit: it is committed; the sink does not know that yet",
            }
            | _SPARK,
        ),
    )
}

PARTED = {
    ("write-ahead-log", Source.FORGETS): (
        "theory calls this at most once, since rows that were not logged are gone with the source. But what *was*"
        " logged survives and is sent again, so that both holes are there too, and rows are doubled."
    ),
}
"""Where what happens is known to be something else than what theory calls it, and why."""


@dataclass(frozen=True, slots=True)
class Blow:
    """One SIGKILL, and what became of the batch that it met.

    Attributes:
        point: The failpoint.
        sent: Rows of the batch.
        lost: Rows that are not there in the end.
        doubled: Copies too many.
    """

    point: str
    sent: int
    lost: int
    doubled: int


@dataclass(frozen=True, slots=True)
class CellResult:
    """What came of one cell.

    Attributes:
        sink: Name of the kind.
        source: Name of the source, as in `Source`.
        blows: Its kills, in order; batch n met kill n.
        lost: Rows that are not there, of all batches.
        doubled: Copies too many, of all batches.
        looks: How often a reader looked meanwhile.
        in_part: Batches that it saw in part, and not whole.
        went_back: How often it saw an older value after a newer one.
        example: The first of these, in words; empty if there is none.
        stopped: Error with which the stream stopped in the end; empty if it ended well.
        seconds: How long it took.
    """

    sink: str
    source: str
    blows: tuple[Blow, ...]
    lost: int
    doubled: int
    looks: int
    in_part: int
    went_back: int
    example: str = ""
    stopped: str = ""
    seconds: float = 0.0

    @property
    def of(self) -> tuple[str, Source]:
        """Which cell it is."""
        return self.sink, Source[self.source]

    @property
    def promised(self) -> Guarantee:
        """What theory says."""
        return KINDS[self.sink].promised(Source[self.source])

    @property
    def measured(self) -> Guarantee:
        """What was seen."""
        if self.lost and self.doubled:
            return Guarantee.NONE
        if self.lost or self.doubled:
            return Guarantee.AT_MOST_ONCE if self.lost else Guarantee.AT_LEAST_ONCE
        return Guarantee.IN_THE_END if self.went_back or self.in_part else Guarantee.EXACTLY_ONCE

    @property
    def broken(self) -> str:
        """Why the cell is not what it should be; empty if it is, or if it is known why it cannot be."""
        if self.stopped:
            return f"the stream stopped with {self.stopped}"
        if (self.measured is not self.promised) == (self.of in PARTED):
            return ""
        return f"promised {self.promised.value}, seen {self.measured.value}"
