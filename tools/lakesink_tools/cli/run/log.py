"""The command ``log``: the batches that a table's snapshots still show. Only reads."""

from dataclasses import asdict

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.past import retained
from lakesink_catalog.tables.tables import load_to_read
from lakesink_catalog.words import as_arguments, counted, number
from lakesink_tools.cli.output import NOT_WELL, OK, Report
from lakesink_tools.cli.rows import parsed_offsets
from lakesink_tools.cli.target import is_directory
from lakesink_tools.past.records import record_of, row_of

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
    cells = [(record, row_of(record)) for record in shown]
    return Report(
        document={
            "table": table,
            "catalog": opened.catalog.name,
            "retained": len(batches),
            "batches": [asdict(record) | {"offsets": parsed_offsets(record.offsets)} for record in shown],
        },
        title=f"{table} in {opened.catalog.name}: {number(len(shown))} of {counted(len(batches), 'retained batch')}",
        columns=_COLUMNS,
        rows=[[*row[:3], str(record.snapshot_id), *row[3:], record.offsets] for record, row in cells],
        hints=hints,
        exit_code=OK if batches else NOT_WELL,
    )
