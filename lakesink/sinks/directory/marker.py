"""One commit of the file sink: a small JSON object with the batch, its parts and its outcome. Pure.

A marker corresponds to a table's snapshot with its batch mark, and the verdict uses it in the same way. It contains its
own digest and the digest of the marker before it, so any change, removal or insertion is detected.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakesink.sinks.directory.layout import FOLDER
from lakesink.sinks.staged.ledger import StagedCommit
from lakesink.sinks.staged.part_receipt import Part, check_batch, part_stem, parts_from_json
from lakesink_protocol.identity import BATCH_FACTS, NAME_PATTERN, Batch, digest
from lakesink_protocol.ledger import each_once

MARKER_VERSION = 1
FORMAT = "parquet"
HIGH_WATER_VERSION = 1
MAX_MARKER_BYTES = 256 * 1024 * 1024
_FIELDS = (
    "sink_id", "directory_id", "number", *BATCH_FACTS, "ledger_batch_id", "outcome", "accepted", "commit_id",
    "previous", "committed_at",
)  # fmt: skip
"""Fields with the same name in `Marker` and in its file, in the order of the file."""
_COUNTS = ("number", "batch_id", "ledger_batch_id", "rows", "bytes")
_TEXTS = {"lakesink", *_FIELDS} - {"start", *_COUNTS}


class MarkerDamaged(ValueError):
    """A marker is incomplete, not from this sink, of a newer version, or does not follow the marker before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker(StagedCommit):
    """One commit; the number is the name of its file.

    Attributes:
        directory_id: Random id from the first commit in this directory: another id means another history.
        ledger_batch_id: Batch that the ledger shows after this commit. It differs from the batch only if an operator
            accepted the replay of an old one.
        previous: Digest of the marker before; empty for the first.
        digest: Digest of all other fields.
    """

    directory_id: str
    ledger_batch_id: int
    previous: str
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
    def identity(self) -> str:
        """The digest: the next marker has it as its `previous`."""
        return self.digest

    @property
    def parent_snapshot_id(self) -> int | None:
        """The number of the marker before."""
        return self.number - 1 if self.number else None

    @property
    def shown_batch_id(self) -> int:
        """See `StagedCommit.shown_batch_id`."""
        return self.ledger_batch_id

    def to_bytes(self) -> bytes:
        """The content of the file."""
        return _line(self._document() | {"digest": self.digest})

    def _document(self) -> dict[str, Any]:
        folder = f"{FOLDER}/{self.sink_id}/parts"
        return {
            "version": MARKER_VERSION,
            "lakesink": self.lakesink,
            **{name: getattr(self.batch if name in BATCH_FACTS else self, name) for name in _FIELDS},
            "format": FORMAT,
            "rows": self.rows,
            "bytes": self.size_bytes,
            "parts": [
                {"path": f"{folder}/{part.name}", "rows": part.rows, "bytes": part.size_bytes} for part in self.parts
            ],
        }


def parse_marker(data: bytes, number: int, sink_id: str) -> Marker:
    """The marker in a file; raises MarkerDamaged unless it is a complete marker of this version, number and sink."""
    try:
        document = _document_in(data, number)
        recorded = document.pop("digest")
        marker = _marker(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, MarkerDamaged):
            raise
        raise MarkerDamaged(f"commit {number} is incomplete or not from lakesink") from error
    if recorded != marker.digest or marker._document() != document:  # noqa: SLF001 - its own module
        raise MarkerDamaged(f"commit {number} was changed after it was written")
    if (marker.number, marker.sink_id) != (number, sink_id):
        raise MarkerDamaged(f"commit {number} has the content of another number or sink")
    return marker


def _document_in(data: bytes, number: int) -> dict[str, Any]:
    if len(data) > MAX_MARKER_BYTES:
        raise MarkerDamaged(f"commit {number} is larger than {MAX_MARKER_BYTES} bytes")
    document: dict[str, Any] = json.loads(data, object_pairs_hook=each_once)
    version = document["version"]
    if type(version) is not int or version != MARKER_VERSION:
        raise MarkerDamaged(f"commit {number} is of version {str(version)[:20]!r}")
    return document


def _marker(document: Mapping[str, Any]) -> Marker:
    texts = all(isinstance(document[name], str) for name in _TEXTS)
    counts = all(_is_count(document[name]) for name in _COUNTS)
    start = document["start"] is None or isinstance(document["start"], str)
    known = document["format"] == FORMAT and NAME_PATTERN.fullmatch(document["sink_id"]) is not None
    if not (texts and counts and start and known):
        raise ValueError("a field has the wrong type")
    batch = Batch(**{name: document[name] for name in BATCH_FACTS})
    stem = part_stem(document["sink_id"], batch.batch_id)
    named = [[part["path"].rpartition("/")[2], part["rows"], part["bytes"]] for part in document["parts"]]
    parts = parts_from_json(named, stem)
    check_batch(parts)
    own = {name: document[name] for name in _FIELDS if name not in BATCH_FACTS}
    return Marker(**own, batch=batch, lakesink=document["lakesink"], parts=parts)


@dataclass(frozen=True, slots=True)
class HighWater:
    """Number and total size of a sink's first markers, in a small file that reveals a lost or truncated marker.

    The file is written after the marker, so it may count too few markers, but never too many. If it is missing or
    unreadable, a start reads every marker once.
    """

    count: int
    size_bytes: int

    def to_bytes(self) -> bytes:
        """The content of the file."""
        return _line({"version": HIGH_WATER_VERSION, **asdict(self)})


def parse_high_water(data: bytes | None) -> HighWater | None:
    """The high water in a file; None if it is missing, incomplete, or of another version."""
    try:
        document = json.loads(data or b"")
        version, count, size_bytes = (document[name] for name in ("version", "count", "size_bytes"))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    known = version == HIGH_WATER_VERSION and _is_count(count) and _is_count(size_bytes)
    return HighWater(count, size_bytes) if known else None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
