"""The running query: checks that it supports exactly-once, and says what it does.

A user can still change the `DataStreamWriter` that lakesink returned. So these checks inspect the running query on its
first batch, before anything is written.
"""

import json
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from lakesink.checkpoint.folder import Checkpoint
from lakesink.checkpoint.offsets import Keys, Offsets
from lakesink.spark.hadoop import hadoop_of
from lakesink.spark.spark_errors import JAVA_ERRORS
from lakesink_protocol.errors import QueryError
from lakesink_protocol.redact import redact

QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
UNKNOWN_BYTES = 2**60
"""Spark multiplies the sizes of joined sources, and takes almost 2**63 for one that has none."""
_WAIT_MS = 1_000
"""One call to the JVM lasts no longer: the interpreter may end meanwhile."""


class RunningQuery:
    """The running query of a batch. Only the session that started it knows it; the session of a batch is a clone."""

    def __init__(self, session: SparkSession, query_id: str | None) -> None:
        if query_id is None:
            raise QueryError.of("QUERY_UNKNOWN")
        found = session._jsparkSession.streams().get(query_id)  # PySpark does not expose the resolved checkpoint
        if found is None:
            raise QueryError.of("QUERY_UNKNOWN.elsewhere", query=query_id)
        self.query_id = query_id
        self._session = session
        self._execution = found.streamingQuery()

    @property
    def checkpoint_root(self) -> str:
        """The checkpoint as Spark resolved it, a full URI."""
        return str(self._execution.resolvedCheckpointRoot())

    def sources(self) -> list[Any]:
        """The sources in the order of the offset log; a source that is read twice appears twice."""
        return items(self._execution.sources())

    def check_reads(self, batch_id: int, end: Offsets) -> None:
        """Check that the query still reads every named source of a batch: Spark would skip a removed one."""
        if end.keys is not Keys.NAMES:
            return
        known = self._execution.sourceIdMap()
        removed = [name for name in end.sources() if not known.contains(name)]
        if removed:
            raise QueryError.of("SOURCE_REMOVED", batch_id=batch_id, source=removed[0][:60], before=batch_id - 1)

    def plan(self, batch_id: int) -> Any | None:
        """The physical plan that the query runs for a batch, in the JVM; None if Spark does not provide it."""
        try:
            execution = self._execution.lastExecution()
            return execution.executedPlan() if execution.currentBatchId() == batch_id else None
        except Py4JError:  # not a public API; without it, the DataFrame is used
            return None

    def input_bytes(self, batch_id: int) -> int | None:
        """Spark's estimate of a batch's bytes, by the sizes of its files; None if a source has no sizes."""
        try:
            execution = self._execution.lastExecution()
            if execution.currentBatchId() != batch_id:
                return None
            found = int(str(execution.optimizedPlan().stats().sizeInBytes()))
        except Py4JError:  # not a public API; it is an estimate
            return None
        return found if found < UNKNOWN_BYTES else None

    @property
    def ends_by_itself(self) -> bool:
        """True with the trigger `availableNow`."""
        try:
            return str(self._execution.trigger().toString()).startswith("AvailableNow")
        except Py4JError:  # not a public API
            return False

    def has_failed(self) -> bool:
        """True if the run has ended with an error, or if the JVM has ended."""
        try:
            return bool(self._execution.exception().isDefined())
        except (Py4JError, ConnectionError):
            return True

    def has_ended(self) -> bool:
        """Wait for a second at most; true if the run has ended, or the JVM."""
        try:
            return bool(self._execution.awaitTermination(_WAIT_MS))
        except (*JAVA_ERRORS, ConnectionError):  # a failed run raises its error here too
            return True

    def progress(self) -> list[Mapping[str, Any]]:
        """The sources in Spark's last progress; none before the first."""
        try:
            progress = self._execution.lastProgress()
            return [] if progress is None else list(json.loads(progress.json())["sources"])
        except (*JAVA_ERRORS, ConnectionError):  # the JVM has ended
            return []

    def was_stopped(self) -> bool:
        """True once the query was asked to stop; its jobs then fail on purpose."""
        try:
            return not self._execution.isActive()
        except (Py4JError, ConnectionError):  # the JVM has ended: the answer is unknown
            return False

    def check(self, checkpoint: str, stored: Checkpoint, output_mode: str) -> None:
        """Check output mode, checkpoint and query id; `stored` is the checkpoint that the query uses."""
        if self.output_mode != output_mode:
            raise QueryError.of("OUTPUT_MODE.other", mode=self.output_mode, expected=output_mode)
        if not same_checkpoint(self._session, checkpoint, self.checkpoint_root):
            why = f"The query uses {self.checkpoint_root}, lakesink.stream was given {checkpoint}."
        elif (stored_id := stored.query_id()) != self.query_id:
            why = f"Its metadata names the query {stored_id}, this one is {self.query_id}."
        else:
            return
        raise QueryError.of("FOREIGN_CHECKPOINT", why=redact(why))

    @property
    def output_mode(self) -> str:
        """The query's output mode: ``append``, ``update`` or ``complete``."""
        return str(self._execution.outputMode().toString()).lower()


def same_checkpoint(session: SparkSession, given: str, resolved: str) -> bool:
    """True if Spark resolves the checkpoint `given` to the folder `resolved`."""
    hadoop, conf = hadoop_of(session)
    path = hadoop.Path(given)
    return str(path.getFileSystem(conf).makeQualified(path).toString()) == resolved


def items(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(position) for position in range(sequence.size())]
