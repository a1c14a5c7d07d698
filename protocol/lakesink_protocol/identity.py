"""Who writes, and what a batch is: pure values, no I/O.

A *sink key* names one stream into one table and branch for life. A *batch* is what Spark asks us to write: its id,
the query it belongs to, and a fingerprint of the offsets that it reads, so that a batch that comes back with other data
is seen.
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
    """A stream counts batches one by one; a transaction application only promises growing versions."""

    STREAM = "stream"
    TXN = "txn"


@dataclass(frozen=True, slots=True)
class SinkKey:
    """Names one writer into one branch of one table.

    Attributes:
        name: Sink id, or application id of `append`; matches `NAME_PATTERN`.
        branch: Branch of the table that is written.
        kind: Stream or transaction application; the two never share a ledger.
    """

    name: str
    branch: str = MAIN_BRANCH
    kind: SinkKind = SinkKind.STREAM

    @property
    def ledger_property(self) -> str:
        """Table property that holds this sink's ledger entry."""
        suffix = "" if self.branch == MAIN_BRANCH else f"@{self.branch}"
        return f"{LEDGER_PREFIX}{self.kind.value}.{self.name}{suffix}"

    @property
    def ledger_tag(self) -> str:
        """Tag at the sink's newest snapshot. No name of a stream can spell that of a transaction application."""
        stem = f"lakesink-{self.name}" if self.kind is SinkKind.STREAM else f"lakesink.txn-{self.name}"
        return stem if self.branch == MAIN_BRANCH else f"{stem}@{escape(self.branch)}"

    @property
    def audit_tag_prefix(self) -> str:
        """How the names of this sink's audit tags begin: with a slash, which is in no ledger tag."""
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
        fingerprint: Digest of all that the batch reads (see `fingerprint`).
        start: Digest of the offsets it starts at; None where the source does not tell.
        end: Digest of the offsets it ends at; empty for a transaction application.
        offsets: The end offsets as JSON, for people; empty if unknown.
        missing_inputs: Files that it reads and that are not there. No part of what the batch is: they may come back.
    """

    batch_id: int
    query_id: str
    fingerprint: str
    start: str | None
    end: str
    offsets: str = ""
    missing_inputs: tuple[str, ...] = field(default=(), compare=False, repr=False)


NO_BATCH = Batch(0, "", "", start=None, end="")
"""Stands in where a table is asked about a sink, whatever batch comes next."""
BATCH_FACTS = tuple(found.name for found in fields(Batch) if found.compare)
"""What a batch is, and what is stored of it."""


def escape(text: str) -> str:
    """A name as one path segment and as part of a ref: percent-encoded, never ``.`` or ``..``."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if set(quoted) == {"."} else quoted


def digest(value: Any) -> str:
    """32 hex digits over the canonical JSON of a value: equal for equal parsed values, whatever their spelling."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def stream_batch(
    batch_id: int,
    query_id: str,
    *,
    start: Sequence[Any] | Mapping[str, Any] | None,
    end: Sequence[Any] | Mapping[str, Any],
    source_log: Sequence[str] = (),
) -> Batch:
    """A batch of a stream, with its fingerprint.

    Args:
        batch_id: Spark's batch id.
        query_id: Id in the checkpoint's ``metadata``.
        start: Parsed start offset of every source, in their order or by their names, or None if unknown.
        end: Parsed end offset of every source.
        source_log: What the sources' own logs say the batch reads (the files of a file source).
    """
    return Batch(
        batch_id=batch_id,
        query_id=query_id,
        fingerprint=digest({"start": start, "end": end, "log": list(source_log)}),
        start=None if start is None else digest(start),
        end=digest(end),
        offsets=json.dumps(end if isinstance(end, Mapping) else list(end), sort_keys=True, separators=(",", ":")),
    )


def transaction_batch(version: int) -> Batch:
    """One version of a transaction application: it has no offsets, so its identity is the version alone."""
    return Batch(version, query_id="", fingerprint=digest({"version": version}), start=None, end="")
