"""The one action over a batch's rows: a task writer to the executors, a receipt from every task back.

The job either returns exactly one receipt for each task that Spark planned, or raises: absence is never a vote.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType

from lakesink import __version__
from lakesink.spark.decimals import as_whole_numbers, short_decimals
from lakesink.spark.distribution import distributed
from lakesink.spark.failures import JAVA_ERRORS, NOT_IN_TABLE, QueryStopped, job_error, whole_text
from lakesink.spark.hop import HopTuning
from lakesink.spark.small import driver_may_write
from lakesink.spark.task import Rows, WriteTask
from lakesink.two_phase import TaskWriter
from lakesink_catalog.errors import WriteError

_VOTE = StructType().add("task", IntegerType()).add("widest_row_bytes", LongType()).add("receipt", BinaryType())
_PLAIN_NAME = re.compile(r"[^.`]*")


@dataclass(frozen=True, slots=True)
class Vote:
    """What one task sent back.

    Attributes:
        task: Index of its partition.
        widest_row_bytes: Largest mean row of its Arrow batches.
        receipt: The writer's receipt, encoded.
    """

    task: int
    widest_row_bytes: int
    receipt: bytes


@dataclass(frozen=True, slots=True)
class RowsJob:
    """Runs writers over the rows of one DataFrame; its `write` is what the two-phase coordinator calls.

    Attributes:
        rows: The batch's rows; evaluated once a call of `write`.
        tuning: Settings of the session that the job runs in.
        was_stopped: True if an error from the JVM only says that somebody stopped the query.
        most_rows: Most rows that there can be, if that is known before they are read.
    """

    rows: DataFrame
    tuning: HopTuning
    was_stopped: Callable[[BaseException], bool]
    most_rows: int | None = None

    def write(self, writers: Mapping[str, TaskWriter]) -> Mapping[str, Sequence[bytes]]:
        """Run one job and return every participant's receipts.

        Args:
            writers: The participants' writers by name. Every row goes to each of them, so there can be only one until
                rows are routed.

        Raises:
            WriteError: The job failed, or a task's vote is missing or doubled.
            QueryStopped: The query was asked to stop meanwhile.
            NotImplementedError: There is more than one participant.
        """
        if len(writers) != 1:
            raise NotImplementedError(f"rows are not routed yet: one participant a batch, not {len(writers)}")
        [(name, writer)] = writers.items()
        if driver_may_write(self.most_rows, self.tuning.widest_row_bytes) and _is_plain(self.rows.columns):
            return {name: [self._write_here(writer)]}
        self.tuning.apply()
        votes = self._run(writer)
        self.tuning.seen(max((vote.widest_row_bytes for vote in votes), default=0))
        return {name: [vote.receipt for vote in votes]}

    def read(self) -> None:
        """Run the query without writing, for a batch that needed no job: so that Spark's state stores follow it.

        A query's state changes while its rows are read, and Spark takes for granted that each batch was.

        Raises:
            WriteError: The job failed.
            QueryStopped: The query was asked to stop meanwhile.
        """
        try:
            self.rows._jdf.queryExecution().toRdd().count()  # noqa: SLF001 - an action that needs no column to have a good name
        except JAVA_ERRORS as error:
            if self.was_stopped(error):
                raise QueryStopped from None
            raise _state_behind(whole_text(error)) from None

    def _write_here(self, writer: TaskWriter) -> bytes:
        """One task's work in the driver: the same writer, the same receipt."""
        try:
            gathered = self.rows.toArrow()
        except JAVA_ERRORS as error:
            raise self._failure(error) from None
        rows = Rows(gathered.to_batches(), None)
        receipt = writer.write(0, iter(rows))
        self.tuning.seen(rows.widest_row_bytes)
        return receipt

    def _run(self, writer: TaskWriter) -> list[Vote]:
        try:
            mapped = _mapped(self.rows, writer)
            votes = [Vote(row.task, row.widest_row_bytes, bytes(row.receipt)) for row in mapped.collect()]
            return complete(votes, _planned_tasks(mapped))
        except JAVA_ERRORS as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> Exception:
        return QueryStopped() if self.was_stopped(error) else job_error(whole_text(error))


def complete(votes: Sequence[Vote], planned_tasks: int) -> list[Vote]:
    """The votes in task order, if there is exactly one of every task.

    Raises:
        WriteError: A vote is missing, doubled, or of a task that was not planned.
    """
    ordered = sorted(votes, key=lambda vote: vote.task)
    if [vote.task for vote in ordered] != list(range(planned_tasks)):
        raise WriteError(
            "VOTES_INCOMPLETE",
            f"Spark planned {planned_tasks} tasks, {len(votes)} receipts came from "
            f"{len({vote.task for vote in votes})} of them.",
            data=NOT_IN_TABLE,
            action="Start the query again; if it happens again, report it with the driver's log.",
        )
    return ordered


def _state_behind(text: str) -> WriteError:
    return WriteError(
        "STATE_BEHIND",
        f"The batch is in the table, but Spark's state did not follow it: {job_error(text).what}",
        data="This batch is in the table, once.",
        action="Correct what the message says and start the query again: the batch is read again, and not written.",
    )


def _mapped(rows: DataFrame, writer: TaskWriter) -> DataFrame:
    """The job's DataFrame. PySpark finds columns by parsing their names, so odd or doubled ones travel by position."""
    names = rows.columns
    plain = _is_plain(names)
    shipped = cloudpickle.dumps(writer)  # type: ignore[no-untyped-call] # a copy without types; it takes a notebook's classes
    rows = distributed(rows, getattr(writer, "clustered_by", ()))
    named = rows if plain else rows.toDF(*(f"c{position}" for position in range(len(names))))
    decimals = short_decimals(named)
    task = WriteTask(__version__, None if plain else tuple(names), shipped, decimals)
    return as_whole_numbers(named, decimals).mapInArrow(task, _VOTE)


def _is_plain(names: Sequence[str]) -> bool:
    return all(map(_PLAIN_NAME.fullmatch, names)) and len({name.lower() for name in names}) == len(names)


def _planned_tasks(mapped: DataFrame) -> int:
    """Tasks of the job that just ran: its plan keeps the RDD, so this starts nothing."""
    plan = mapped._jdf.queryExecution().executedPlan()  # noqa: SLF001 - PySpark does not tell its number of tasks
    return int(plan.execute().getNumPartitions())
