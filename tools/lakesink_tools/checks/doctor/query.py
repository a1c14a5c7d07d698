"""Reports the guarantee of a query, from the facts that its start stored beside its checkpoint, with remedies."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from lakesink.checkpoint import query_facts as facts
from lakesink.checkpoint.folder import Checkpoint, FsspecFiles
from lakesink.checkpoint.offsets import is_kafka_offset, log_offset
from lakesink.settings.option_types import OutputMode
from lakesink_protocol.redact import describe, redact
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing, attempt, attempt_all

UNTOLD = "failOnDataLoss, the isolation level, expressions and speculation: only a running query knows them"

_STANDINGS = {
    facts.Replay.YES: Standing.OK,
    facts.Replay.MAY_LOSE: Standing.WARNING,
    facts.Replay.UNKNOWN: Standing.WARNING,
    facts.Replay.NO: Standing.FAILED,
}
_REMEDIES = {
    facts.Replay.YES: "",
    facts.Replay.MAY_LOSE: "Leave failOnDataLoss at true: the query then stops if the source has lost rows.",
    facts.Replay.UNKNOWN: "Make sure that the source returns the same rows for the same offsets, also after a restart.",
    facts.Replay.NO: "Put a store that keeps rows between the source and the query: Kafka, or files.",
}


def opened(root: str, part: Part, check: str, standing: Standing, fix: str) -> Checkpoint | Finding:
    """The checkpoint; or the given finding if it cannot be read from here."""
    try:
        return Checkpoint(FsspecFiles(root))
    except (ImportError, ValueError) as error:
        return Finding(part, check, standing, f"{redact(root)} cannot be read from here: {describe(error)}", fix)


def check_query(root: str) -> Iterator[Finding]:
    """Report and judge the stored facts of a query, given the path or URI of its checkpoint."""
    fix = "Install the fsspec package for its scheme, or read the line lakesink.query.started in the query's log."
    checkpoint = opened(root, Part.QUERY, "notes", Standing.FAILED, fix)
    if isinstance(checkpoint, Finding):
        yield checkpoint
        return
    query_id = attempt(Part.QUERY, "notes", checkpoint.query_id)
    if isinstance(query_id, Finding):
        yield query_id
        return
    notes = attempt(Part.QUERY, "notes", lambda: _read(query_id, checkpoint))
    if isinstance(notes, Finding):
        yield notes
    elif notes is None:
        yield from attempt_all(Part.QUERY, "guarantee", lambda: _unnoted(root, query_id, checkpoint))
    else:
        sink = f"sink {notes.sink} into {notes.table}, by lakesink {notes.lakesink}"
        found = redact(f"{redact(root)}: query {notes.query_id}, {sink}")
        yield Finding(Part.QUERY, "notes", Standing.OK, found)
        yield from _sources(notes)
        yield from _functions(notes)
        yield from _running(notes)


def _read(query_id: str, checkpoint: Checkpoint) -> facts.QueryFacts | Finding | None:
    size_bytes = checkpoint.files.size_bytes(facts.QUERY_FACTS)
    if size_bytes is None:
        return None
    try:
        notes = facts.parse_query_facts(
            checkpoint.files.read_range(facts.QUERY_FACTS, 0, min(size_bytes, facts.MOST_BYTES + 1))
        )
    except ValueError as error:
        found = f"The notes of query {query_id} cannot be read: {error}"
        return Finding(Part.QUERY, "notes", Standing.FAILED, redact(found), "Start the query again: it rewrites them.")
    if notes.query_id != query_id:
        found = f"The notes are of query {notes.query_id}, the checkpoint is of {query_id}."
        return Finding(Part.QUERY, "notes", Standing.FAILED, found, "Start the query again: it rewrites them.")
    return notes


def _sources(notes: facts.QueryFacts) -> Iterator[Finding]:
    promise = facts.guarantee(notes.sources)
    weakest = sorted({source.name for source in notes.sources if source.replay is promise}) or ["no source is known"]
    found = f"{promise.value} ({', '.join(weakest)})"
    yield Finding(Part.QUERY, "guarantee", _STANDINGS[promise], found, _REMEDIES[promise])
    if any(source.uncommitted for source in notes.sources):
        found = "kafka.isolation.level is read_uncommitted, Kafka's default: records of aborted transactions are rows."
        fix = 'If producers use transactions: .option("kafka.isolation.level", "read_committed") on a new checkpoint.'
        yield Finding(Part.QUERY, "isolation", Standing.WARNING, found, fix)
    elif any(source.name == "kafka" for source in notes.sources):
        yield Finding(Part.QUERY, "isolation", Standing.OK, "read_committed: rows of aborted transactions are not read")
    if any(source.lenient for source in notes.sources):
        found = "Spark reads the texts of a file source leniently: a broken line becomes NULL, or no row, in silence."
        fix = (
            'Read them with spark.readStream.text and decode="json" of lakesink, which refuses such a line or puts it'
            ' aside; or set .option("mode", "FAILFAST").'
        )
        yield Finding(Part.QUERY, "texts", Standing.WARNING, found, fix)


def _functions(notes: facts.QueryFacts) -> Iterator[Finding]:
    unstable, trusted = notes.functions.unstable, notes.functions.trusted
    if unstable:
        found = (
            f"Not deterministic: {', '.join(unstable)}. A batch that is written again after a crash has other values"
            " than its first run. A stage that Spark repeats may move, lose or double rows."
        )
        fix = "Compute values from the row's own columns (xxhash64 of its key). current_timestamp() is safe."
        yield Finding(Part.QUERY, "expressions", Standing.WARNING, redact(found), fix)
    else:
        yield Finding(Part.QUERY, "expressions", Standing.OK, "all are deterministic, as far as Spark knows")
    if trusted:
        found = f"Spark assumes that these are deterministic: {', '.join(trusted)}"
        fix = "If one of them is not (clock, random numbers, network), mark it with asNondeterministic(), or change it."
        yield Finding(Part.QUERY, "functions", Standing.OK, redact(found), fix)


def _running(notes: facts.QueryFacts) -> Iterator[Finding]:
    """How Spark runs it: which rows it emits, whether it copies tasks, and how it keeps its checkpoint."""
    emits = (
        "a later batch emits a changed result again, and it replaces the earlier one by its key"
        if notes.output_mode == OutputMode.UPDATE
        else "no two batches emit the same row"
    )
    yield Finding(Part.QUERY, "output mode", Standing.OK, f"{notes.output_mode}: {emits}")
    if notes.speculation:
        found = "on: the copy of a slow task leaves unreferenced files; only one of the two counts"
        fix = "spark.speculation=false, unless tasks often hang; else run an orphan cleanup from time to time."
        yield Finding(Part.QUERY, "speculation", Standing.WARNING, found, fix)
    else:
        yield Finding(Part.QUERY, "speculation", Standing.OK, "off")
    if notes.creates_atomically:
        yield Finding(Part.QUERY, "atomic create", Standing.OK, f"{notes.scheme}: files are created in one step")
        return
    found = (
        f"{notes.scheme} is not known to create a file in one step: a crash may truncate a log of the"
        " checkpoint, and Spark does not stop a second driver. The table stays exact: its own commit decides."
    )
    fix = (
        "Keep checkpoints on HDFS, ABFS or a file system; on S3 give Spark spark-hadoop-cloud and set"
        " spark.sql.streaming.checkpointFileManagerClass to its AbortableStreamBasedCheckpointFileManager."
    )
    yield Finding(Part.QUERY, "atomic create", Standing.WARNING, found, fix)


def _unnoted(root: str, query_id: str, checkpoint: Checkpoint) -> Iterator[Finding]:
    """What the checkpoint of a query without stored facts shows of its guarantee, and what it does not."""
    found = f"Query {query_id} has no query facts in {facts.QUERY_FACTS}; these findings are from its checkpoint."
    fix = 'lakesink.stream, stream_files and stream_to write them; format("lakesink") and other sinks do not.'
    yield Finding(Part.QUERY, "notes", Standing.SKIPPED, found, fix)
    kinds = [_kind_of(offset) for offset in checkpoint.offsets(checkpoint.newest_batch()).ends.values()]
    found = f"sources by their offsets: {', '.join(kind or 'of an unknown kind' for kind in kinds) or 'none'}"
    if kinds and all(kinds):
        yield Finding(Part.QUERY, "guarantee", Standing.OK, f"{found}; these can replay")
    else:
        yield Finding(Part.QUERY, "guarantee", Standing.WARNING, found, _REMEDIES[facts.Replay.UNKNOWN])
    yield Finding(Part.QUERY, "untold", Standing.SKIPPED, UNTOLD, "Read the code of the query.")
    scheme = urlsplit(root).scheme or "file"
    if not facts.is_atomic(scheme):
        told = f"{scheme} is not known to create a file in one step, unless Spark was given a file manager for that."
        advice = "Keep it on HDFS, ABFS or a file system, or set Spark's AbortableStreamBasedCheckpointFileManager."
        yield Finding(Part.QUERY, "atomic create", Standing.WARNING, told, advice)


def _kind_of(offset: Any) -> str:
    """The kind of source that logs such an offset, parsed from the offset log; empty if unknown."""
    if log_offset(offset) is not None:
        return "files"
    return "kafka" if is_kafka_offset(offset) and any(offset.values()) else ""
