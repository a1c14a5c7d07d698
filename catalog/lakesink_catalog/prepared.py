"""The prepared record: the pre-commit of a batch, durable between the vote and the commit.

One small JSON file a batch, under the table's metadata location. It digests itself, so that a torn write reads as
absent; absent only means that the batch is written again.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

from pyiceberg.io import FileIO

from lakesink_catalog.failpoints import reached
from lakesink_catalog.identity import Batch, SinkKey
from lakesink_catalog.ledger import LedgerEntry, typed_entry
from lakesink_catalog.manifests import ManifestRecord

logger = logging.getLogger("lakesink")

RECORD_VERSION = 1
SNAPSHOT_IDS = range(2**31, 2**63)
"""Below, Trino needs a cast; beyond, readers take the table for empty."""
MAX_RECORD_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """One table's part of a prepared batch: all that a commit attempt needs.

    Attributes:
        table_uuid: Table that the files belong to.
        branch: Branch that they are meant for.
        snapshot_id: Id of the snapshot to come, chosen once.
        schema_id: Schema that the files were written under.
        follows: Ledger entry seen when this was prepared; None if there was none.
        accepted: The overruled refusal as the user spelled it; empty if none.
        manifests: One a partition spec.
        files: Path and size in bytes of every data file.
        rows: Rows in them.
        partitions: Distinct partitions in them.
        recovered: True if an earlier run prepared it. Not part of the record.
    """

    table_uuid: str
    branch: str
    snapshot_id: int
    schema_id: int
    follows: LedgerEntry | None
    accepted: str
    manifests: tuple[ManifestRecord, ...]
    files: tuple[tuple[str, int], ...]
    rows: int
    partitions: int
    recovered: bool = False

    @property
    def payload(self) -> dict[str, Any]:
        """JSON-able form for the prepared record."""
        return {
            "table_uuid": self.table_uuid,
            "branch": self.branch,
            "snapshot_id": self.snapshot_id,
            "schema_id": self.schema_id,
            "follows": None if self.follows is None else asdict(self.follows),
            "accepted": self.accepted,
            "manifests": [manifest.to_json() for manifest in self.manifests],
            "files": [list(file) for file in self.files],
            "rows": self.rows,
            "partitions": self.partitions,
        }


def parse_prepared(payload: Mapping[str, Any]) -> PreparedBatch | None:
    """What an earlier run prepared; None if the payload is malformed."""
    try:
        snapshot_id = _snapshot_id(payload["snapshot_id"])
        follows = payload["follows"]
        return PreparedBatch(
            table_uuid=str(payload["table_uuid"]),
            branch=str(payload["branch"]),
            snapshot_id=snapshot_id,
            schema_id=int(payload["schema_id"]),
            follows=None if follows is None else typed_entry(follows),
            accepted=str(payload["accepted"]),
            manifests=tuple(ManifestRecord.from_json(document, snapshot_id) for document in payload["manifests"]),
            files=tuple((str(path), int(size)) for path, size in payload["files"]),
            rows=int(payload["rows"]),
            partitions=int(payload["partitions"]),
            recovered=True,
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        logger.warning("lakesink.prepared.dropped reason=malformed error=%s", type(error).__name__)
        return None


@dataclass(slots=True)
class PreparedFiles:
    """Prepared records of one sink as files; implements the coordinator's `PreparedLog`.

    Attributes:
        io: The table's file system.
        folder: ``<metadata location>/lakesink/<sink id>/<branch>``.
        key: Sink that the records belong to.
        max_age_ms: Older records are dropped: another tool's orphan cleaner may have taken their files.
        now_ms: Wall clock, milliseconds since the epoch.
    """

    io: FileIO
    folder: str
    key: SinkKey
    max_age_ms: int
    now_ms: Callable[[], int]
    _last_landed: str | None = None

    def find(self, batch: Batch) -> Mapping[str, Mapping[str, Any]] | None:
        """Payloads by participant of the record for exactly this batch, if it is whole and young enough."""
        body = self._read(self._path(batch))
        if body is None or body.get("batch") != _identity(batch, self.key):
            return None
        created_ms, participants = body.get("created_ms"), body.get("participants")
        if type(created_ms) is not int or not _is_payloads(participants):
            logger.warning("lakesink.prepared.dropped reason=malformed batch=%d", batch.batch_id)
            return None
        age_ms = self.now_ms() - created_ms
        if not 0 <= age_ms <= self.max_age_ms:
            logger.warning("lakesink.prepared.dropped reason=age batch=%d age_s=%d", batch.batch_id, age_ms // 1000)
            return None
        return participants

    def put(self, batch: Batch, payloads: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the record in one file; a torn one fails its own digest and reads as absent."""
        body = json.dumps(
            {
                "version": RECORD_VERSION,
                "batch": _identity(batch, self.key),
                "created_ms": self.now_ms(),
                "participants": payloads,
            },
            sort_keys=True,
            separators=(",", ":"),
        ).encode()
        reached("before-prepared", batch.batch_id)
        with self.io.new_output(self._path(batch)).create(overwrite=True) as stream:
            stream.write(_digest(body) + b"\n" + body)
        reached("after-prepared", batch.batch_id)

    def landed(self, batch: Batch) -> None:
        """Remove the record of the batch before this one, by its exact name; a failure only leaves a small file."""
        reached("after-commit", batch.batch_id)
        previous, self._last_landed = self._last_landed, self._path(batch)
        if previous is None or previous == self._last_landed:
            return
        try:
            self.io.delete(previous)
        except Exception as error:  # noqa: BLE001 # the batch has landed, whatever the store says of its record
            logger.debug("lakesink.prepared.kept path=%s error=%s", previous, type(error).__name__)

    def _path(self, batch: Batch) -> str:
        return f"{self.folder}/{batch.batch_id}-{batch.fingerprint}.json"

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            with self.io.new_input(path).open() as stream:
                digest, _, body = stream.read(MAX_RECORD_BYTES).partition(b"\n")
        except FileNotFoundError:
            return None
        if digest != _digest(body):
            logger.warning("lakesink.prepared.dropped reason=torn path=%s", path)
            return None
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return None
        return document if isinstance(document, dict) and document.get("version") == RECORD_VERSION else None


def _identity(batch: Batch, key: SinkKey) -> dict[str, Any]:
    return {
        "sink": key.name,
        "kind": key.kind.value,
        "branch": key.branch,
        "batch_id": batch.batch_id,
        "query_id": batch.query_id,
        "fingerprint": batch.fingerprint,
    }


def _snapshot_id(value: Any) -> int:
    if type(value) is not int or value not in SNAPSHOT_IDS:
        raise ValueError("not an id that lakesink gives")
    return value


def _is_payloads(participants: Any) -> TypeGuard[dict[str, dict[str, Any]]]:
    return isinstance(participants, dict) and all(isinstance(payload, dict) for payload in participants.values())


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
