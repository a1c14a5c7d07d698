"""One commit of the file sink: a small JSON object with the batch, its parts and its outcome. Pure.

A marker corresponds to a snapshot and its batch mark in a table, and the verdicts read it as such. It contains its own
digest and the digest of the marker before it, so any change, removal or insertion is detected.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakesink.sinks.directory.layout import Layout
from lakesink.sinks.directory.part_formats import FORMATS
from lakesink.sinks.directory.part_receipt import Part, is_part_name, part_stem
from lakesink_protocol.identity import BATCH_FACTS, NAME_PATTERN, Batch, SinkKey, digest
from lakesink_protocol.ledger import Mark

MARKER_VERSION = 1
MAX_MARKER_BYTES = 256 * 1024 * 1024
_TEXTS = (
    "lakesink", "sink_id", "directory_id", "query_id", "fingerprint", "end", "offsets", "outcome", "accepted",
    "commit_id", "previous", "committed_at", "format",
)  # fmt: skip
_COUNTS = ("number", "batch_id", "ledger_batch_id", "rows", "bytes")


class MarkerDamaged(ValueError):
    """A marker is torn, foreign, of a newer version, or does not follow the one before it."""


@dataclass(frozen=True, slots=True)
class Marker:
    """One commit.

    Attributes:
        number: Its position among the sink's commits, from 0; the name of its file.
        directory_id: Random id of the first commit here: another id means another history.
        ledger_batch_id: Batch that the ledger shows after this commit. It differs from the batch only if an operator
            accepted the replay of an old one.
        outcome: ``committed``, ``recovered`` or ``accepted``.
        accepted: The overruled refusal as the user spelled it; empty if none.
        commit_id: Random id of the prepare. It distinguishes this commit from another driver's of the same batch.
        previous: Digest of the marker before; empty for the first.
        committed_at: UTC time of the driver's clock, for information only.
        digest: Over all other fields.
    """

    number: int
    sink_id: str
    directory_id: str
    batch: Batch
    ledger_batch_id: int
    outcome: str
    accepted: str
    commit_id: str
    previous: str
    committed_at: str
    lakesink_version: str
    format: str
    parts: tuple[Part, ...]
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", digest(self._document()))

    @property
    def rows(self) -> int:
        """Rows in all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Size of all parts."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def snapshot_id(self) -> int:
        """The number, as the verdicts call it."""
        return self.number

    @property
    def parent_snapshot_id(self) -> int | None:
        """The number of the marker before."""
        return self.number - 1 if self.number else None

    @property
    def sequence_number(self) -> int:
        """From 1, as in a table."""
        return self.number + 1

    @property
    def summary(self) -> dict[str, str]:
        """The batch mark, as in a snapshot's summary."""
        batch = self.batch
        mark = Mark(
            key=SinkKey(self.sink_id),
            batch_id=batch.batch_id,
            query_id=batch.query_id,
            fingerprint=batch.fingerprint,
            end=batch.end,
            outcome=self.outcome,
            accepted=self.accepted,
            ledger_batch_id=self.ledger_batch_id,
        )
        return mark.to_summary()

    def to_bytes(self) -> bytes:
        """The content of the file."""
        document = self._document() | {"digest": self.digest}
        return json.dumps(document, separators=(",", ":")).encode() + b"\n"

    def _document(self) -> dict[str, Any]:
        batch, layout = self.batch, Layout("", self.sink_id)
        return {
            "version": MARKER_VERSION,
            "lakesink": self.lakesink_version,
            "sink_id": self.sink_id,
            "directory_id": self.directory_id,
            "number": self.number,
            "batch_id": batch.batch_id,
            "query_id": batch.query_id,
            "fingerprint": batch.fingerprint,
            "start": batch.start,
            "end": batch.end,
            "offsets": batch.offsets,
            "ledger_batch_id": self.ledger_batch_id,
            "outcome": self.outcome,
            "accepted": self.accepted,
            "commit_id": self.commit_id,
            "previous": self.previous,
            "committed_at": self.committed_at,
            "format": self.format,
            "rows": self.rows,
            "bytes": self.size_bytes,
            "parts": [
                {"path": layout.part_path(part.name), "rows": part.rows, "bytes": part.size_bytes}
                for part in self.parts
            ],
        }


def parse_marker(data: bytes, number: int, sink_id: str) -> Marker:
    """The marker in a file; raises MarkerDamaged unless it is a whole marker of this version, number and sink."""
    try:
        document = _document_in(data, number)
        told = document.pop("digest")
        _check_fields(document)
        marker = _marker(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, MarkerDamaged):
            raise
        raise MarkerDamaged(f"commit {number} is torn or foreign") from error
    if told != marker.digest or marker._document() != document:  # noqa: SLF001 - its own module
        raise MarkerDamaged(f"commit {number} is not what was written")
    if (marker.number, marker.sink_id) != (number, sink_id):
        raise MarkerDamaged(f"commit {number} belongs elsewhere")
    return marker


def _document_in(data: bytes, number: int) -> dict[str, Any]:
    if len(data) > MAX_MARKER_BYTES:
        raise MarkerDamaged(f"commit {number} is larger than {MAX_MARKER_BYTES} bytes")
    document: dict[str, Any] = json.loads(data, object_pairs_hook=_each_once)
    version = document["version"]
    if type(version) is not int or version != MARKER_VERSION:
        raise MarkerDamaged(f"commit {number} is of version {str(version)[:20]!r}")
    return document


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object without duplicate keys: Python takes the last of two equal keys, others may take the first."""
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a field is there twice")
    return document


def _check_fields(document: Mapping[str, Any]) -> None:
    texts = all(isinstance(document[name], str) for name in _TEXTS)
    counts = all(type(document[name]) is int and 0 <= document[name] < 2**63 for name in _COUNTS)
    start = document["start"] is None or isinstance(document["start"], str)
    known = document["format"] in FORMATS and NAME_PATTERN.fullmatch(document["sink_id"]) is not None
    if not (texts and counts and start and known):
        raise ValueError("a field has the wrong type")


def _marker(document: Mapping[str, Any]) -> Marker:
    batch = Batch(**{name: document[name] for name in BATCH_FACTS})
    stem = part_stem(document["sink_id"], batch.batch_id)
    parts = tuple(_part(part, stem) for part in document["parts"])
    if len({part.name for part in parts}) != len(parts):
        raise ValueError("a part is there twice")
    return Marker(
        number=document["number"],
        sink_id=document["sink_id"],
        directory_id=document["directory_id"],
        batch=batch,
        ledger_batch_id=document["ledger_batch_id"],
        outcome=document["outcome"],
        accepted=document["accepted"],
        commit_id=document["commit_id"],
        previous=document["previous"],
        committed_at=document["committed_at"],
        lakesink_version=document["lakesink"],
        format=document["format"],
        parts=parts,
    )


def _part(document: Any, stem: str) -> Part:
    name, rows, size = document["path"].rpartition("/")[2], document["rows"], document["bytes"]
    if not is_part_name(name, stem) or not all(type(count) is int and 0 <= count < 2**63 for count in (rows, size)):
        raise ValueError("not a part")
    return Part(name, rows, size)
