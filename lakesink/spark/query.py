"""The running query: checks that it supports exactly-once, and finds what it reads.

A user can still change the `DataStreamWriter` that lakesink returned. So these checks inspect the running query on its
first batch, before anything is written.
"""

import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakesink.checkpoint.folder import Checkpoint
from lakesink.checkpoint.offsets import Keys, Offsets
from lakesink.checkpoint.query_facts import Source, gives_uncommitted, is_lenient, replay_of
from lakesink.settings.option_types import OutputMode
from lakesink.spark.hadoop import hadoop_of
from lakesink.spark.spark_errors import JAVA_ERRORS, telling_line, whole_text
from lakesink_catalog.words import cut
from lakesink_protocol.errors import QueryError, SettingsError
from lakesink_protocol.redact import redact
from lakesink_protocol.suggest import sentence

QUERY_ID = "sql.streaming.queryId"
MAX_REASON = 100
RUN_ID = "spark.jobGroup.id"
FAIL_ON_DATA_LOSS = "failOnDataLoss"
PARSE_MODE, CORRUPT_COLUMN = "mode", "columnNameOfCorruptRecord"
SERVERS, ISOLATION_LEVEL = "kafka.bootstrap.servers", "kafka.isolation.level"
UNKNOWN_BYTES = 2**60
"""Spark multiplies the sizes of joined sources, and takes almost 2**63 for one that has none."""
_WAIT_MS = 1_000
"""One call to the JVM lasts no longer: the interpreter may end meanwhile."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


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


def absolute_checkpoint(session: SparkSession, checkpoint: str) -> str:
    """The checkpoint as an absolute path or URI; a local relative path counts from Python's working folder."""
    if _SCHEME.match(checkpoint) or posixpath.isabs(checkpoint):
        return checkpoint
    hadoop, conf = hadoop_of(session)
    system = str(hadoop.FileSystem.getDefaultUri(conf).toString())
    if not system.startswith("file:"):
        raise SettingsError.of("CHECKPOINT_RELATIVE", checkpoint=checkpoint, system=system)
    return posixpath.abspath(checkpoint)


def check_checkpoint(session: SparkSession, checkpoint: str) -> None:
    """Check that Spark has a file system for the checkpoint's location, without reading from it."""
    location = absolute_checkpoint(session, checkpoint)
    hadoop, conf = hadoop_of(session)
    try:
        hadoop.Path(location).getFileSystem(conf)
    except (Py4JError, PySparkException) as error:
        why = cut(redact(telling_line(whole_text(error))), MAX_REASON)
    else:
        return
    raise SettingsError.of("CHECKPOINT_INVALID", checkpoint=redact(checkpoint)[:60], why=sentence(why))


def same_checkpoint(session: SparkSession, given: str, resolved: str) -> bool:
    """True if Spark resolves the checkpoint `given` to the folder `resolved`."""
    hadoop, conf = hadoop_of(session)
    path = hadoop.Path(given)
    return str(path.getFileSystem(conf).makeQualified(path).toString()) == resolved


def check_output_mode(rows: DataFrame, mode: OutputMode) -> None:
    """Let Spark judge a query's output mode before it starts, and say what else lakesink has for aggregations."""
    spark = rows.sparkSession.sparkContext._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    of_spark = getattr(spark.streaming.OutputMode, mode.value.capitalize())()
    try:
        spark.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan_of(rows), of_spark)
    except Py4JError:  # not a public API
        return
    except PySparkException as error:
        if str(error.getCondition()).startswith("STREAMING_OUTPUT_MODE."):
            # Spark says at the start what else it cannot do.
            raise QueryError.of("OUTPUT_MODE.aggregates", mode=mode.value) from None


def sources_of(rows: DataFrame) -> list[Source]:
    """The streaming sources in a DataFrame's plan; starts nothing."""
    corrupt = str(rows.sparkSession.conf.get(f"spark.sql.{CORRUPT_COLUMN}"))
    found = []
    for leaf in filter(lambda leaf: leaf.isStreaming(), items(plan_of(rows).collectLeaves())):
        name = _name(leaf)
        uncommitted = gives_uncommitted(name, option_of(leaf, ISOLATION_LEVEL))
        replay = replay_of(name, option_of(leaf, FAIL_ON_DATA_LOSS))
        found.append(Source(name.partition("[")[0], replay, uncommitted, _is_lenient(leaf, corrupt)))
    return found


def places_of(rows: DataFrame) -> list[str]:
    """Where each streaming source reads: servers of Kafka, a folder, or the catalog of a table; empty if unknown."""
    leaves = filter(lambda leaf: leaf.isStreaming(), items(plan_of(rows).collectLeaves()))
    folders = ((leaf, _name(leaf).partition("[")[2].removesuffix("]")) for leaf in leaves)
    return [folder or option_of(leaf, SERVERS) or option_of(leaf, "catalog") or "" for leaf, folder in folders]


def option_of(leaf: Any, key: str) -> str | None:
    """One option of a streaming source by name. No other value is read, because it may be a secret."""
    try:
        value = leaf.extraOptions().get(key)
    except Py4JError:  # a relation of Data Source V1
        return _first_interface_option(leaf, key)
    return None if value is None else str(value)


def _is_lenient(leaf: Any, corrupt: str) -> bool:
    try:
        file_format = str(leaf.dataSource().className())
    except Py4JError:  # it reads no files
        return False
    kept = option_of(leaf, CORRUPT_COLUMN) or corrupt
    keeps_corrupt = any(str(column.name()) == kept for column in items(leaf.output()))
    return is_lenient(file_format, option_of(leaf, PARSE_MODE), keeps_corrupt=keeps_corrupt)


def _name(leaf: Any) -> str:
    try:
        return str(leaf.sourceName())
    except Py4JError:  # a relation without a source name: a memory stream, a custom node
        return str(leaf.nodeName())


def _first_interface_option(leaf: Any, key: str) -> str | None:
    try:
        found = leaf.dataSource().caseInsensitiveOptions().get(key)
    except Py4JError:  # neither V1 nor V2: a node of Spark or of a library
        return None
    return str(found.get()) if found.isDefined() else None


def plan_of(rows: DataFrame) -> Any:
    """The analysed plan of a DataFrame, in the JVM."""
    return rows._jdf.queryExecution().analyzed()  # PySpark has no public access to a plan


def items(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(position) for position in range(sequence.size())]
