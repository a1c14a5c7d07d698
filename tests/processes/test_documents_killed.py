"""Documents that change the table's schema, and dead letters beside them: drivers killed at every point."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from testkit.harness import Stream

pytestmark = pytest.mark.driver

LONG = pytest.mark.nightly
ROWS = 20
KILLS = (
    ("before-prepared", 0),
    ("after-prepared", 1),
    ("before-call", 2),  # of the dead letters, which commit first
    ("after-call", 3),  # the dead letters have landed, the rows have not
    ("after-call", 4),  # a batch without dead letters: the rows and their columns have landed
    ("after-commit", 5),
    ("batch-start", 6),
)
WORST_KILLS = (KILLS[1], KILLS[3])
WITHOUT_LETTERS = 4
OPTIONS = {"decode": "json", "schema_evolution": "widen", "on_malformed": "quarantine", "max_dead_letter_ratio": 0.9}


class Documents(Stream):
    """A stream of files of documents. Each file brings a column, and most have a line that is no document."""

    def config(self) -> dict[str, Any]:
        return super().config() | {"schema": "value string"}

    def add_files(self, first: int, last: int) -> None:
        source = self.root / "source"
        source.mkdir(parents=True, exist_ok=True)
        for number in range(first, last):
            texts = [json.dumps(document) for document in documents_of(number)]
            texts += [] if number == WITHOUT_LETTERS else [bad_line(number)]
            path = source / f"{number:06d}.json"
            path.write_text("".join(json.dumps({"value": text}) + "\n" for text in texts))
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def documents_of(number: int) -> list[dict[str, Any]]:
    """The last one has a new key and, from the third file on, a number that is too large for INT."""
    size = 2**40 if number >= 2 else 1
    rows: list[dict[str, Any]] = [{"file": number, "row": row, "size": 1} for row in range(ROWS)]
    rows[-1] |= {f"k{number}": {"at": [number]}, "size": size}
    return rows


def bad_line(number: int) -> str:
    return f"file {number} is no document"


@pytest.mark.parametrize(
    ("adapter", "kills"),
    [
        pytest.param("stream", WORST_KILLS, id="worst-points"),
        pytest.param("stream", KILLS, id="every-point", marks=LONG),
        pytest.param("format", KILLS, id="every-point-by-format", marks=LONG),
    ],
)
def test_every_document_is_in_one_table_once_and_every_column_came_once(
    tmp_path: Path, adapter: str, kills: tuple[tuple[str, int], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Documents(tmp_path, adapter=adapter, options=OPTIONS)
    monkeypatch.setenv("LAKESINK_HOME", str(stream.home))
    stream.home.mkdir()
    create_table(connect(), stream.table, pa.schema([("file", pa.int64()), ("row", pa.int64()), ("size", pa.int32())]))
    batches = max(batch for _, batch in kills) + 2
    stream.add_files(0, batches)

    for point, batch in kills:
        stream.killed_at(f"{point}@{batch}")
    assert stream.run() == 0, stream.log()

    wanted = [document for number in range(batches) for document in documents_of(number)]
    assert rows_of(load_table(connect(create=False), stream.table)) == sorted(wanted, key=str)
    letters = load_table(connect(create=False), f"{stream.table}__dead_letters").scan().to_arrow().to_pylist()
    bad = [(number, bad_line(number)) for number in range(batches) if number != WITHOUT_LETTERS]
    assert sorted((letter["batch_id"], letter["payload"]) for letter in letters) == bad
    changes = [record.schema_change for record in lakesink.history(stream.table)]
    assert changes == [f"added k{number}{'; widened size' if number == 2 else ''}" for number in range(batches)]
    assert not lakesink.audit_table(stream.table).findings


def rows_of(table: Table) -> list[dict[str, Any]]:
    found = table.scan().to_arrow().to_pylist()
    return sorted(({name: row[name] for name in row if row[name] is not None} for row in found), key=str)
