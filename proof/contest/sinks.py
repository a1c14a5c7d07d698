"""The sinks that are compared: the one list of them, with how each is used and what theory promises of it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum

from pyspark.sql import DataFrame

from proof.contest.pravega_streams import events, into_pravega, pravega_of
from proof.contest.stores import (
    at_least_once,
    at_most_once,
    folders,
    inserted,
    key_value,
    plain,
    put,
    renamed,
    write_ahead_log,
)
from proof.contest.tables import Writer, icebergs_own, marked, naive, two_phase
from proof.contest.target import Target, View
from proof.contest.topics import broker_of, committed, into_kafka

OURS = "lakesink"


class Guarantee(Enum):
    """What becomes of a row; the value is the table's word for it."""

    EXACTLY_ONCE = "exactly once"
    IN_THE_END = "exactly once in the end"
    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"
    NONE = "neither: rows lost and rows doubled"


@dataclass(frozen=True, slots=True)
class Sink:
    """One of the sinks.

    Attributes:
        name: Short, for the command line.
        title: For the tables.
        how: How it works, in words.
        writer: Puts it together.
        view: Reads its target; None if that is the Iceberg table of the place.
        server: Runs what the targets of its streams need.
        look_seconds: Pause of a reader between two looks.
        in_jvm: True if it is Iceberg's jar.
        code: Where it is written down, from the root of the repository.
        promise: What theory promises where the source can replay. Where it cannot, that is at most once for everyone.
        points: Failpoints at which the driver is killed, in the order of a batch, each in words.
    """

    name: str
    title: str
    how: str
    writer: Callable[[DataFrame, Target], Writer]
    view: Callable[[Target], View] | None = None
    server: Callable[[Sequence[Target]], AbstractContextManager[object]] = nullcontext
    look_seconds: float = 0.01
    in_jvm: bool = False
    code: str = ""
    promise: Guarantee = Guarantee.EXACTLY_ONCE
    points: Mapping[str, str] = field(default_factory=dict)

    def promised(self, *, replays: bool) -> Guarantee:
        """What theory promises with a source."""
        return self.promise if replays else Guarantee.AT_MOST_ONCE


_HANDED_OVER = {"example.handed-over": "the source has handed the rows over; nothing is written"}
_WRITING = {
    "example.half-written": "half of the rows are written",
    "example.written": "all rows are written; nothing remembers that",
}
_VOTED = {"before-prepared": "the rows are read; nothing of the batch is durable"}
_PREPARED = {"after-prepared": "the batch is prepared; no reader sees it"}
_SPARK = {"after-commit": "the sink has the batch and knows it; Spark has not logged that"}

SINKS = {
    sink.name: sink
    for sink in (
        Sink(
            "append",
            "`foreachBatch`, `Table.append`",
            "PyIceberg's `Table.append` of every batch; Spark's guide promises at least once for that, and no more.",
            naive,
        ),
        Sink(
            "marker",
            "the same with a marker",
            "Before it, a look whether a retained snapshot's summary names the stream and the batch.",
            marked,
        ),
        Sink(
            "iceberg",
            "Iceberg's Spark sink",
            '`writeStream.format("iceberg").outputMode("append")`, checkpoint, `toTable`.',
            icebergs_own,
            in_jvm=True,
        ),
        Sink(
            "at-most-once",
            "at most once",
            "`foreachBatch`: remembers the batch, then writes it",
            plain(at_most_once),
            inserted,
            code="examples/guarantees/at_most_once.py",
            promise=Guarantee.AT_MOST_ONCE,
            points={"example.remembered": "the batch is remembered; nothing is written"}
            | _WRITING
            | {"example.written": "all rows are written; Spark has not logged that"},
        ),
        Sink(
            "at-least-once",
            "at least once",
            "`foreachBatch`: writes the batch; Spark remembers it",
            plain(at_least_once),
            inserted,
            code="examples/guarantees/at_least_once.py",
            promise=Guarantee.AT_LEAST_ONCE,
            points=_HANDED_OVER | _WRITING,
        ),
        Sink(
            "key-value",
            "idempotent writes",
            "`foreachBatch`: every row sets a key",
            plain(key_value),
            put,
            code="examples/guarantees/key_value.py",
            promise=Guarantee.IN_THE_END,
            points=_HANDED_OVER | _WRITING,
        ),
        Sink(
            "write-ahead-log",
            "write-ahead log",
            "two phases, a commit that is not atomic: log, send row by row, confirm",
            write_ahead_log,
            inserted,
            code="examples/guarantees/write_ahead_log.py",
            promise=Guarantee.AT_LEAST_ONCE,
            points=_VOTED
            | {
                "after-prepared": "the log has the batch; nothing is sent",
                "example.half-written": "half of the rows are sent (hole one)",
                "example.written": "all rows are sent; that is not confirmed (hole two)",
                "after-commit": "the batch is confirmed; the log is not tidied, and Spark has not logged it",
            },
        ),
        Sink(
            "folders",
            "two-phase commit: files",
            "two phases: pending folder, one rename",
            folders,
            renamed,
            code="examples/guarantees/folders.py",
            points=_VOTED
            | _PREPARED
            | {"example.renamed": "in the commit: the folder is renamed; the sink does not know that yet"}
            | _SPARK,
        ),
        Sink(
            OURS,
            "two-phase commit: lakesink",
            "`lakesink.stream`: prepared record, one commit of an Iceberg table",
            two_phase,
            look_seconds=0.1,
            code="lakesink/sinks/iceberg/iceberg_sink.py",
            points=_VOTED
            | _PREPARED
            | {
                "before-call": "in the commit: about to be sent",
                "after-call": "in the commit: it has landed; its answer is not looked at",
            }
            | _SPARK,
        ),
        Sink(
            "kafka",
            "two-phase commit: Kafka",
            "`KafkaSink`: staged rows, one transaction of a Kafka producer with its ledger record",
            into_kafka,
            committed,
            server=broker_of,
            look_seconds=0.2,
            code="lakesink/sinks/kafka/kafka_sink.py",
            points=_VOTED
            | {
                "after-prepared": "the batch is prepared; nothing is sent",
                "before-call": "in the transaction: all records are sent, none is committed",
                "after-call": "the transaction is committed; its answer is not looked at",
            }
            | _SPARK,
        ),
        Sink(
            "pravega",
            "two-phase commit: Pravega",
            "two phases: a durable transaction, elected by one ledger entry, committed by its id",
            into_pravega,
            events,
            server=pravega_of,
            look_seconds=0.2,
            code="examples/transactional_sinks/pravega/pravega_sink.py",
            points={"example.pravega-durable": "the transaction has all events; no record names it"}
            | _PREPARED
            | {
                "example.pravega-elected": "in the commit: the ledger names the transaction",
                "example.pravega-committed": "in the commit: it is committed; the sink does not know that yet",
            }
            | _SPARK,
        ),
    )
}
