"""Sink keys and batches: pure values, no I/O.

A *sink key* names one stream into one table and branch, for the stream's whole life. A *batch* is what Spark asks
lakesink to write: its id, its query, and a fingerprint of the offsets that it reads. A batch that is replayed with
other data has another fingerprint.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any
from urllib.parse import quote

MAIN_BRANCH = "main"
LEDGER_PREFIX = "lakesink.ledger."
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class SinkKind(Enum):
    """The batch ids of a stream grow by one; the versions of a transaction application only increase."""

    STREAM = "stream"
    TXN = "txn"


@dataclass(frozen=True, slots=True)
class SinkKey:
    """Names one writer into one branch of one table.

    Attributes:
        name: Sink id, or application id of `append`; matches `NAME_PATTERN`.
        branch: Target branch of the table.
        kind: Stream or transaction application; the two never share a ledger.
    """

    name: str
    branch: str = MAIN_BRANCH
    kind: SinkKind = SinkKind.STREAM

    @property
    def label(self) -> str:
        """The sink as people see it: a stream and an application can have one name."""
        return self.name if self.kind is SinkKind.STREAM else f"{self.name} (txn)"

    @property
    def ledger_property(self) -> str:
        """Table property that holds this sink's ledger entry."""
        suffix = "" if self.branch == MAIN_BRANCH else f"@{self.branch}"
        return f"{LEDGER_PREFIX}{self.kind.value}.{self.name}{suffix}"

    @property
    def ledger_tag(self) -> str:
        """Tag at the sink's newest snapshot. A stream and a transaction application never have the same tag."""
        stem = f"lakesink-{self.name}" if self.kind is SinkKind.STREAM else f"lakesink.txn-{self.name}"
        return stem if self.branch == MAIN_BRANCH else f"{stem}@{escape(self.branch)}"

    @property
    def audit_tag_prefix(self) -> str:
        """Start of the names of this sink's audit tags; it contains a slash, which no ledger tag contains."""
        return f"{self.ledger_tag}/batch-"

    def audit_tag(self, batch_id: int) -> str:
        """Tag that stays at the snapshot of one batch."""
        return f"{self.audit_tag_prefix}{batch_id}"

    @property
    def record_folder(self) -> str:
        """Folder of prepared records, relative to the table's metadata location."""
        stem = self.name if self.kind is SinkKind.STREAM else f"_txn-{self.name}"
        return f"lakesink/{stem}/{escape(self.branch)}"


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch, or one version of a transaction application.

    Attributes:
        batch_id: Spark's batch id, or the version.
        query_id: Id in the checkpoint's ``metadata``; empty for a transaction application.
        fingerprint: Digest of everything that the batch reads (see `stream_batch`).
        start: Digest of the start offsets; None if the source does not report them.
        end: Digest of the end offsets; a transaction application may tell its readers something else.
        offsets: The end offsets as JSON, for operators; empty if unknown.
        missing_inputs: Input files that are missing. Not part of the identity, because they may come back.
    """

    batch_id: int
    query_id: str
    fingerprint: str
    start: str | None
    end: str
    offsets: str = ""
    missing_inputs: tuple[str, ...] = field(default=(), compare=False, repr=False)


NO_BATCH = Batch(0, "", "", start=None, end="")
"""Placeholder to read the state of a sink without a batch."""
BATCH_FACTS = tuple(found.name for found in fields(Batch) if found.compare)
"""The fields that identify a batch and are stored."""


def escape(text: str) -> str:
    """A name as one path segment and as part of a ref: percent-encoded, never ``.`` or ``..``."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if set(quoted) == {"."} else quoted


def canonical(value: Any) -> str:
    """The JSON of a value in ASCII: equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest(value: Any) -> str:
    """32 hex digits over the canonical JSON of a value: equal values have equal digests."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:32]


def stream_batch(
    batch_id: int,
    query_id: str,
    *,
    start: Sequence[Any] | Mapping[str, Any] | None,
    end: Sequence[Any] | Mapping[str, Any],
    source_log: Sequence[str] = (),
) -> Batch:
    """A batch of a stream, with its fingerprint.

    The offsets are parsed, one per source, in order or by name; `start` is None if unknown. `source_log` is the batch's
    input according to the sources' own logs (the files of a file source).
    """
    return Batch(
        batch_id=batch_id,
        query_id=query_id,
        fingerprint=digest({"start": start, "end": end, "log": list(source_log)}),
        start=None if start is None else digest(start),
        end=digest(end),
        offsets=canonical(end if isinstance(end, Mapping) else list(end)),
    )


def transaction_batch(version: int, end: str = "") -> Batch:
    """One version of a transaction application: it has no offsets, so the version alone identifies it."""
    return Batch(version, query_id="", fingerprint=digest({"version": version}), start=None, end=end)
