"""Every command with its arguments. The module that runs a command is imported only when the command runs.

Help and errors in arguments therefore need neither PyIceberg nor PyArrow.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from lakesink.settings.parse import duration, target_size, utc_time
from lakesink_tools.cli.output import Report, metrics_port, parsed_by, reported

_ONLY_READS = {
    *("as-of", "audit", "dead-letters", "diff", "engines", "explain", "health", "lineage", "log", "quality"),
    *("status", "watch"),
}


def _command(name: str, summary: str, text: str, *arguments: click.Parameter) -> click.Command:
    """A command that calls the function of its name in its module; `summary` is its line in the list of commands."""
    function = name.replace("-", "_")

    def run(**given: Any) -> Report:
        report: Report = getattr(import_module(f"lakesink_tools.cli.run.{function}"), function)(**given)
        return report

    told = reported(run, only_reads=name in _ONLY_READS)
    return click.command(name, params=list(arguments), short_help=summary, help=text)(told)


def _option(*names: str, **settings: Any) -> click.Option:
    settings.setdefault("show_default", bool(settings.get("default")))
    return click.Option(names, **settings)


def _choice(name: str, values: Sequence[str], text: str, **settings: Any) -> click.Option:
    return _option(*name.split(), type=click.Choice(values), help=text, **settings)


def _file(name: str, text: str, **settings: Any) -> click.Option:
    read = click.Path(dir_okay=False, exists=True, path_type=Path)
    return _option(*name.split(), type=read, metavar="FILE", help=text, **settings)


def _text(name: str, metavar: str, text: str, parse: Callable[[str], Any] = str, **settings: Any) -> click.Option:
    return _option(*name.split(), callback=parsed_by(parse), metavar=metavar, help=text, **settings)


def _branch(text: str) -> click.Option:
    return _option("--branch", default="main", help=text)


_CATALOG = _option("--catalog", metavar="NAME", help="Catalog in PyIceberg's configuration; default as for a stream.")
_SINK_OR_APPLICATION = _option("--sink", required=True, metavar="ID", help="Sink id, or with --txn an application id.")
_ONLY_SINK = _option("--sink", metavar="ID", help="Only this sink id or application id.")
_TXN = _option("--txn", is_flag=True, help="An application id of lakesink.append.")
_MAX_AGE = _text("--max-age", "SPAN", "Exit with 1 if the last batch of a sink is older: '30 min'.", duration)
_EVERY = _option("--every", type=click.FloatRange(0.1), default=1.0, help="Seconds between two looks at the table.")
_METRICS = _text("--metrics", "[HOST:]PORT", "Let Prometheus read metrics there.", metrics_port)
_YES = _option("--yes", is_flag=True, help="Do not ask.")


def _of_table(name: str, summary: str, text: str, *options: click.Parameter, named: str = "TABLE") -> click.Command:
    """A command whose argument is a table; its last option is the catalog."""
    return _command(name, summary, text, click.Argument(["table"], metavar=named), *options, _CATALOG)


COMMANDS = (
    _of_table(
        "adopt",
        "Continue a stream of Iceberg's own Spark sink.",
        "Take over the stream that Iceberg's own Spark sink wrote into TABLE, on the same checkpoint.",
        _option("--sink", required=True, metavar="ID", help="Sink id that the stream will have with lakesink."),
        _option("--checkpoint", required=True, metavar="DIR", help="The stream's checkpoint, a path or URI."),
        _branch("Branch of the sink."),
        _YES,
    ),
    _of_table(
        "as-of",
        "The snapshot of a batch, time or tag, and SQL to read it.",
        "The snapshot of TABLE as of a batch, a time or a tag, and SQL to read it.",
        _option("--batch", type=click.IntRange(0), metavar="N", help="Batch id, or version of an append."),
        _option("--sink", metavar="ID", help="Sink of the batch; needed if several sinks write to the branch."),
        _text("--time", "T", "Time of the readers' view: 2026-11-21T05:00:12Z.", utc_time),
        _option("--tag", metavar="NAME", help="A tag."),
        _option("--branch", metavar="NAME", help="Branch of the batch or time.  [default: main]"),
        _option("--read", "read_rows", is_flag=True, help="Print rows."),
        _option("--limit", type=click.IntRange(1), default=20, help="Maximum number of rows for --read."),
    ),
    _of_table(
        "audit",
        "Prove from the table that every batch is in it once.",
        "Prove that every batch is in TABLE, or in DIRECTORY of stream_files, once, complete and readable.",
        _text("--checkpoint", "DIR", "Spark's checkpoint; check that every batch that Spark completed is there."),
        _option("--sink", metavar="ID", help="Audit only this sink's batches and ledger; all files are checked."),
        _option("--skip-footers", is_flag=True, help="Compare only file sizes, not row counts in Parquet footers."),
        _option("--keys", is_flag=True, help="Also prove that each key has one live row; reads the key columns."),
        _option("--key", multiple=True, metavar="COLUMN", help="Column of the key.  [default: the identifier fields]"),
        _option("--at", metavar="NAME", help="Branch, tag or snapshot id for --keys.  [default: main]"),
        _option("--show-values", is_flag=True, help="Print keys with several rows."),
        named="TABLE|DIRECTORY",
    ),
    _command(
        "certify",
        "Test whether a catalog supports exactly-once.",
        "Test in a minute or two whether CATALOG, from PyIceberg's configuration, supports exactly-once; by default the"
        " one that a stream would use here. The test creates and drops its own namespaces and tables. Exit code 0: it"
        " does; 1: it does not; 2: not decided.",
        click.Argument(["catalog"], required=False),
        _option("--writers", type=click.IntRange(2, 64), default=16, help="Number of concurrent writers."),
        _option("--commits", type=click.IntRange(1), default=10, help="Commits of each writer."),
        _option("--processes", type=click.IntRange(1, 64), default=4, help="Number of processes for the writers."),
        _option("--product", default="", metavar="TEXT", help="Product and version, if the catalog does not say it."),
    ),
    _of_table(
        "dead-letters",
        "Rows that a stream put aside, by reason; replays them.",
        "Show the newest rows that streams into TABLE put aside and that were not replayed, and how many by reason."
        " With --replay, append them to TABLE, repaired, each once.",
        _option("--letters", metavar="TABLE", help="Table of the dead letters.  [default: TABLE__dead_letters]"),
        _ONLY_SINK,
        _option("--batch", type=click.IntRange(0), metavar="N", help="Only this batch, or version of an append."),
        _option("--reason", metavar="CODE", help="Only this reason, for example VALUE_MALFORMED."),
        _option("--limit", type=click.IntRange(1), default=20, help="Maximum number of letters to show."),
        _branch("Branch of the streams."),
        _file(
            "--replay", "Query in Spark SQL over the view letters: SELECT letter_id, row.* FROM letters. Starts Spark."
        ),
        _choice(
            "--decode",
            ["json", "avro"],
            "The query returns documents in the column value; decode them as the stream does.",
        ),
        _option("--schema-registry", metavar="URL", help="Location of the writers' schemas, for --decode avro."),
        _choice("--binary-encoding", ["base64", "hex"], "How texts in documents spell bytes, for --decode."),
        _text("--rescue-column", "NAME", "Column for what other columns do not hold of a document, for --decode."),
        _option(
            "--option",
            "more",
            metavar="NAME=VALUE",
            multiple=True,
            help="Another option of lakesink.replay_dead_letters, such as mode=upsert or sequence_by=version.",
        ),
    ),
    _command(
        "demo",
        "Stream real flights, kill the driver twice, prove it.",
        "Stream the flights of 2013 into a table, kill the driver twice, and prove every row.",
        _option(
            "--dir",
            "folder",
            type=click.Path(path_type=Path),
            default=Path("lakesink-demo"),
            help="Folder for the demo; a folder of an earlier demo is emptied.",
        ),
        _option("--rows", type=click.IntRange(1_000, 336_776), default=336_776, help="Number of flights."),
        _option("--no-kill", is_flag=True, help="Do not kill the driver."),
    ),
    _of_table(
        "diff",
        "Rows added between two batches.",
        "Rows added to TABLE after batch A, up to and including batch B: their number, and some rows.",
        _option("--from-batch", type=click.IntRange(-1), required=True, metavar="A", help="-1 for the empty table."),
        _option("--to-batch", type=click.IntRange(0), required=True, metavar="B", help="A batch after A."),
        _option("--sink", metavar="ID", help="Sink of the batches; needed if several sinks write to the branch."),
        _branch("Branch of the batches."),
        _option("--limit", type=click.IntRange(0), default=20, help="Maximum number of rows to show."),
    ),
    _command(
        "doctor",
        "Check what a stream needs, and say how to fix the rest.",
        "Check this machine, Spark, the catalog, and optionally TABLE and a checkpoint; print how to fix each failure.",
        click.Argument(["table"], required=False),
        _option("--checkpoint", metavar="DIR", help="Checkpoint of a stream; check its next batch against TABLE."),
        _option("--query", metavar="DIR", help="Checkpoint of a query; print only the query's guarantee."),
        _option(
            "--spark/--no-spark",
            default=True,
            show_default=False,
            help="Start Spark and run a task in its Python.  [default: spark]",
        ),
        _option(
            "--write-probe/--no-write-probe",
            default=None,
            help="Write scratch tables and objects, and remove them.  [default: in the embedded catalog only]",
        ),
        _CATALOG,
    ),
    _of_table(
        "engines",
        "Configuration and first queries for another engine.",
        "Configuration and first queries for another engine, for this catalog and TABLE.",
        _choice("--for engine", ["trino", "spark", "duckdb", "flink", "pyiceberg"], "The engine.", required=True),
        _option("--batch", type=click.IntRange(0), metavar="N", help="Read as of this batch.  [default: the newest]"),
        _option("--sink", metavar="ID", help="Sink of the batch; needed if several sinks write to main."),
    ),
    _command(
        "explain",
        "What an error means, and how to fix it.",
        "Explain the error CODE, for example ROLLED_BACK; without CODE, list all codes.",
        click.Argument(["code"], required=False),
    ),
    _of_table(
        "first-snapshot",
        "Give a table without a snapshot an empty one.",
        "Give TABLE a first snapshot without rows, while nothing writes to it. Needed once on a catalog that does not"
        " protect first snapshots.",
        _YES,
    ),
    _of_table(
        "forget",
        "Remove a sink's ledger entry and tag.",
        "Remove the ledger entry and the ledger tag of a sink from TABLE. Its rows and snapshots stay.",
        _SINK_OR_APPLICATION,
        _branch("Branch of the sink."),
        _TXN,
        _option("--tags", is_flag=True, help="Also remove its audit tags (tag_every); their snapshots can expire."),
        _YES,
    ),
    _of_table(
        "health",
        "How the sinks of a table stand, in one word for probes.",
        "Print how the sinks of TABLE stand: ok, degraded, behind, stale or refused. Exit code 1: the next batch of a"
        " sink would be refused, a last batch is older than --max-age, or there is no sink.",
        _MAX_AGE,
        _ONLY_SINK,
    ),
    _command(
        "init",
        "Write a configuration and a first stream that runs as it is.",
        "Write a commented configuration and a first stream, which runs as it is, into DIR. Nothing is overwritten.",
        click.Argument(["folder"], metavar="[DIR]", default=".", type=click.Path(path_type=Path)),
    ),
    _of_table(
        "lineage",
        "Source offsets behind a batch, through all tables.",
        "Show what a batch of TABLE was made of: the batches of other tables that its query read, and the offsets of"
        " Kafka and other sources behind these.",
        _option("--batch", type=click.IntRange(0), required=True, metavar="N", help="The batch."),
        _option("--sink", metavar="ID", help="Sink of the batch; needed if several sinks write to the branch."),
        _branch("Branch of the batch."),
        _option(
            "--checkpoint",
            multiple=True,
            metavar="DIR",
            help="Checkpoint of a query on the way: it has input files, beginnings, and long offsets. Repeatable.",
        ),
    ),
    _of_table(
        "log",
        "Batches of a table: snapshots, rows, files, offsets, time.",
        "Batches of TABLE or DIRECTORY with snapshot, rows, files, bytes, source offsets and time, newest last.",
        _ONLY_SINK,
        _option("--branch", metavar="NAME", help="Only this branch."),
        _option("--limit", type=click.IntRange(1), default=20, help="Maximum number of batches; the newest are shown."),
        named="TABLE|DIRECTORY",
    ),
    _of_table(
        "maintain",
        "Compact small files and deleted rows of a table.",
        "Make small files of TABLE large ones, without its deleted rows, beside the streams that write it. Each group"
        " of files is a commit of its own, of which lakesink proves that no row has changed. Nothing is deleted.",
        _branch("Branch whose files are compacted."),
        _text("--budget", "SPAN", "End after about this time: '10 min'.", duration),
        _text("--target-file-size", "SIZE", "Of new files: 256MB.  [default: the table's]", target_size),
        _option("--min-input-files", type=click.IntRange(2), default=5, help="Fewer small files of a partition stay."),
        _option("--where", default="", metavar="CONDITION", help="Only these partitions: \"day = '2026-01-01'\"."),
        _choice("--verify", ["digest", "rows"], "Compare rows by CRC-32, or by SHA-256.", default="digest"),
        _option("--dry-run", is_flag=True, help="Change nothing; print what a run would do and save."),
    ),
    _of_table(
        "outbox",
        "Produce each batch of a table into a Kafka topic, once.",
        "Produce each committed batch of TABLE into a Kafka topic: its rows as JSON, and a tombstone for each deleted"
        " key, in one transaction with the position. Runs until it is interrupted.",
        _option("--topic", required=True, metavar="NAME", help="The topic; it must exist."),
        _option("--bootstrap-servers", required=True, metavar="HOST:PORT", help="Brokers, separated by commas."),
        _file("--config", "Properties of the client, one name=value a line, for example sasl.password."),
        _option("--key", multiple=True, metavar="COLUMN", help="Column of the key.  [default: the identifier fields]"),
        _option("--sink", metavar="ID", help="Sink whose batches are produced; needed if the branch has several."),
        _branch("Branch of the batches."),
        _option("--id", "name", metavar="ID", help="Permanent name of the outbox.  [default: outbox-TABLE-TOPIC]"),
        _option(
            "--starting-batch",
            type=click.IntRange(0),
            metavar="N",
            help="First batch of a new outbox.  [default: the first one of the table]",
        ),
        _option(
            "--staging",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Folder for the records of one batch.  [default: a temporary one]",
        ),
        _option("--once", is_flag=True, help="Produce the batches that there are now, and end."),
        _EVERY,
        _METRICS,
    ),
    _command(
        "pack",
        "Pack an archive for the executors of a cluster.",
        "Pack the installed lakesink and the packages that its tasks need into FILE, for a cluster.",
        click.Argument(["file"], type=click.Path(dir_okay=False, path_type=Path)),
    ),
    _of_table(
        "quality",
        "How many rows met the expectations, batch by batch.",
        "Show for each expectation of TABLE how many rows did not meet it, over time, and the same for documents.",
        _ONLY_SINK,
        _option("--branch", metavar="NAME", help="Only this branch."),
        _option("--limit", type=click.IntRange(1), default=1_000, help="Maximum number of batches; the newest count."),
    ),
    _of_table(
        "restore",
        "Restore a lost ledger entry from the newest batch.",
        "Restore the lost ledger entry of a sink from its newest batch in TABLE. No row changes.",
        _SINK_OR_APPLICATION,
        _branch("Branch of the sink."),
        _TXN,
        _YES,
    ),
    _command(
        "rewind",
        "Set a checkpoint back, to replay batches after a rollback.",
        "Set the CHECKPOINT of a stopped query back to a batch, and with it the directory of stream_files, or what"
        " tables of dead letters and changelogs have of batches that the table lacks. The command copies files before"
        " it removes them, and changes no row of the table.",
        click.Argument(["checkpoint"]),
        _option("--to-batch", type=click.IntRange(-1), required=True, help="Newest batch to keep; -1 for none."),
        _option("--directory", metavar="DIR", help="Also set back this directory of stream_files."),
        _option("--sink", metavar="ID", help="Sink of the directory.  [default: its only sink]"),
        _option("--table", metavar="TABLE", help="Also set back the dead letters and the changelog of this table."),
        _CATALOG,
        _option("--backup", metavar="DIR", help="Folder for the copy of the logs.  [default: beside the checkpoint]"),
        _YES,
    ),
    _command(
        "status",
        "State of each sink of a table or of a catalog.",
        "Show each sink of TABLE or DIRECTORY: last batch, totals, and whether its next batch would be accepted."
        " Without a name, show every table and sink of the catalog.",
        click.Argument(["table"], metavar="[TABLE|DIRECTORY]", required=False),
        _MAX_AGE,
        _option("--limit", type=click.IntRange(1), default=1_000, help="Of a catalog, maximum number of tables."),
        _CATALOG,
    ),
    _of_table(
        "watch",
        "Batches of a table as they come, and its health.",
        "Print each batch of TABLE when it is there, and each change of its health, until it is interrupted.",
        _MAX_AGE,
        _EVERY,
        _METRICS,
    ),
)
