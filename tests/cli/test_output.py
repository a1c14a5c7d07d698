"""What a person at a terminal sees of a question."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table
from testkit.batches import Writer


def test_the_end_of_input_at_a_question_changes_nothing_and_says_so(home: Path) -> None:
    catalog = connect()
    create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
    Writer(catalog).commit(0, rows=10)
    before = catalog.load_table("demo.events").metadata_location
    terminal, theirs = pty.openpty()
    start = "from lakesink_tools.cli.main import main; main()"
    command = [sys.executable, "-c", start, "forget", "demo.events", "--sink", "events"]
    environment = {**os.environ, "LAKESINK_HOME": str(home)}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as child:
        os.close(theirs)
        said = read_until(terminal, "[y/N]")
        os.write(terminal, b"\x04")  # Ctrl-D; click ends a question by Ctrl-C with the same exception
        said += read_until(terminal, "")
    assert child.returncode == 2, said
    assert "LAKESINK_NOT_CONFIRMED" in said
    assert catalog.load_table("demo.events").metadata_location == before


def read_until(terminal: int, end: str) -> str:
    """Everything up to a text, or until the other side has closed the terminal if it is empty."""
    said = ""
    while not end or end not in said:
        try:
            said += os.read(terminal, 4096).decode()
        except OSError:  # closed
            break
    return said
