"""Hostile metadata before the commands: what a table says of itself is shown, or refused by name, and that is all."""

import json
import os
import random
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch
from urllib.parse import urlsplit
from zlib import crc32

import pyarrow as pa
from click.testing import CliRunner
from pyiceberg.catalog import Catalog

from lakesink_catalog.connect.catalog import HOME_VARIABLE, connect
from lakesink_catalog.read.history import sinks
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_tools.cli.main import main
from lakesink_tools.past.records import history
from proof.security.judge import ACCEPTED, LONGEST_FIRST_LINE, Unsafe, refused_by, require
from proof.security.mutation import Forge, Forged, damaged, honest_json
from testkit.batches import Writer

TABLE = "demo.events"
LONGEST_LINE = 20_000
BATCHES = 3
COMMANDS = (
    ("status", TABLE),
    ("log", TABLE),
    ("audit", TABLE),
    ("as-of", TABLE, "--batch", "1"),
    ("as-of", TABLE, "--tag", "lakesink-events"),
)


@dataclass(slots=True)
class Commands:
    """The metadata file of a table in the embedded catalog; the commands look at it, in text and in JSON."""

    folder: Path
    name: str = "metadata before the commands"
    _metadata: Path = field(init=False)
    _forge: Forge = field(init=False)
    _catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        with self._home():
            self._catalog = connect()
            create_table(self._catalog, TABLE, pa.schema([("id", pa.int64())]))
            writer = Writer(self._catalog)
            for batch_id in range(BATCHES):
                writer.commit(batch_id)
            table = writer.load()
        self._metadata = Path(urlsplit(table.metadata_location).path)
        honest = json.loads(self._metadata.read_bytes())
        entry = honest["properties"]["lakesink.ledger.stream.events"]
        self._forge = Forge(honest, [entry, json.dumps("\x1b[2J"), "9" * 5_000, "[" * 3_000, "NaN", 2**62])

    def forge(self, chance: random.Random) -> Forged:
        if chance.random() < 0.05:
            return Forged("damaged bytes", damaged(honest_json(self._forge.honest), chance))
        return self._forge.text(chance)

    def feed(self, data: bytes) -> str:
        self._metadata.write_bytes(data)
        with self._home():
            refused = refused_by(self._look)
            for command in COMMANDS[crc32(data) % 2 :: 2]:
                _run(command)
        return refused or ACCEPTED

    def _look(self) -> None:
        table = load_table(self._catalog, TABLE)
        history(table)
        sinks(table)

    def _home(self) -> AbstractContextManager[Any]:
        wanted = {HOME_VARIABLE: str(self.folder / "lakehouse"), "PYICEBERG_HOME": str(self.folder)}
        return patch.dict(os.environ, wanted)


def _run(command: tuple[str, ...]) -> None:
    runner = CliRunner()
    text = runner.invoke(main, list(command))
    told = runner.invoke(main, [*command, "--output", "json"])
    for result in (text, told):
        require(
            result.exception is None or isinstance(result.exception, SystemExit), f"{command[0]}: {result.exception!r}"
        )
        require(result.exit_code in (0, 1, 2), f"{command[0]} ends with {result.exit_code}")
    lines = text.output.split("\n")
    require(all(line.isprintable() for line in lines), f"{command[0]} moves the terminal")
    require(max(map(len, lines)) < LONGEST_LINE, f"{command[0]} prints a line without end")
    document = _parsed(command[0], told.stdout)
    if told.exit_code == 2 and "error" in document:
        error = document["error"]
        require(error["code"] != "LAKESINK_UNEXPECTED", f"{command[0]}: {error['what']}")
        require(len(error["what"]) < LONGEST_FIRST_LINE, f"{command[0]}: an error of {len(error['what'])} characters")


def _parsed(command: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise Unsafe(f"{command} prints what is no JSON: {error}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)
