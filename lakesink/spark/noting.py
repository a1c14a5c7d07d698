"""Collects the facts of a query that has just started, and stores them beside its checkpoint."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from lakesink import __version__
from lakesink.checkpoint.notes import NOTES, Functions, QueryNotes
from lakesink.checkpoint.sources import Source
from lakesink.spark.hadoop import HadoopFiles
from lakesink.spark.query import RunningQuery
from lakesink.spark.report import Reporter
from lakesink_protocol.redact import redact

SPECULATION = "spark.speculation"
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def notes_of(
    session: SparkSession, query: RunningQuery, reporter: Reporter, sources: Sequence[Source], functions: Functions
) -> QueryNotes:
    """The facts of a running query."""
    return QueryNotes(
        lakesink=__version__,
        query_id=query.query_id,
        sink=redact(reporter.sink),
        table=redact(reporter.table),
        sources=tuple(sources),
        functions=functions,
        output_mode=query.output_mode,
        speculation=str(session.sparkContext.getConf().get(SPECULATION, "false")).lower() == "true",
        scheme=urlsplit(query.checkpoint_root).scheme,
        file_manager=str(session.conf.get(FILE_MANAGER, "")).rpartition(".")[2],
    )


def note(files: Any, notes: QueryNotes, reporter: Reporter) -> None:
    """Store the facts if they changed. A failure is only logged: it must not end the stream."""
    assert isinstance(files, HadoopFiles), "a running query's checkpoint is read by its JVM"
    told = notes.to_bytes()
    try:
        if files.read(NOTES) != told:
            files.replace(NOTES, told)
    except Exception as error:  # noqa: BLE001 - whatever the storage raises, the stream does not need them
        reporter.notes_unwritten(notes.query_id, error)
