"""A query without stored facts: what its checkpoint alone shows of its guarantee, and what it does not."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from lakesink.checkpoint.folder import Checkpoint
from lakesink.checkpoint.notes import NOTES, is_atomic
from lakesink.checkpoint.offsets import log_offset
from lakesink.checks.doctor.finding import Finding, Part, Standing

UNTOLD = "failOnDataLoss, the isolation level, expressions and speculation: only a running query knows them"


def check_unnoted(root: str, query_id: str, checkpoint: Checkpoint) -> Iterator[Finding]:
    """Report what is known without stored facts.

    Args:
        root: Path or URI of the checkpoint.
        query_id: Its query.
        checkpoint: The opened checkpoint.
    """
    found = f"Query {query_id} has left no notes in {NOTES}; this is what its checkpoint tells."
    fix = 'lakesink.stream, stream_files and stream_to leave them; format("lakesink") and other sinks do not.'
    yield Finding(Part.QUERY, "notes", Standing.SKIPPED, found, fix)
    kinds = [kind_of(offset) for offset in checkpoint.offsets(checkpoint.newest_batch()).ends.values()]
    yield _sources(kinds)
    yield Finding(Part.QUERY, "untold", Standing.SKIPPED, UNTOLD, "Look at how the query is written.")
    scheme = urlsplit(root).scheme or "file"
    if not is_atomic(scheme):
        told = f"{scheme} is not known to create a file in one step, unless Spark was given a file manager for that."
        advice = "Keep it on HDFS, ABFS or a file system, or set Spark's AbortableStreamBasedCheckpointFileManager."
        yield Finding(Part.QUERY, "atomic create", Standing.WARNING, told, advice)


def kind_of(offset: Any) -> str:
    """The kind of source that logs such an offset, parsed from the offset log; empty if unknown."""
    if log_offset(offset) is not None:
        return "files"
    topics = list(offset.values()) if isinstance(offset, Mapping) else []
    partitions = [end for topic in topics if isinstance(topic, Mapping) for end in topic.values()]
    return "kafka" if partitions and all(isinstance(end, int) for end in partitions) else ""


def _sources(kinds: list[str]) -> Finding:
    shown = ", ".join(kind or "of an unknown kind" for kind in kinds) or "none"
    if kinds and all(kinds):
        return Finding(Part.QUERY, "guarantee", Standing.OK, f"sources by their offsets: {shown}; these can replay")
    fix = "Make sure that the source gives the same rows for the same offsets again, also after a restart."
    return Finding(Part.QUERY, "guarantee", Standing.WARNING, f"sources by their offsets: {shown}", fix)
