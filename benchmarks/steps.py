"""What a driver does for one batch, as the functions that do it: most phases are calls of lakesink's two-phase seam."""

from collections.abc import Sequence

from pyspark.core.rdd import RDD
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.utils import ForeachBatchFunction

from benchmarks.stopwatch import Kind, Timed
from lakesink.checkpoint.folder import Checkpoint
from lakesink.sinks.iceberg import iceberg_sink as iceberg
from lakesink.sinks.iceberg import sink_table
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.spark.foreach_batch import BatchFunction
from lakesink.spark.report import Reporter
from lakesink.spark.rows.batch_rows import PlanRows
from lakesink.spark.rows.job import RowsJob
from lakesink.task.task import ParquetTaskWriter
from lakesink_catalog.commit import batch_commit as commit
from lakesink_catalog.commit import request
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.prepared import TableLog
from lakesink_catalog.connect import caching_sql
from lakesink_catalog.connect.caching_sql import CachingSqlCatalog
from lakesink_catalog.manifests.merging import ManifestMerger

WRITE = "write"
"""The phase in which rows are read and written: without it a batch would be none."""

STEPS: Sequence[Timed] = (
    Timed(Kind.BATCH, "function", ForeachBatchFunction, "call"),
    Timed(Kind.PHASE, f"{WRITE}, noop", DataFrameWriter, "save"),
    Timed(Kind.PHASE, "run", BatchFunction, "_current_run"),
    Timed(Kind.PHASE, "offsets", Checkpoint, "offsets"),
    Timed(Kind.PHASE, "offsets", Checkpoint, "batch"),
    Timed(Kind.PHASE, "begin", IcebergSink, "begin"),
    Timed(Kind.PHASE, "find the record", TableLog, "find"),
    Timed(Kind.PHASE, WRITE, RowsJob, "write"),
    Timed(Kind.PHASE, "pre_commit", IcebergSink, "pre_commit"),
    Timed(Kind.PHASE, "put the record", TableLog, "put"),
    Timed(Kind.PHASE, "commit", IcebergSink, "commit"),
    Timed(Kind.PHASE, "landed", TableLog, "landed"),
    Timed(Kind.PHASE, "log", Reporter, "finished"),
    # Of `begin`, and of `commit` again.
    Timed(Kind.STEP, "load the table", sink_table, "load_table"),
    Timed(Kind.STEP, "the verdict", FencedCommit, "decide_on"),
    Timed(Kind.STEP, "the plan", iceberg, "plan_batch"),
    # Of `write`: in the driver, or by tasks.
    Timed(Kind.STEP, "rows to the driver", PlanRows, "gathered"),
    Timed(Kind.STEP, "the Parquet file", ParquetTaskWriter, "write"),
    Timed(Kind.STEP, "Arrow from the query's plan", PlanRows, "_messages"),
    Timed(Kind.STEP, "the job", RDD, "collect"),
    # Of `pre_commit`.
    Timed(Kind.STEP, "count the votes", iceberg, "count_votes"),
    Timed(Kind.STEP, "the manifest", FencedCommit, "prepare"),
    # Of `commit`.
    Timed(Kind.STEP, "the last manifest list", request, "manifests_under"),
    Timed(Kind.STEP, "merge manifests", ManifestMerger, "merge"),
    Timed(Kind.STEP, "the new manifest list", request, "write_list"),
    Timed(Kind.STEP, "the rest of the request", commit, "build_request"),
    Timed(Kind.STEP, "new metadata", caching_sql, "updated_metadata"),
    Timed(Kind.STEP, "the metadata file", caching_sql, "write_metadata"),
    Timed(Kind.STEP, "the catalog's row", CachingSqlCatalog, "_swap"),
    Timed(Kind.STEP, "the rest of the catalog's call", CachingSqlCatalog, "commit_table"),
    Timed(Kind.STEP, "the answer", FencedCommit, "shows"),
)
