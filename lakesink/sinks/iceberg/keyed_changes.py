"""How the Iceberg sink commits changes of rows by key: what locates them, and what it refuses."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyiceberg.table import Table

from lakesink.checkpoint.offsets import is_kafka_offset
from lakesink.keys.changed_rows import POSITIONS
from lakesink.keys.locate_errors import sequence_of_partitions
from lakesink.keys.work import Run
from lakesink.parquet.locations import task_of
from lakesink.rows.plan import ChangesPlan
from lakesink.settings.option_types import LocateIn, OnLate
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.checked_receipts import CombinedReceipts
from lakesink.sinks.iceberg.locator import Locator, NewFile
from lakesink.sinks.iceberg.rows_on_head import WORKERS_FROM_BYTES, LocateMemory, LocateSettings, Workers
from lakesink_catalog.commit.located import Locate, Located
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.manifests.copying import AtOnce
from lakesink_catalog.manifests.live_entries import Origin, live_entries
from lakesink_catalog.words import counted
from lakesink_protocol.errors import WriteError
from lakesink_protocol.identity import Batch

RunInExecutors = Callable[[Callable[[Any], bytes], Sequence[Any]], Sequence[bytes]]
"""Applies a picklable function to items in Spark's executors; the results are in the order of the items."""


@dataclass(frozen=True, slots=True)
class ChangesByKey:
    """Locates the batches of one sink.

    Attributes:
        run: Runs in executors; None where there is no session.
        memory: Kept from batch to batch.
    """

    settings: Settings
    run: RunInExecutors | None
    at_once: AtOnce
    memory: LocateMemory = field(default_factory=LocateMemory)

    def locate(self, prepared: PreparedBatch, file_stem: str) -> Locate | None:
        """What locates a prepared batch on a head; None if the batch only appends."""
        if prepared.changes is None:
            return None
        new_files = partial(_new_files, prepared)
        workers = None
        if self.run is not None and self.settings.locate_in is not LocateIn.DRIVER:
            run: Run = self.run
            workers = Workers(run, 0 if self.settings.locate_in is LocateIn.EXECUTORS else WORKERS_FROM_BYTES)
        how = LocateSettings(workers=workers)
        locator = Locator(prepared.changes, new_files, file_stem, self.memory, self.at_once, how)
        return locator if self.settings.on_late is OnLate.IGNORE else partial(_without_late, locator)


def check_sequence(settings: Settings, batch: Batch) -> None:
    """Refuse positions in Kafka as the sequence unless the batch's offsets prove that there is one partition.

    Kafka's offsets name all partitions that the query reads, also those without new records, and after a restart.
    Other offsets, and a batch job, name none: the next batch can have records of another partition.
    """
    first = settings.sequence_by[0] if settings.sequence_by else ""
    if first.lower() not in POSITIONS:
        return
    offsets = json.loads(batch.offsets) if batch.offsets else []
    sources = [one for one in (offsets.values() if isinstance(offsets, dict) else offsets) if one is not None]
    topics = [topic for source in sources if is_kafka_offset(source) for topic in source.values()]
    partitions = sum(map(len, topics))
    if partitions != 1 or not all(map(is_kafka_offset, sources)):
        raise sequence_of_partitions(first, are_several=partitions > 1)


def prepared_changes(plan: ChangesPlan | None, counted: CombinedReceipts, changelog: str) -> PreparedChanges | None:
    """What a record keeps of the changes of a batch; None if its rows are only appended."""
    if plan is None:
        return None
    return PreparedChanges(plan.keys, plan.sequence, counted.keys_files, counted.superseded, plan.mode, changelog)


def _new_files(prepared: PreparedBatch, table: Table) -> list[NewFile]:
    """The batch's own data files, from its manifests: an earlier process may have written them."""
    found = []
    for manifest in prepared.manifests:
        with table.io.new_input(manifest.path).open() as stream:
            origin = Origin(manifest.path, manifest.spec_id, sequence_number=0, deletes=False)
            entries = live_entries(stream.read(), origin, frozenset())
        found += [
            NewFile(file.path, task_of(file.path), file.record_count, file.spec_id, file.partition)
            for file in entries.files
        ]
    return found


def _without_late(locator: Locator, table: Table, head: int | None) -> Located:
    located = locator(table, head)
    late = located.counts.late_upserts + located.counts.late_deletes
    if late:
        name = ".".join(table.name())
        raise WriteError(
            "CHANGES_LATE",
            f"The rows of {name} are newer than {counted(late, 'change')} of the batch, and on_late is 'fail'.",
            action=(
                "Look at the source: it sends changes again, or in another order than that of sequence_by.",
                "Set on_late='ignore' and start the query again: late changes are counted and have no effect.",
            ),
        )
    return located
