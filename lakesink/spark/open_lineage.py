"""Tells OpenLineage of each commit: a listener makes the event of a batch, and a thread sends it by the client.

A batch only puts its event into a queue. A collector that is away, slow or refuses makes the queue full at most: then
events are dropped and counted. Loaded only if a user asks for it, because the client is an extra.
"""

import atexit
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from openlineage.client import OpenLineageClient, facet_v2
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

from lakesink._version import __version__
from lakesink.checkpoint.offsets import by_key, is_kafka_offset, is_reader_offset, log_offset, moved, moved_partitions
from lakesink_catalog.log import log
from lakesink_catalog.read.past import commit_of, time_of
from lakesink_protocol import events
from lakesink_protocol.identity import MAIN_BRANCH, SinkKind, canonical
from lakesink_protocol.outcome import Committed
from lakesink_protocol.redact import describe, redact

PRODUCER = f"pkg:pypi/lakesink@{__version__}"
NAMESPACE = "OPENLINEAGE_NAMESPACE"
"""The variable for the namespace of jobs that OpenLineage's other integrations read too."""
MOST_WAITING = 1_000
LAST_SECONDS = 10.0
_CONFIG = {"facets": {"source_code_location": {"disabled": True}}}
"""The client would add the address of a Git repository in the working folder, which may hold a token."""
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs", "thrift": "hive"}
_OBJECT_STORES = ("s3", "gs", "abfss", "wasbs")
_CONTAINERS = ("abfss", "wasbs")
"""Schemes with the container before the @, where others have a user."""
DatasetName = tuple[str, str]
"""Namespace and name of a dataset."""


class Sender:
    """Sends events one after the other, in a thread of its own. What cannot be sent is dropped, counted, and told once.

    It is told again, with the count, as soon as an event can be sent.
    """

    def __init__(self, emit: Callable[[RunEvent], Any], tell: events.Listener = log) -> None:
        self._emit, self._tell = emit, tell
        self._waiting: queue.Queue[RunEvent | None] = queue.Queue(MOST_WAITING)
        self._lost, self._lock = 0, threading.Lock()
        self._thread = threading.Thread(target=self._run, name="lakesink lineage", daemon=True)
        self._thread.start()

    def __call__(self, event: RunEvent) -> None:
        """Send the event as soon as those before it are sent. Never waits."""
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._tell_of(f"{MOST_WAITING} events wait for the collector")

    def close(self) -> None:
        """Wait until all is sent, but not for long."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=LAST_SECONDS)
        self._thread.join(LAST_SECONDS)

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            trouble = ""
            try:
                self._emit(event)
            except Exception as error:  # noqa: BLE001 - a client raises what its transport raises
                trouble = describe(error)
            self._tell_of(trouble)

    def _tell_of(self, trouble: str) -> None:
        """Count what is lost, and tell the first; how many they were, as soon as an event is sent without trouble."""
        with self._lock:
            lost, self._lost = self._lost, self._lost + 1 if trouble else 0
        if trouble and not lost:
            self._tell(events.LineageNotSent(trouble))
        elif lost and not trouble:
            self._tell(events.LineageSentAgain(lost))


@lru_cache(maxsize=1)
def sender() -> Sender:
    """That of this process, with a client as its own variables and files configure it."""
    client = OpenLineageClient(config=_CONFIG)
    found = Sender(client.emit)
    atexit.register(found.close)
    return found


@dataclass(slots=True)
class Lineage:
    """Makes the events of the batches of one stream, or of one append.

    Attributes:
        catalog: Where the catalog of the table is, without secrets; empty if it has no address.
        names: Names of this catalog, as a place may have them.
        places: Where each source reads, in the order of the query: servers of Kafka, a folder, a name of a catalog.
    """

    send: Callable[[RunEvent], None]
    catalog: str = ""
    names: Sequence[str] = ()
    places: Sequence[str] = ()
    _found: dict[str, events.BatchInTable] = field(default_factory=dict, init=False)
    _read: events.OffsetsRead = field(default=events.OffsetsRead(0, None, [], None), init=False)

    def __call__(self, event: events.Event) -> None:
        """Keep what the batch reads and the tables that have it; when it is in the sink's own, send its events."""
        match event:
            case events.OffsetsRead():
                self._read = event
            case events.BatchInTable() if _snapshot(event) is not None:
                self._found[event.table] = event
            case events.BatchFinished():
                found = [one for one in self._found.values() if one.batch_id == event.batch_id]
                self._found = {}
                for own in found:
                    if own.situation.key.name == event.sink:
                        self._send(own, found, event)

    def _send(self, own: events.BatchInTable, tables: list[events.BatchInTable], end: events.BatchFinished) -> None:
        """A batch that an earlier run committed has its end only, as that run has sent it, or should have."""
        at = time_of(_snapshot(own).timestamp_ms)
        event = partial(RunEvent, run=run_of(own), job=job_of(own), producer=PRODUCER)
        if isinstance(end.outcome, Committed):
            begun = at - timedelta(seconds=end.seconds)
            self.send(event(eventType=RunState.START, eventTime=begun.isoformat()))
        inputs, outputs = list(self._inputs()), list(map(self._output, tables))
        self.send(event(eventType=RunState.COMPLETE, eventTime=at.isoformat(), inputs=inputs, outputs=outputs))

    def _inputs(self) -> Iterator[InputDataset]:
        """What the batch read, as far as its offsets tell; the range of offsets is the subset of the dataset."""
        start, end = self._read.start, self._read.end
        known = by_key(list(self.places)) if isinstance(end, list) else {}
        alone = self.places[0] if len(set(self.places)) == 1 else None
        for source, before, after in moved(start, end):
            place = known.get(source, alone)
            if is_kafka_offset(after) and place:
                servers = f"kafka://{place.split(',')[0].rpartition('://')[2].rpartition('@')[2]}"
                for topic, read in groupby(moved_partitions(before, after), itemgetter(0)):
                    yield _input((servers, topic), *(_range(first, to, one) for _, one, first, to in read))
            elif (to := log_offset(after)) is not None and place:
                yield _input(name_at(place), _range(log_offset(before), to))
            elif is_reader_offset(after) and place in self.names and self.catalog:
                name, version = name_in(self.catalog, str(after.get("table"))), _version(after.get("snapshot"))
                begun = before.get("batch") if is_reader_offset(before) else None
                yield _input(name, _range(begun, after.get("batch")), version=version)

    def _output(self, found: events.BatchInTable) -> OutputDataset:
        """A table as OpenLineage's integration of Spark names it: by its location, and by its name as a symlink."""
        metadata, snapshot = found.metadata, _snapshot(found)
        added = commit_of(snapshot, snapshot.summary, None, None).added
        columns = [one for each in metadata.schemas if each.schema_id == snapshot.schema_id for one in each.fields]
        fields = [facet_v2.schema_dataset.SchemaDatasetFacetFields(one.name, str(one.field_type)) for one in columns]
        facets = {
            "version": _version(found.snapshot_id),
            "schema": _facet(facet_v2.schema_dataset.SchemaDatasetFacet, fields),
        }
        if self.catalog:
            link = facet_v2.symlinks_dataset.Identifier(*name_in(self.catalog, found.table), "TABLE")
            facets["symlinks"] = _facet(facet_v2.symlinks_dataset.SymlinksDatasetFacet, [link])
        counts = facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        statistics = {"outputStatistics": _facet(counts, added.rows, added.bytes, added.files)}
        return OutputDataset(*name_at(metadata.location), statistics, facets=facets)


def _snapshot(found: events.BatchInTable) -> Any:
    """The batch's own snapshot; None if it has expired, or nothing tells which it is."""
    return found.metadata.snapshot_by_id(found.snapshot_id)


def run_of(own: events.BatchInTable) -> Run:
    """One run is one batch of one query: its id is the same in every attempt, and in a replay."""
    batch, key = own.situation.batch, own.situation.key
    place = canonical([key.ledger_property, batch.query_id, batch.batch_id])
    told = {"batch_id": str(batch.batch_id), "query_id": batch.query_id}
    tags = [facet_v2.tags_run.TagsRunFacetFields(name, value, "lakesink") for name, value in told.items() if value]
    run_id = uuid5(UUID(own.situation.view.table_uuid), place)
    return Run(str(run_id), {"tags": _facet(facet_v2.tags_run.TagsRunFacet, tags)})


def job_of(own: events.BatchInTable) -> Job:
    """One job is one sink: a table, a sink id or an application, and a branch."""
    key = own.situation.key
    processing = "STREAMING" if key.kind is SinkKind.STREAM else "BATCH"
    name = redact(f"{own.table}.{key.label}{'' if key.branch == MAIN_BRANCH else f'@{key.branch}'}")
    job_type = _facet(facet_v2.job_type_job.JobTypeJobFacet, processing, "SPARK")
    return Job(os.environ.get(NAMESPACE) or "lakesink", name, {"jobType": job_type})


def _range(start: int | None, end: int | None, partition: str | None = None) -> facet_v2.base_subset_dataset.Partition:
    """Offsets of Kafka from `start` up to `end`; of files and batches behind `start`, up to and including `end`."""
    return facet_v2.base_subset_dataset.Partition({"startOffset": start, "endOffset": end}, partition)


def _input(name: DatasetName, *read: facet_v2.base_subset_dataset.Partition, **facets: Any) -> InputDataset:
    subset = facet_v2.base_subset_dataset.InputSubsetInputDatasetFacet
    condition = facet_v2.base_subset_dataset.PartitionSubsetCondition(list(read))
    return InputDataset(*name, {"subset": _facet(subset, condition)}, facets=facets or None)


def _version(snapshot_id: Any) -> Any:
    return _facet(facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet, str(snapshot_id))


def _facet(kind: Callable[..., Any], *values: Any) -> Any:
    return kind(*values, producer=PRODUCER)


def name_at(location: str) -> DatasetName:
    """Namespace and name of a folder, without a user, a password or a query."""
    scheme, host, path = _parts(location)
    if scheme in ("", "file"):
        return "file", path or "/"
    return f"{scheme}://{host}", path.lstrip("/") if scheme in _OBJECT_STORES else path


def name_in(catalog: str, table: str) -> DatasetName:
    """Namespace and name of a table by its catalog, likewise."""
    scheme, host, path = _parts(catalog)
    return f"{scheme}://{host}{path}", redact(table)


def _parts(uri: str) -> tuple[str, str, str]:
    found = urlsplit(redact(uri), allow_fragments=False)
    scheme = _SCHEMES.get(found.scheme, found.scheme)
    host = found.netloc if scheme in _CONTAINERS else found.netloc.rpartition("@")[2]
    return scheme, host, found.path.rstrip("/")
