"""The prepared record of a batch: how to find, write and remove it in any storage.

Each batch has one small JSON file that contains its own digest, so that a torn write counts as absent. If a record is
absent, the batch is written again. Subclasses store the bytes.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from lakesink_protocol import events
from lakesink_protocol.identity import Batch
from lakesink_protocol.redact import redact

RECORD_VERSION = 4
_FINGERPRINT = re.compile(r"[A-Za-z0-9]{1,64}")
MAX_RECORD_BYTES = 256 * 1024 * 1024

Payloads = Mapping[str, Mapping[str, Any]]


class PreparedRecords(ABC):
    """Prepared records of one sink, in a folder of its own; implements the coordinator's `PreparedLog`.

    Records older than `max_age_ms` are dropped: an orphan cleanup may have removed their files.
    """

    folder: str
    max_age_ms: int
    now_ms: Callable[[], int]
    emit: events.Listener
    _last_landed: str | None

    def find(self, batch: Batch) -> dict[str, dict[str, Any]] | None:
        """Payloads by participant in the record of exactly this batch, if the record is complete and young enough."""
        path = self._path(batch.batch_id, batch.fingerprint)
        data = self._read(path)
        if data is None:
            return None
        body = parse_record(data)
        if body is None:
            self.emit(events.PreparedDropped("torn", path=redact(path)))
        if body is None or body.get("batch") != self._identity(batch):
            return None
        created_ms, participants = body.get("created_ms"), body.get("participants")
        sound = isinstance(participants, dict) and all(isinstance(one, dict) for one in participants.values())
        if type(created_ms) is not int or not sound:
            self.emit(events.PreparedDropped("malformed", batch.batch_id))
            return None
        age_ms = self.now_ms() - created_ms
        if not 0 <= age_ms <= self.max_age_ms:
            self.emit(events.PreparedDropped("age", batch.batch_id, age_ms // 1000))
            return None
        return participants

    def put(self, batch: Batch, payloads: Payloads) -> None:
        """Write the record in one file. An incomplete file does not match its digest and counts as absent."""
        body = json.dumps(
            {
                "version": RECORD_VERSION,
                "batch": self._identity(batch),
                "created_ms": self.now_ms(),
                "participants": payloads,
            },
            separators=(",", ":"),
        ).encode()
        self.emit(events.RecordDue(batch.batch_id))
        self._write(self._path(batch.batch_id, batch.fingerprint), _digest(body) + b"\n" + body)
        self.emit(events.RecordStored(batch.batch_id))

    def follow(self, batch_id: int, fingerprint: str) -> None:
        """Name the batch that landed before this log was opened: its record is removed when the next batch has landed.

        An earlier run wrote that record, so only its name is known. Without this call, each start would leave a record
        behind. The fingerprint comes from the table and is not trusted: it must not lead to another file.
        """
        if _FINGERPRINT.fullmatch(fingerprint):
            self._last_landed = self._last_landed or self._path(batch_id, fingerprint)

    def before(self) -> dict[str, Any] | None:
        """The record that the next `landed` removes, untrusted; None if there is none that can be read."""
        data = None if self._last_landed is None else self._read(self._last_landed)
        return None if data is None else parse_record(data)

    def landed(self, batch: Batch) -> None:
        """Remove the record of the batch before this one, by its exact name; a failure only leaves a small file."""
        self.emit(events.BatchLanded(batch.batch_id))
        previous, self._last_landed = self._last_landed, self._path(batch.batch_id, batch.fingerprint)
        if previous is None or previous == self._last_landed:
            return
        try:
            self._remove(previous)
        except Exception as error:  # noqa: BLE001 # the batch has landed; a record that stays does no harm
            self.emit(events.RecordKept(redact(previous), type(error).__name__))

    @abstractmethod
    def _identity(self, batch: Batch) -> dict[str, Any]:
        """Identity of the batch and its sink, as the record contains it."""

    @abstractmethod
    def _read(self, path: str) -> bytes | None:
        """At most `MAX_RECORD_BYTES` of a file; None if it is not there."""

    @abstractmethod
    def _write(self, path: str, data: bytes) -> None:
        """Create or replace a file."""

    @abstractmethod
    def _remove(self, path: str) -> None:
        """Remove one file."""

    def _path(self, batch_id: int, fingerprint: str) -> str:
        return f"{self.folder}/{batch_id}-{fingerprint}.json"


def parse_record(data: bytes) -> dict[str, Any] | None:
    """The document in a record's file; None if it is torn, malformed, or of another version."""
    digest, _, body = data.partition(b"\n")
    if digest != _digest(body):
        return None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    version = document.get("version") if isinstance(document, dict) else None
    return document if type(version) is int and version == RECORD_VERSION else None


def batch_identity(batch: Batch) -> dict[str, Any]:
    """The part of a record's identity that every sink has."""
    return {"batch_id": batch.batch_id, "query_id": batch.query_id, "fingerprint": batch.fingerprint}


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
