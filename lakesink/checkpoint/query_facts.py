"""The guarantee of a query by its sources, and facts about it in its checkpoint folder, for `doctor --query`.

The facts contain names and flags, never secrets or values of options. No stream depends on them. Pure, without Spark:
the command line reads them too.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any

QUERY_FACTS = "lakesink/query.json"
"""Location below the checkpoint."""
QUERY_FACTS_VERSION = 1
MOST_BYTES = 64 * 1024
"""A larger file was not written by lakesink."""
LONGEST_NAME = 100
MOST_NAMES = 20
_ATOMIC_SCHEMES = frozenset({"file", "hdfs", "viewfs", "webhdfs", "swebhdfs", "abfs", "abfss"})
_ATOMIC_MANAGER = "AbortableStreamBasedCheckpointFileManager"


class Replay(Enum):
    """A source's ability to replay a batch after a failure; the value describes the guarantee."""

    YES = "exactly once"
    MAY_LOSE = "exactly once for what the source still has; it may skip what it lost (failOnDataLoss=false)"
    UNKNOWN = "exactly once if the source gives the same rows for the same offsets"
    NO = "at most once: the source cannot give a batch again"


@dataclass(frozen=True, slots=True)
class Source:
    """One streaming source of a query.

    Attributes:
        name: Spark's name without options, which may contain secrets.
        uncommitted: True if it also returns records of aborted Kafka transactions.
        lenient: True if it gives NULL for a text that it cannot read, or leaves the row out, without a word.
    """

    name: str
    replay: Replay
    uncommitted: bool = False
    lenient: bool = False


def guarantee(sources: Sequence[Source]) -> Replay:
    """The guarantee of the weakest source."""
    order = list(Replay)
    return max((source.replay for source in sources), key=order.index, default=Replay.UNKNOWN)


def replay_of(name: str, fail_on_data_loss: str | None) -> Replay:
    """A source's ability to replay, by Spark's name for the source: ``kafka``, ``rate``, ``FileSource[/in]``, ..."""
    kind = name.partition("[")[0].lower()
    if kind == "kafka":
        return Replay.MAY_LOSE if (fail_on_data_loss or "").strip().lower() == "false" else Replay.YES
    if kind in {"filesource", "rate", "rate-micro-batch", "deltasource", "lakesink"}:
        return Replay.YES
    return Replay.NO if kind in {"socket", "textsocket"} else Replay.UNKNOWN


def gives_uncommitted(name: str, isolation_level: str | None) -> bool:
    """True for a Kafka source without ``read_committed``: by default, Kafka also returns uncommitted records."""
    return name.lower() == "kafka" and (isolation_level or "").strip().lower() != "read_committed"


def is_lenient(file_format: str, mode: str | None, *, keeps_corrupt: bool) -> bool:
    """True for a format of texts that neither stops at one that it cannot read nor keeps it in a column."""
    stops = (mode or "").strip().lower() == "failfast"
    return file_format.lower() in {"json", "csv", "xml"} and not stops and not keeps_corrupt


@dataclass(frozen=True, slots=True)
class Functions:
    """Non-deterministic functions (`unstable`), and Python functions that Spark takes for deterministic (`trusted`)."""

    unstable: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """Facts about one start of a query; `file_manager` is the configured checkpoint class, empty for the default."""

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
        """True if the checkpoint's storage is known to create each file atomically and only once."""
        return is_atomic(self.scheme, self.file_manager)

    def to_bytes(self) -> bytes:
        """The facts as a JSON document."""
        document = asdict(self)
        document["sources"] = [{**asdict(source), "replay": source.replay.name} for source in self.sources]
        return json.dumps({"version": QUERY_FACTS_VERSION, **document}, indent=1).encode()


_PLAIN = {field.name: field.type for field in fields(QueryFacts) if field.type in (str, bool)}


def is_atomic(scheme: str, file_manager: str = "") -> bool:
    """True if Spark is known to create checkpoint files atomically and only once; `file_manager` is a class name."""
    return scheme in _ATOMIC_SCHEMES or file_manager == _ATOMIC_MANAGER


def parse_query_facts(data: bytes) -> QueryFacts:
    """Parse the result of `QueryFacts.to_bytes`; raises ValueError for other content or another version."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"they are larger than {MOST_BYTES} bytes")
    try:
        document: dict[str, Any] = json.loads(data)
        version = document.pop("version")
        if version != QUERY_FACTS_VERSION:
            raise ValueError(f"they are of version {version!r}, this lakesink reads {QUERY_FACTS_VERSION}")
        sources = tuple(
            Source(str(one["name"]), Replay[one["replay"]], one["uncommitted"] is True, one["lenient"] is True)
            for one in document.pop("sources")
        )
        functions = {
            kind: tuple(str(name)[:LONGEST_NAME] for name in names)[:MOST_NAMES]
            for kind, names in document.pop("functions").items()
        }
        facts = QueryFacts(**document, sources=sources, functions=Functions(**functions))
        if not all(isinstance(getattr(facts, name), kind) for name, kind in _PLAIN.items()):
            raise ValueError("they contain a value of a wrong type")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"they are damaged: {type(error).__name__}") from None
    return facts
