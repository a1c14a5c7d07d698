"""The command ``lineage``: the source offsets behind a batch, through all tables between. Only reads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.words import as_arguments, counted, moment, number
from lakesink_tools.audit.checkpoint import opened
from lakesink_tools.cli.output import NOT_WELL, OK, Report
from lakesink_tools.cli.rows import cells, documents_of
from lakesink_tools.past.batch_input import Known
from lakesink_tools.past.lineage import Hop, Lineage, Upstream
from lakesink_tools.past.source_ranges import FilesRange, FirstRange, KafkaRange, OtherRange, merged

_COLUMNS = ("where", "from>", "to>", "rows>", "committed", "known by")
MOST_LINES = 60
AS_ABOVE = "as above"


def lineage(
    *, table: str, catalog: str | None, batch: int, sink: str | None, branch: str, checkpoint: Sequence[str]
) -> Report:
    """Exit code 1: a part of the answer is not known."""
    known = {one.query_id(): one for one in map(opened, checkpoint)}
    loaded = connect(catalog, create=False)
    hop = Lineage(loaded, known).of(table, batch, sink, branch)
    unused = known.keys() - {one.mark.query_id for one in hop.hops()}
    troubles = [*hop.troubles(), *(f"No batch is of query {one}, whose checkpoint was given." for one in unused)]
    told = _document(hop, set())
    lines = list(_lines(told, 0))
    return Report(
        document={
            "table": table,
            "catalog": loaded.name,
            "batch": told,
            "kafka": [_range(one) for one in merged(hop.kafka())],
            "complete": not troubles,
            "not_known": troubles,
        },
        title=f"{table} in {loaded.name}, batch {number(batch)} of {hop.mark.key.name}: {_in_short(hop)}",
        columns=_COLUMNS,
        rows=lines[:MOST_LINES],
        hints=_hints(hop, catalog, troubles, hidden=len(lines) - MOST_LINES),
        exit_code=NOT_WELL if troubles else OK,
    )


def _in_short(hop: Hop) -> str:
    """``3 rows, from 300 offsets of Kafka in 2 partitions, through 2 tables``."""
    ranges = merged(hop.kafka())
    counts = [one.offsets for one in ranges]
    tables = len({one.table for one in hop.hops()}) - 1
    parts = [counted(hop.rows, "row")]
    if ranges:
        amount = "offsets" if None in counts else counted(sum(filter(None, counts)), "offset")
        parts.append(
            f"from {amount} of Kafka in {counted(len({(one.topic, one.partition) for one in ranges}), 'partition')}"
        )
    return ", ".join([*parts, f"through {counted(tables, 'table')}"] if tables else parts)


def _lines(batch: Mapping[str, Any], depth: int) -> Iterator[list[str]]:
    """A batch of the document, and its sources below it."""
    named = f"{batch['table']}, {batch['sink']}" + ("" if batch["branch"] == "main" else f" on {batch['branch']}")
    counts = (number(batch[name]) for name in ("first_batch", "last_batch", "rows"))
    times = dict.fromkeys(map(moment, batch["committed_at"]))
    yield _line(depth, named, *counts, " to ".join(times), Known[batch["known_by"].upper()].value)
    if batch["told_above"]:
        yield _line(depth + 1, AS_ABOVE)
    for source in batch["sources"]:
        match source:
            case {"kind": "table", "table": table, "batches": batches}:
                if not batches:
                    yield _line(depth + 1, table, "-", "-", "-")
                for one in batches:
                    yield from _lines(one, depth + 1)
            case {"kind": "kafka", "topic": topic, "partition": partition}:
                ends = (number(source[name]) for name in ("first_offset", "last_offset", "offsets"))
                yield _line(depth + 1, f"Kafka {topic}, partition {partition}", *ends)
            case {"kind": "files", "after_log": start, "to_log": end, "files": files}:
                what = "files, log of Spark's source" + (f" ({counted(len(files), 'file')})" if files else "")
                yield _line(depth + 1, what, number(None if start is None else start + 1), number(end), "-")
            case {"start": start, "end": end}:
                before, after = cells([{"start": start, "end": end}])[0]
                yield _line(depth + 1, "source of another kind", "-" if start is None else before, after, "-")


def _line(depth: int, what: str, *cells: str) -> list[str]:
    return ["  " * depth + what, *cells, *[""] * (len(_COLUMNS) - 1 - len(cells))]


def _document(hop: Hop, told: set[int]) -> dict[str, Any]:
    """A batch that was read twice has its sources at its first place only."""
    is_told = id(hop) in told
    told.add(id(hop))
    return {
        "table": hop.table,
        "branch": hop.mark.key.branch,
        "sink": hop.mark.key.name,
        "query_id": hop.mark.query_id,
        "first_batch": hop.run[0].batch_id,
        "last_batch": hop.run[-1].batch_id,
        "snapshots": [str(batch.snapshot_id) for batch in hop.run],
        "rows": hop.rows,
        "committed_at": [hop.run[0].committed_at, hop.run[-1].committed_at],
        "known_by": hop.known.name.lower(),
        "sources": [] if is_told else [_source(one, told) for one in hop.sources],
        "told_above": is_told and bool(hop.sources),
        "not_known": list(hop.why),
        "note": hop.note,
    }


def _source(source: FirstRange | Upstream, told: set[int]) -> dict[str, Any]:
    match source:
        case Upstream(table=table, hops=hops, why=why):
            batches = [_document(hop, told) for hop in hops]
            return {"kind": "table", "table": table, "batches": batches, "not_known": why}
        case KafkaRange():
            return {"kind": "kafka", **_range(source)}
        case FilesRange(start=start, end=end, paths=paths):
            return {"kind": "files", "after_log": start, "to_log": end, "files": list(paths)}
        case OtherRange(start=start, end=end):
            return {"kind": "other", **documents_of([{"start": start, "end": end}])[0]}


def _range(one: KafkaRange) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "first_offset": one.start,
        "last_offset": one.end - 1,
        "offsets": one.offsets,
    }


def _hints(hop: Hop, catalog: str | None, troubles: Sequence[str], *, hidden: int) -> list[str]:
    more = [f"Not shown: {counted(hidden, 'line')}; --output json has all."] if hidden > 0 else []
    notes = [hop.note] if hop.note else []
    arguments = as_arguments(hop.table, catalog)
    key = hop.mark.key
    branch = "" if key.branch == "main" else f" --branch {key.branch}"
    of = f"--batch {hop.run[-1].batch_id} --sink {key.name}{branch}"
    step = f"Next: lakesink as-of {arguments} {of} --read shows the table as of it."
    return [*notes, *troubles, *more, step]
