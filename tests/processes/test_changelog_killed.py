"""Changes by key with a changelog beside the table: drivers killed at every point."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from testkit.harness import Stream

pytestmark = pytest.mark.driver

LONG = pytest.mark.nightly
KEYS, ROWS = 12, 20
KILLS = (
    ("before-prepared", 0),
    ("after-prepared", 1),
    ("before-call", 2),  # of the changelog, which commits first
    ("after-call", 3),  # the changelog has the batch, the table lacks it
    ("after-commit", 4),
    ("batch-start", 5),
)
WORST_KILLS = (KILLS[1], KILLS[3])
LOG = "demo.numbers_changelog"
OPTIONS: dict[str, Any] = {
    "create_table": True,
    "mode": "changes",
    "keys": "id",
    "sequence_by": "version",
    "apply_as_deletes": "gone",
    "changelog_table": LOG,
}


class Changes(Stream):
    """A stream of files of changes."""

    def config(self) -> dict[str, Any]:
        return super().config() | {"schema": "id long, version long, text string, gone boolean"}

    def add_files(self, first: int, last: int) -> None:
        source = self.root / "source"
        source.mkdir(parents=True, exist_ok=True)
        for number in range(first, last):
            path = source / f"{number:06d}.json"
            path.write_text("".join(json.dumps(change) + "\n" for change in changes_of(number)))
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def changes_of(number: int) -> list[dict[str, Any]]:
    """Several changes of most keys, some of them deletes, and some older than those of the file before."""
    return [
        {
            "id": (number * 5 + row) % KEYS,
            "version": number * 100 + row - (150 if row % 7 == 0 else 0),
            "text": f"{number}/{row}",
            "gone": row % 5 == 0,
        }
        for row in range(ROWS)
    ]


def expected(batches: int) -> list[dict[str, Any]]:
    """The rows of the table: a dictionary, changed batch by batch."""
    rows: dict[int, dict[str, Any]] = {}
    for number in range(batches):
        newest = {one["id"]: one for one in sorted(changes_of(number), key=lambda one: one["version"])}
        for key, one in newest.items():
            if key not in rows or rows[key]["version"] <= one["version"]:
                rows.pop(key, None)
                rows |= {} if one["gone"] else {key: one}
    return [{name: rows[key][name] for name in ("id", "version", "text")} for key in sorted(rows)]


def logged(batches: int) -> list[tuple[Any, ...]]:
    """The rows of the changelog."""
    return sorted(
        (number, one["id"], one["version"], one["text"], "delete" if one["gone"] else "upsert")
        for number in range(batches)
        for one in changes_of(number)
    )


@pytest.mark.parametrize(
    ("adapter", "kills"),
    [
        pytest.param("stream", WORST_KILLS, id="worst-points"),
        pytest.param("stream", KILLS, id="every-point", marks=LONG),
        pytest.param("format", KILLS, id="every-point-by-format", marks=LONG),
    ],
)
def test_every_change_is_in_the_changelog_once_and_the_table_is_their_fold(
    tmp_path: Path, adapter: str, kills: tuple[tuple[str, int], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = OPTIONS | ({"except_column_list": "gone"} if adapter == "stream" else {})
    stream = Changes(tmp_path, adapter=adapter, options=options)
    monkeypatch.setenv("LAKESINK_HOME", str(stream.home))
    batches = max(batch for _, batch in kills) + 2
    stream.add_files(0, batches)
    for point, batch in kills:
        stream.killed_at(f"{point}@{batch}")
    assert stream.run() == 0, stream.log()

    rows = load_table(connect(create=False), stream.table).scan().to_arrow().sort_by("id").to_pylist()
    assert rows == expected(batches)
    columns = ("_batch_id", "id", "version", "text", "_operation")
    found = load_table(connect(create=False), LOG).scan().to_arrow().to_pylist()
    assert sorted(tuple(row[name] for name in columns) for row in found) == logged(batches)
    assert not lakesink.audit_table(stream.table).findings
