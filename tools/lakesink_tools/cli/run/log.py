"""The command ``log``: the batches that a table's snapshots still show. Only reads."""

from dataclasses import asdict

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.past import retained
from lakesink_catalog.tables.tables import load_to_read
from lakesink_catalog.words import as_arguments, counted, moment, number, size
from lakesink_tools.cli.output import NOT_WELL, OK, Report
from lakesink_tools.cli.rows import parsed_offsets
from lakesink_tools.cli.target import is_directory
from lakesink_tools.past.records import Record, key_of, outcome_in_words, record_of, sink_label

_COLUMNS = ("sink", "branch", "batch>", "snapshot>", "rows>", "files>", "size>", "committed", "outcome", "offsets")


def log(table: str, catalog: str | None, sink: str | None, branch: str | None, limit: int) -> Report:
    """Exit code 1: no batch is retained."""
    if is_directory(table, catalog):
        from lakesink_tools.cli.directory import log_of_directory  # tables need nothing of it

        return log_of_directory(table, sink=sink, branch=branch, limit=limit)
    opened = load_to_read(connect(catalog, create=False), table)
    batches = retained(opened).batches(sink, branch)
    shown = [record_of(batch) for batch in batches[-limit:]]
    if not shown:
        hints = [f"No batch of lakesink is retained in {table}. Next: lakesink status {as_arguments(table, catalog)}"]
    else:
        hidden, newest = len(batches) - len(shown), shown[-1].snapshot_id
        hints = [f"Not shown: {counted(hidden, 'older batch')}; --limit shows more."] if hidden else []
        hints.append(
            f"Next: read the table as of a batch by its snapshot, for example VERSION AS OF {newest} in Spark."
        )
    return _report(table, opened.catalog.name, shown, len(batches), hints)


def _report(identifier: str, catalog: str | None, shown: list[Record], retained: int, hints: list[str]) -> Report:
    return Report(
        document={
            "table": identifier,
            "catalog": catalog,
            "retained": retained,
            "batches": [asdict(record) | {"offsets": parsed_offsets(record.offsets)} for record in shown],
        },
        title=f"{identifier} in {catalog}: {number(len(shown))} of {counted(retained, 'retained batch')}",
        columns=_COLUMNS,
        rows=[_row(record) for record in shown],
        hints=hints,
        exit_code=OK if retained else NOT_WELL,
    )


def _row(record: Record) -> list[str]:
    return [
        sink_label(key_of(record)),
        record.branch,
        number(record.batch_id),
        str(record.snapshot_id),
        number(record.rows),
        number(record.files),
        size(record.bytes),
        moment(record.committed_at),
        outcome_in_words(record),
        record.offsets,
    ]
