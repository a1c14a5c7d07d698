"""The driver that the canary is planted in: writes, fails and looks in every way, and keeps all that could be seen.

Run as a process of its own: ``python -m proof.security.canary_driver FOLDER [spark]``. What it saw is in FOLDER/seen.
"""

import json
import logging
import os
import sys
import traceback
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lakesink
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink_catalog.connect.catalog import CatalogConfig, connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.errors import LakesinkError
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes
from proof.security.places import CATALOG, TABLE, UNREACHABLE
from testkit.builders import ROWS, Lake, Stream
from testkit.tracing import VARIABLE as TRACE
from testkit.tracing import trace_sinks

COMMANDS = (
    ("status", TABLE), ("log", TABLE), ("audit", TABLE), ("as-of", TABLE, "--batch", "0", "--read"),
    ("doctor", TABLE, "--no-spark"),
    ("diff", TABLE, "--from-batch", "0", "--to-batch", "1"), ("status", "demo.missing"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """Where the driver keeps what could be seen of it.

    Attributes:
        folder: One file for each kind of output.
        unnamed: Errors that are not of lakesink's own classes.
    """

    folder: Path
    unnamed: list[str] = field(default_factory=list)

    def keep(self, kind: str, text: str | bytes) -> None:
        data = text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text
        with (self.folder / kind).open("ab") as file:
            file.write(data + b"\n")

    def failing(self, call: Callable[[], object]) -> None:
        """A call that must end with an error of lakesink; all that can be seen of the error is kept."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
            if not isinstance(error, LakesinkError):
                self.unnamed.append(type(error).__name__)
            self.keep("errors", "".join(traceback.format_exception(error)))
            linked: list[BaseException | None] = [error]
            while linked:
                link = linked.pop()
                if link is not None:
                    self.keep("errors", f"{link!s}\n{link!r}\n{link.args!r}")
                    linked += [link.__cause__, link.__context__]
        else:
            self.unnamed.append("no error")


def main(folder: Path, *, spark: bool) -> None:
    """Everything, in this process."""
    seen = Seen(folder / "seen")
    seen.folder.mkdir(exist_ok=True)
    handler = logging.FileHandler(seen.folder / "log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s %(args)s"))
    logging.basicConfig(level=logging.DEBUG, handlers=[handler])
    os.environ[TRACE] = str(seen.folder / "trace")
    trace_sinks()
    given = json.loads((folder / "given.json").read_text())
    write_batches(seen, folder, given)
    fail_in_every_way(seen, given)
    refuse_options(seen, given)
    run_commands(seen)
    if spark:
        from proof.security.canary_spark import stream_with_spark  # noqa: PLC0415 - a JVM, only if it is asked for

        stream_with_spark(seen.folder, folder, given)
    (folder / "unnamed.json").write_text(json.dumps(seen.unnamed))


def write_batches(seen: Seen, folder: Path, given: Mapping[str, Any]) -> None:
    """Two batches through the real sink; what is shipped, what comes back, and every object's `repr`."""
    catalog = CatalogConfig(CATALOG, given["properties"])
    found = catalog.find()
    create_table(found.open(), TABLE, ROWS, properties={"write.avro.compression-codec": "uncompressed"})
    stream = Stream(Lake(folder, None))  # type: ignore[arg-type] # only builds rows and batches
    for batch_id in range(2):
        options = {"sink_id": "events", "checkpoint": "/ck", "catalog_properties": given["properties"]}
        settings = Settings.parse(options | {"snapshot_properties": {"team": "data"}})
        sink = IcebergSink(TABLE, stream.key, found.open, settings, ROWS)
        batch = stream.batch(batch_id)

        def job(writers: Mapping[str, TaskWriter]) -> Votes:
            from pyspark import cloudpickle  # noqa: PLC0415 - as the job ships it

            seen.keep("pickles", cloudpickle.dumps(writers))  # type: ignore[no-untyped-call] # PySpark ships no types for it
            votes = stream.write(batch, 3)(writers)  # noqa: B023 - called at once
            receipts = [receipt for vote in votes.cast for receipt in vote.receipts.values()]
            seen.keep("receipts", b"".join(map(zlib.decompress, receipts)))
            return votes

        stream.run_with(sink, batch, job=job)
        begun = sink.begin(stream.batch(batch_id + 1))
        assert isinstance(begun, IcebergTransaction)
        opened = found.open()
        table = load_table(opened, TABLE)
        objects: list[Any] = [catalog, found, settings, sink, begun, begun.prepared_log, opened, table, table.metadata]
        objects += [begun.fence, begun.decision, begun.write, begun.writer, begun.fence.effects]
        seen.keep("reprs", "\n".join(f"{one!r}\n{one!s}" for one in objects))
        seen.keep("reprs", "\n".join(map(repr, lakesink.history(TABLE, catalog=CATALOG))))


def fail_in_every_way(seen: Seen, given: Mapping[str, Any]) -> None:
    """Catalogs that cannot be reached, are malformed, or refuse; each with the secret in its configuration."""
    seen.failing(lambda: connect(UNREACHABLE).list_tables("demo"))
    for properties in given["broken"]:
        merged = {**given["properties"], **properties}
        seen.failing(lambda: connect("broken", merged).list_tables("demo"))  # noqa: B023 - called at once
        seen.keep("reprs", repr(CatalogConfig("broken", merged)))


def refuse_options(seen: Seen, given: Mapping[str, Any]) -> None:
    """A secret as an option, where it does not belong."""
    from lakesink.spark.source.source_options import stream_destination  # noqa: PLC0415 - imports the whole Spark side

    honest = {"table": TABLE, "sink-id": "events", "checkpointLocation": "/ck"}
    for name, value in given["options"].items():
        seen.failing(lambda: stream_destination(honest | {name: value}))  # noqa: B023 - called at once
    for name, value in given["keywords"].items():
        seen.failing(lambda: Settings.parse({"sink_id": "s", "checkpoint": "/ck", name: value}))  # noqa: B023 - as above


def run_commands(seen: Seen) -> None:
    """The commands, in both forms, on this very catalog."""
    from click.testing import CliRunner  # noqa: PLC0415 - only here

    from lakesink_tools.cli.main import main as command_line  # noqa: PLC0415 - as above

    runner = CliRunner()
    for command in COMMANDS:
        for form in ("text", "json"):
            result = runner.invoke(command_line, [*command, "--catalog", CATALOG, "--output", form])
            seen.keep("commands", f"{command} {result.exit_code}\n{result.output}\n{result.exception!r}")
        seen.keep("commands", runner.invoke(command_line, [command[0], "--help"]).output)


if __name__ == "__main__":
    main(Path(sys.argv[1]), spark="spark" in sys.argv[2:])
