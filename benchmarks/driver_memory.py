"""W4/memory: what a driver holds on to while it commits ten thousand batches one by one, in a process of its own.

That is the committing half of a driver, without Spark's: each batch is a data file, a look into the table, manifests
and one commit. Where no snapshot expires, the table's metadata, of which a driver keeps one parsed copy, grows with
them; where they do, a thousand are left every five hundred batches.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from pyiceberg.table import Table

from benchmarks.commit_latency import ROWS, commit_once, fenced
from benchmarks.result import Goal, Result
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table

BATCHES = 10_000
TABLE = "bench.memory"
_MARKS = 10
_EXPIRE_EVERY, _LEFT = 500, 1000
_WARM = 100
_MIB = 1024 * 1024
_FEW_METADATA_FILES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
"""Else ten thousand of them would fill the disk."""


@dataclass(frozen=True, slots=True)
class Held:
    """The process after so many batches.

    Attributes:
        batches: Committed.
        expiring: True if snapshots expire.
        resident_bytes: All of its memory.
    """

    batches: int
    expiring: bool
    resident_bytes: int


def measure(_: Path, say: Callable[[str], None], scale: float = 1.0) -> Result:
    """Run the commits, without and with expiry, and read what they say."""
    found = []
    for expiring in (False, True):
        for held in _said(int(BATCHES * scale), expiring=expiring):
            found.append(held)
            say(f"W4/memory: {held.batches:,} batches, {held.resident_bytes // _MIB} MiB")
    return report(found)


def _said(batches: int, *, expiring: bool) -> Iterator[Held]:
    command = [sys.executable, "-m", "benchmarks.driver_memory", str(batches), *(["--expiring"] if expiring else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield Held(**json.loads(line))
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def report(found: Sequence[Held]) -> Result:
    """The growth since the first mark, when everything was imported and used."""
    rows, goals = [], []
    for expiring, told in ((False, "kept"), (True, "expire down to 1,000")):
        marks = [held for held in found if held.expiring is expiring]
        grown = [(held.resident_bytes - marks[0].resident_bytes) / _MIB for held in marks]
        rows += [
            (told, f"{held.batches:,}", held.resident_bytes // _MIB, round(more))
            for held, more in zip(marks, grown, strict=True)
        ]
        name = f"W4, driver's memory over {marks[-1].batches:,} batches, snapshots {told}"
        goals.append(Goal(name, 50, grown[-1], at_least=False, unit=" MiB"))
    heads = ("snapshots", "batches committed", "MiB of the process", "MiB more")
    raw = [asdict(held) for held in found]
    return Result("W4/memory", "a driver that commits batch after batch", heads, tuple(rows), tuple(goals), raw)


def commits(folder: Path, batches: int, *, expiring: bool) -> Iterator[Held]:
    """Commit so many batches to a new table."""
    catalog = connect(
        "bench", {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    )
    create_table(catalog, TABLE, ROWS.schema, properties=_FEW_METADATA_FILES)
    fence = fenced(catalog, TABLE)
    marks = {_WARM, *(batches * mark // _MARKS for mark in range(1, _MARKS + 1))}
    for number in range(batches):
        commit_once(fence, number)
        if expiring and number % _EXPIRE_EVERY == 0:
            _expire(catalog.load_table(TABLE))
        if number + 1 in marks:
            yield Held(number + 1, expiring, psutil.Process().memory_info().rss)


def _expire(table: Table) -> None:
    old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots[:-_LEFT]]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for mark in commits(Path(place), int(sys.argv[1]), expiring="--expiring" in sys.argv):
            print(json.dumps(asdict(mark)), flush=True)
