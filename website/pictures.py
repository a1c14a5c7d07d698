"""Draws what a terminal shows, for pages: the lines of `lakesink watch` over a table that real commits are made to."""

import io
import re
import tempfile
from contextlib import redirect_stderr
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.text import Text

from lakesink.observe.metrics import Numbers
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from lakesink_tools.cli.run.watch import Watched
from testkit.batches import Writer
from website.staging import DOCS

WATCH = DOCS / "data" / "watch.svg"
TABLE = "shop.orders"
_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.MULTILINE)
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_WIDTH = 80


def watched() -> str:
    """Four batches, one of which an earlier run prepared, and a rollback that a person makes."""
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()) as said:
        place = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        catalog = connect("picture", place)
        create_table(catalog, TABLE, pa.schema([("id", pa.int64())]))
        writer, table = Writer(catalog, TABLE, sink="orders"), Watched(TABLE, None, Numbers())
        for batch_id, rows in enumerate((1_200, 980, 1_105, 1_431)):
            writer.commit(batch_id, rows, recovered=batch_id == 2)
            table.look(writer.load())
        writer.load().manage_snapshots().rollback_to_snapshot(writer.load().metadata.snapshots[1].snapshot_id).commit()
        table.look(writer.load())
    times = count()
    begin = datetime(2026, 11, 28, 9, 30, tzinfo=UTC)
    return _TIME.sub(lambda _: f"{begin + timedelta(seconds=20 * next(times)):%Y-%m-%d %H:%M:%S}", said.getvalue())


def drawn(lines: str) -> str:
    """A terminal with these lines, which loads nothing."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), highlight=False)
    console.print(Text(f"$ lakesink watch {TABLE}", style="bold"))
    for line in lines.splitlines():
        style = "red" if line.endswith("refused") else "green" if line.endswith("ok") else ""
        console.print(Text(line, style=style))
    return _FONTS.sub("", console.export_svg(title="lakesink watch", unique_id="watch")) + "\n"


def draw() -> list[Path]:
    """Put the pictures where pages have them."""
    WATCH.write_text(drawn(watched()))
    return [WATCH]
