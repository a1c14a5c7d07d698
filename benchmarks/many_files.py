"""The driver's part of a batch with many files: the receipts are counted, and the batch's manifest is written.

Nothing is read from files, so what the tasks say is made up. Seconds are those of the processor.
"""

import random
import struct
import tempfile
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table

from benchmarks.long_table import KEY, listed_files
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import task_plan
from lakesink.sinks.iceberg.checked_receipts import count_votes
from lakesink_catalog.commit.premises import premises_of
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.manifests.write import write_batch_manifests
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.change import ContentFile
from lakesink_protocol.identity import stream_batch
from lakesink_protocol.receipt import Receipt, encode

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class DriverPart:
    """Processor seconds of the driver for one batch, the best of some rounds, and the bytes of all its receipts."""

    votes: float
    manifest: float
    receipt_bytes: int

    @property
    def together(self) -> float:
        """Seconds of the votes and the manifest."""
        return self.votes + self.manifest


def driver_part(files: int, tasks: int, columns: int, rounds: int = ROUNDS) -> DriverPart:
    """Measure a batch of so many files of a table with so many columns."""
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{Path(folder) / 'catalog.db'}"
        catalog = connect("bench", {"type": "sql", "uri": uri, "warehouse": f"file://{folder}"})
        schema = pa.schema([(f"c{number}", pa.int64()) for number in range(columns)])
        table = create_table(catalog, "bench.many", schema)
        with table.update_spec() as update:
            update.add_identity("c0")
        receipts, stem = _receipts(table, files, tasks)
        found = [_round(table, receipts, stem) for _ in range(rounds)]
        votes, manifest = (min(each) for each in zip(*found, strict=True))
        return DriverPart(votes, manifest, sum(map(len, receipts)))


def _round(table: Table, receipts: list[bytes], stem: str) -> tuple[float, float]:
    started = time.process_time()
    counted = count_votes(receipts, table, stem, 0)
    between = time.process_time()
    write_batch_manifests(table, counted.files, schema=counted.schema, snapshot_id=2**40)
    return between - started, time.process_time() - between


def _receipts(table: Table, files: int, tasks: int) -> tuple[list[bytes], str]:
    plan = task_plan(table, stream_batch(0, "query", start=None, end=[1]), KEY, Settings())
    spec_id, schema_id = table.spec().spec_id, table.schema().schema_id
    premises = premises_of(table.metadata, schema_id, [spec_id])
    assert premises is not None
    found = []
    for task in range(tasks):
        chance = random.Random(task)  # noqa: S311 - the same in every run
        written = [
            _named(file, f"{plan.data_location}/c0={number}/{plan.file_stem}-{task:05}-{_uuid(chance)}.parquet", number)
            for number, file in enumerate(listed_files(table, task, files // tasks))
        ]
        rows = sum(file.record_count for file in written)
        own = tuple(replace(file, spec_id=spec_id) for file in written)
        found.append(encode(Receipt(task, rows, own, schema_id, premises=premises.digest)))
    return found, plan.file_stem


def _named(file: ContentFile, path: str, number: int) -> ContentFile:
    return replace(file, path=path, partition=(struct.pack("<q", number),))


def _uuid(chance: random.Random) -> uuid.UUID:
    return uuid.UUID(int=chance.getrandbits(128))
