"""Hostile receipts and hostile prepared records against a real table: decode, count, prepare, find, recover."""

import hashlib
import json
import random
import zlib
from base64 import b64encode
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from lakesink.sinks.iceberg.checked_receipts import count_votes
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.manifests.write import write_batch_manifests
from lakesink_protocol.change import ContentFile
from lakesink_protocol.identity import Batch
from lakesink_protocol.receipt import decode
from proof.security.judge import ACCEPTED, WRITTEN_AGAIN, check_counts, is_of_batch, lies_in, refused_by, require
from proof.security.mutation import Forge, Forged, damaged, honest_json
from testkit.builders import Lake, Stream

BATCH = 1
BY_BATCH = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "batch"))


@dataclass(slots=True)
class Scene:
    """A table with batch 0 in it, and batch 1 written by real tasks and prepared, its driver dead."""

    folder: Path
    lake: Lake = field(init=False)
    stream: Stream = field(init=False)
    sink: IcebergSink = field(init=False)
    batch: Batch = field(init=False)
    transaction: IcebergTransaction = field(init=False)
    votes: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.lake = Lake.make(self.folder, spec=BY_BATCH)
        self.stream = Stream(self.lake)
        self.stream.run(0)
        self.batch = self.stream.batch(BATCH)
        self._prepare()
        self.sink = self.stream.sink()
        self.begin()

    def begin(self) -> None:
        """A fresh driver's decision."""
        begun = self.sink.begin(self.batch)
        assert isinstance(begun, IcebergTransaction)
        self.transaction = begun

    @property
    def table(self) -> Table:
        return self.transaction.decision.table

    @property
    def data(self) -> str:
        return f"{self.table.location()}/data"

    @property
    def metadata(self) -> str:
        return f"{self.table.location()}/metadata"

    @property
    def record(self) -> Path:
        [path] = (self.folder / "warehouse").rglob(f"lakesink/events/main/{BATCH}-*.json")
        return path

    def _prepare(self) -> None:
        sink = self.stream.sink()
        begun = sink.begin(self.batch)
        assert isinstance(begun, IcebergTransaction)
        assert begun.writer is not None
        self.votes = [*self.stream.write(self.batch, tasks=2)({"it": begun.writer}).receipts("it")]
        prepared = sink.pre_commit(begun, self.votes)
        begun.prepared_log.put(self.batch, {sink.name: prepared.payload})


@dataclass(slots=True)
class Receipts:
    """The vote of one task of two; the other's is honest."""

    scene: Scene
    name: str = "receipt"
    _forge: Forge = field(init=False)

    def __post_init__(self) -> None:
        other, honest = (json.loads(zlib.decompress(vote)) for vote in self.scene.votes)
        foreign = f"{self.scene.data}/batch=0/events-0-00000-00000000-0000-4000-8000-000000000000.parquet"
        tempting = [
            other["files"][0],
            other["files"][0]["path"],
            foreign,
            foreign.replace("events-0", f"xevents-{BATCH}"),
            f"{self.scene.metadata}/x.parquet",
            2**63 - 1,
            [1, b64encode(b"\0").decode()],
            [[9], b64encode(b"\xff" * 9).decode()],
            {"nulls": [2, 1]},
            None,
        ]
        self._forge = Forge(honest, tempting)

    def forge(self, chance: random.Random) -> Forged:
        draw = chance.random()
        if draw < 0.002:
            return Forged("bomb", _bomb(chance))
        if draw < 0.12:
            return Forged("damaged bytes", damaged(self.scene.votes[1], chance))
        made = self._forge.text(chance)
        return Forged(made.kind, zlib.compress(made.data, 1))

    def feed(self, data: bytes) -> str:
        votes = [self.scene.votes[0], data]
        return refused_by(lambda: self._count(votes)) or ACCEPTED

    def _count(self, votes: list[bytes]) -> None:
        scene = self.scene
        plan = scene.transaction.write.plan
        counted = count_votes(votes, scene.table, plan.file_stem, plan.batch_id)
        _check_files(counted.files, scene)
        if crc32(votes[1]) % 20 == 0:  # writes manifests: slow, and for each input always the same choice
            prepared = scene.sink.pre_commit(scene.transaction, votes)
            _check_prepared(prepared, scene)


@dataclass(slots=True)
class Records:
    """The prepared record of a batch, whose digest any writer can make anew."""

    scene: Scene
    name: str = "prepared record"
    _forge: Forge = field(init=False)
    _path: Path = field(init=False)
    _found: str = ""

    def __post_init__(self) -> None:
        self._path = self.scene.record
        honest = json.loads(self._path.read_bytes().partition(b"\n")[2])
        self._forge = Forge(honest, _temptations(self.scene))

    def forge(self, chance: random.Random) -> Forged:
        if chance.random() < 0.08:
            return Forged("damaged bytes", damaged(_digested(honest_json(self._forge.honest)), chance))
        made = self._forge.text(chance)
        return Forged(made.kind, _digested(made.data))

    def feed(self, data: bytes) -> str:
        self._path.write_bytes(data)
        return refused_by(self._find) or self._found

    def _find(self) -> None:
        scene = self.scene
        payloads = scene.transaction.prepared_log.find(scene.batch)
        payload = None if payloads is None else payloads.get(scene.sink.name)
        prepared = None if payload is None else scene.sink.recover(scene.transaction, payload)
        self._found = WRITTEN_AGAIN if prepared is None else ACCEPTED
        if prepared is not None:
            _check_prepared(prepared, scene)


def _check_files(files: tuple[ContentFile, ...], scene: Scene) -> None:
    stem = f"{scene.stream.sink_id}-{BATCH}"
    require(all(lies_in(file.path, scene.data) for file in files), "a file outside the data location")
    require(all(is_of_batch(file.path, stem) for file in files), "a file of another batch or sink")
    require(len({file.path for file in files}) == len(files), "a file twice")
    check_counts([file.record_count for file in files], [file.file_size_bytes for file in files])
    for file in files:
        for statistic in (file.null_value_counts, file.nan_value_counts):
            fits = all(count <= file.value_counts.get(column, 0) for column, count in statistic.items())
            require(fits, "more NULLs than values")
        bounds = [*file.lower_bounds.values(), *file.upper_bounds.values()]
        require(all(bound is None or len(bound) == 8 for bound in bounds), "a bound that is none of its column's type")
        splits = file.split_offsets
        require(list(splits) == sorted(set(splits)), "split offsets out of order")
        require(all(offset < file.file_size_bytes for offset in splits), "a split offset beyond the file")


def _check_prepared(prepared: PreparedBatch, scene: Scene) -> None:
    """What the manifests say, as PyIceberg reads them, is what was prepared, and all of it is this batch's."""
    entries = [
        entry
        for manifest in prepared.manifests
        for entry in manifest.to_manifest_file().fetch_manifest_entry(scene.table.io, discard_deleted=False)
    ]
    stated = sorted((entry.data_file.file_path, entry.data_file.file_size_in_bytes) for entry in entries)
    require(all(lies_in(manifest.path, scene.metadata) for manifest in prepared.manifests), "a manifest elsewhere")
    require(all(lies_in(path, scene.data) for path, _ in stated), "a file outside the data location")
    require(all(is_of_batch(path, f"{scene.stream.sink_id}-{BATCH}") for path, _ in stated), "a foreign file")
    require(len(dict(stated)) == len(stated), "a file twice")
    require(stated == sorted(prepared.files), "a manifest that holds other files than the record")
    require(prepared.rows == sum(entry.data_file.record_count for entry in entries), "rows that are in no file")
    require(all(entry.status == 1 for entry in entries), "an entry that adds nothing")
    require(2**31 <= prepared.snapshot_id < 2**63, "a snapshot id that readers do not take")
    require(0 <= prepared.partitions <= max(len(stated), 1), "partitions beyond the files")
    check_counts([entry.data_file.record_count for entry in entries], [size for _, size in stated])


def _temptations(scene: Scene) -> list[Any]:
    """Real manifests in the right folder that hold the wrong files, and what a record would say of them."""
    honest = json.loads(scene.record.read_bytes().partition(b"\n")[2])["participants"][scene.sink.name]
    committed = next(iter(scene.table.scan().plan_files())).file
    found: list[Any] = [committed.file_path, [committed.file_path, committed.file_size_in_bytes]]
    for files in _evil_files(scene, committed):
        [manifest] = (
            written.to_json()
            for written in write_batch_manifests(
                scene.table, files, schema=scene.table.schema(), snapshot_id=honest["snapshot_id"]
            )
        )
        listed = [[file.path, file.file_size_bytes] for file in files]
        found += [manifest, manifest["path"], listed, {"manifests": [manifest]}]
        found.append({"manifests": [manifest | {"rows": honest["rows"]}]})
        found.append({"manifests": [manifest], "files": listed, "rows": manifest["rows"]})
    return found


def _evil_files(scene: Scene, committed: DataFile) -> list[list[ContentFile]]:
    """As many files as the batch has, one of them from elsewhere, of another batch, of other rows, or there twice."""
    first, second = (decode(vote).files[0] for vote in scene.votes)
    elsewhere = scene.folder / second.path.rpartition("/")[2]
    elsewhere.write_bytes(b"P" * second.file_size_bytes)
    other = replace(second, path=committed.file_path, file_size_bytes=committed.file_size_in_bytes)
    return [
        [first, replace(second, path=f"file://{elsewhere}")],
        [first, other],
        [first, replace(second, record_count=1_000)],
        [first, replace(second, record_count=2**62)],
        [first, first],
    ]


def _digested(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _bomb(chance: random.Random) -> bytes:
    size = chance.choice((1, 4, 16)) * 2**20
    return zlib.compress(chance.choice((b" ", b"[],", b"0", b'"', b"{", b'{"v":1,')) * size, 9)
