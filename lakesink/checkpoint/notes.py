"""What only a running query knows about its guarantee, kept beside its checkpoint for those who look later.

The notes are data without secrets: names and flags, never a value of an option. Nothing that a stream does depends on
them. Pure, and without Spark: the command line reads them too.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from lakesink.checkpoint.sources import Replay, Source

NOTES = "lakesink/query.json"
"""Where they lie, below the checkpoint."""
NOTES_VERSION = 1
MOST_BYTES = 64 * 1024
"""A larger file is not one of ours."""
LONGEST_NAME = 100
MOST_NAMES = 20
_ATOMIC_SCHEMES = frozenset({"file", "hdfs", "viewfs", "webhdfs", "swebhdfs", "abfs", "abfss"})
_ATOMIC_MANAGER = "AbortableStreamBasedCheckpointFileManager"


@dataclass(frozen=True, slots=True)
class Functions:
    """What of a query need not give the same again.

    Attributes:
        unstable: Names of expressions and functions of which Spark knows that they do not: ``rand``, ``uuid``, ...
        trusted: Names of Python functions of which Spark takes for granted that they do.
    """

    unstable: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryNotes:
    """One start of a query.

    Attributes:
        lakesink: Version that started it.
        query_id: Its id.
        sink: Sink id.
        table: Table identifier, or the sink's name.
        sources: What it reads.
        functions: What it computes with.
        output_mode: Of the query.
        speculation: True if Spark starts slow tasks a second time.
        scheme: Of the checkpoint's location.
        file_manager: Name of the class that Spark was told to write the checkpoint with; empty for its own choice.
    """

    lakesink: str
    query_id: str
    sink: str
    table: str
    sources: tuple[Source, ...]
    functions: Functions
    output_mode: str
    speculation: bool
    scheme: str
    file_manager: str

    @property
    def creates_atomically(self) -> bool:
        """True if the checkpoint's storage is known to make a file whole, and only once, as Spark writes it."""
        return is_atomic(self.scheme, self.file_manager)

    def to_bytes(self) -> bytes:
        """As a document."""
        told = asdict(self)
        told["sources"] = [{**asdict(source), "replay": source.replay.name} for source in self.sources]
        return json.dumps({"version": NOTES_VERSION, **told}, indent=1).encode()


def is_atomic(scheme: str, file_manager: str = "") -> bool:
    """True if Spark creates a file of a checkpoint whole and only once, as far as is known.

    Args:
        scheme: Of the checkpoint's location.
        file_manager: Name of the class that Spark was told to use.
    """
    return scheme in _ATOMIC_SCHEMES or file_manager == _ATOMIC_MANAGER


def parse_notes(data: bytes) -> QueryNotes:
    """What `QueryNotes.to_bytes` wrote, or anything else that lies there.

    Raises:
        ValueError: They are no notes, or of another version.
    """
    if len(data) > MOST_BYTES:
        raise ValueError(f"they are larger than {MOST_BYTES} bytes")
    try:
        told: dict[str, Any] = json.loads(data)
        version = told.pop("version")
        if version != NOTES_VERSION:
            raise ValueError(f"they are of version {version!r}, this lakesink reads {NOTES_VERSION}")
        sources = tuple(_source(source) for source in told.pop("sources"))
        functions = {name: _named(names) for name, names in told.pop("functions").items()}
        notes = QueryNotes(**told, sources=sources, functions=Functions(**functions))
        if not isinstance(notes.speculation, bool) or not all(isinstance(text, str) for text in _texts(notes)):
            raise ValueError("they hold a value of another kind")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"they are damaged: {type(error).__name__}") from None
    return notes


def _source(told: dict[str, Any]) -> Source:
    return Source(str(told["name"]), Replay[told["replay"]], told["uncommitted"] is True)


def _named(names: Iterable[Any]) -> tuple[str, ...]:
    return tuple(str(name)[:LONGEST_NAME] for name in names)[:MOST_NAMES]


def _texts(notes: QueryNotes) -> tuple[str, ...]:
    return (
        notes.lakesink,
        notes.query_id,
        notes.sink,
        notes.table,
        notes.output_mode,
        notes.scheme,
        notes.file_manager,
    )
