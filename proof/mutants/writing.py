"""Bugs of the data files: names that come back, files that nobody voted for, votes cast too early.

Tasks of the simulator stand for the shipped writer: where a bug is in the writer, they get it too.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pyarrow.parquet as pq
from pyiceberg.table import Table

from lakesink.parquet import files
from lakesink.parquet.locations import is_location, new_location
from lakesink.parquet.parquet import OpenFile
from lakesink.rows.plan import WritePlan
from lakesink.sinks.iceberg import iceberg_sink as iceberg
from lakesink.sinks.iceberg.checked_receipts import CombinedReceipts
from lakesink_catalog.tables.locations import data_location
from lakesink_protocol.change import ContentFile
from proof.mutants.mutant import Focus, Patches, mutant
from proof.oracle import Key
from proof.simulator import tasks
from proof.simulator.catalog import SimulatedCatalog
from proof.simulator.tasks import Tasks, file_receipt

UPLOAD_SECONDS = 1.0
_LENGTH_OF_UUID = 36


@mutant(
    "P7: a batch that is written again gives its files the names of the first time.",
    seen_in="Iceberg #8609, #9172, #7890",
    focus=Focus(actions=("twin", "freeze", "twin"), seed=11),
    scenario="a driver comes back in the middle of a file",
)
def reused_file_names(patches: Patches) -> None:
    """A file's name tells batch, task and number, and no more."""
    numbers: dict[int, tuple[WritePlan, Counter[int]]] = {}

    def location(plan: WritePlan, sources: Sequence[Any], task: int, partition: Any) -> str:
        _, count = numbers.setdefault(id(plan), (plan, Counter()))
        count[task] += 1
        path = new_location(plan, sources, task, partition).removesuffix(".parquet")
        return f"{path[:-_LENGTH_OF_UUID]}{UUID(int=count[task])}.parquet"

    patches.put(files, "new_location", location)
    patches.put(tasks, "new_location", location)


@mutant(
    "P7, P8: what lies in the folder under the batch's name is committed, and not what tasks voted for.",
    seen_in="committers that list: Hadoop's, and sinks that register whatever they find",
    focus=Focus(("speculative twin",)),
    scenario="killed before the record",
)
def files_found_by_listing(patches: Patches) -> None:
    """Files of attempts that failed are as good as any other."""

    def count(receipts: Sequence[bytes], table: Table, file_stem: str, *rest: Any, **more: Any) -> CombinedReceipts:
        counted: CombinedReceipts = real(receipts, table, file_stem, *rest, **more)
        known = {file.path for file in counted.files}
        found = (file for file in _listed(table) if is_location(file.path, data_location(table), file_stem))
        return replace(counted, files=(*counted.files, *(file for file in found if file.path not in known)))

    real = patches.put(iceberg, "count_votes", count)


@mutant(
    "P8: a task votes before its files are whole.",
    seen_in="writers that upload in the background; a Parquet file that an exception closes is valid, and shorter",
    focus=Focus(("write torn",)),
    scenario="killed after the commit",
)
def receipt_before_close(patches: Patches) -> None:
    """The upload goes on after the vote, and may fail."""

    def close(self: OpenFile) -> ContentFile:
        receipt: ContentFile = real(self)
        path = Path(urlsplit(receipt.path).path)
        content = path.read_bytes()
        path.unlink()
        threading.Thread(target=_upload, args=(path, content), daemon=True).start()
        return receipt

    def write(self: Tasks, plan: WritePlan, task: int, part: Sequence[Key]) -> ContentFile:
        path, content = new_location(plan, (), task, ()), repr(sorted(part)).encode()
        with suppress(OSError):
            self.store.put(path, content, Counter(part))
        return file_receipt(plan, path, len(content), len(part))

    real = patches.put(OpenFile, "close", close)
    patches.put(Tasks, "put_rows", write)


def _upload(path: Path, content: bytes) -> None:
    time.sleep(UPLOAD_SECONDS)
    path.write_bytes(content)


def _listed(table: Table) -> Iterator[ContentFile]:
    if isinstance(table.catalog, SimulatedCatalog):
        for location, stored in table.catalog.server.store.files.items():
            if stored.rows:
                yield _receipt(location, sum(stored.rows.values()), len(stored.read()))
        return
    for path in Path(urlsplit(data_location(table)).path).rglob("*.parquet"):
        yield _receipt(f"file://{path}", pq.read_metadata(path).num_rows, path.stat().st_size)


def _receipt(path: str, rows: int, size_bytes: int) -> ContentFile:
    return ContentFile(path, 0, (), rows, size_bytes, {}, {}, {}, {}, {}, {}, ())


MUTANTS = (
    reused_file_names,
    files_found_by_listing,
    receipt_before_close,
)
