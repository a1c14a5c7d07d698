"""Keeps prepared records in any folder, for the file sink and for custom sinks."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from lakesink.settings.settings import PREPARED_MAX_AGE
from lakesink.sinks.storage import Storage, open_storage
from lakesink_catalog.commit.record import PreparedRecords, batch_identity
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.events import Listener
from lakesink_protocol.identity import Batch

__all__ = ["PreparedDirectory"]


@dataclass(slots=True)
class PreparedDirectory(PreparedRecords):
    """A `lakesink_protocol.two_phase.PreparedLog` that stores one small file for each batch.

    A reader sees a complete record or none. Records are removed by exact name only.

    Attributes:
        folder: Folder of the records, a path or a URI of fsspec. Use one folder for each sink.
        max_age: Age limit of a usable record. An orphan cleanup may have removed an older record's files.
        now_ms: Wall clock, milliseconds since the epoch.
        storage: The folder's storage. None opens it at first use, by the folder's scheme.
    """

    folder: str
    max_age: timedelta = PREPARED_MAX_AGE
    now_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)
    storage: Storage | None = None
    emit: Listener = LISTENERS  # not public: lakesink's own sinks pass theirs
    _last_landed: str | None = field(default=None, init=False)

    @property
    def max_age_ms(self) -> int:  # type: ignore[override] # computed, read-only
        """`max_age` in milliseconds."""
        return int(self.max_age.total_seconds() * 1000)

    def _identity(self, batch: Batch) -> dict[str, Any]:
        return batch_identity(batch)

    def _read(self, path: str) -> bytes | None:
        return self._opened().read(path)

    def _write(self, path: str, data: bytes) -> None:
        self._opened().replace(path, data)

    def _remove(self, path: str) -> None:
        self._opened().remove(path)

    def _opened(self) -> Storage:
        if self.storage is None:
            self.storage = open_storage(self.folder)
        return self.storage
