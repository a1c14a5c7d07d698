"""What became of a prepared batch, in the words of the protocol, and which errors end its attempts. Pure."""

from dataclasses import dataclass, field

from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_protocol.errors import CommitUnresolved, LakesinkError
from lakesink_protocol.fence import Unseen, is_of_the_program
from lakesink_protocol.identity import Batch, SinkKey, SinkKind
from lakesink_protocol.outcome import Committed
from lakesink_protocol.row_changes import ChangeCounts

ENOUGH = 3
LONG_ENOUGH_MS = 30_000
_MAY_BE_REFUSALS = (500, 501)
_FAILED = "LAKESINK_CATALOG_FAILED"
TRANSIENT_CODES = frozenset(
    f"LAKESINK_{code}"
    for code in (
        "CATALOG_UNREACHABLE",
        "CATALOG_REJECTED",
        "CATALOG_FAILED",  # any exception of another library, also an error in its code
        "WAREHOUSE_UNWRITABLE",
        "STORAGE_REJECTED",
        "STORAGE_UNREACHABLE",
    )
)


@dataclass(slots=True)
class Repeated:
    """One answer to the requests of one commit, as often as it came in a row, while the table stayed as it was.

    A service may answer 500 or 501 to what it will never accept, such as a requirement that it does not know. An outage
    ends, or its words change; gateways and busy services answer 502, 503, 504 or 429, which prove nothing.

    Attributes:
        metadata_file: The table's metadata file, on which every one of these requests was built.
    """

    text: str = field(default="", init=False)
    metadata_file: str = field(default="", init=False)
    times: int = field(default=0, init=False)
    first_ms: int = field(default=0, init=False)
    last_ms: int = field(default=0, init=False)

    def heard(self, status: int | None, text: str, metadata_file: str, now_ms: int) -> None:
        """Count an answer with this status; None if there was no answer, or another one than an error."""
        if status not in _MAY_BE_REFUSALS:
            self.times = 0
            return
        if not self.times or (text, metadata_file) != (self.text, self.metadata_file):
            self.text, self.metadata_file, self.times, self.first_ms = text, metadata_file, 0, now_ms
        self.times, self.last_ms = self.times + 1, now_ms

    def is_refusal(self, metadata_file: str) -> bool:
        """True if another request is useless: the table, loaded after the last answer, has this metadata file."""
        lasted = self.times >= ENOUGH and self.last_ms - self.first_ms >= LONG_ENOUGH_MS
        return lasted and metadata_file == self.metadata_file

    def __str__(self) -> str:
        seconds = (self.last_ms - self.first_ms) // 1000
        return f"the catalog answered {self.times} times in {seconds} s, while the table stayed as it was: {self.text}"


def unresolved(key: SinkKey, batch: Batch, unseen: Unseen) -> CommitUnresolved:
    """The error for a batch that the table does not show."""
    return CommitUnresolved.of(
        "COMMIT_UNRESOLVED.version" if key.kind is SinkKind.TXN else "COMMIT_UNRESOLVED",
        batch_id=batch.batch_id,
        sink=key.name,
        attempts=unseen.attempts,
        first=unseen.action or "Make the catalog reachable",
        trouble=unseen.trouble.rstrip("."),
    )


def committed(
    prepared: PreparedBatch, attempt: int, changes: ChangeCounts | None = None, *, evolves: bool = True
) -> Committed:
    """The outcome of a batch whose own snapshot is in the table."""
    return Committed(
        snapshot_id=prepared.snapshot_id,
        rows=prepared.rows,
        files=len(prepared.files),
        bytes=sum(size for _, size in prepared.files),
        recovered=prepared.recovered,
        accepted=prepared.accepted or None,
        attempts=attempt,
        quality=prepared.quality,
        schema_change=prepared.schema_change.in_words if prepared.schema_change and evolves else "",
        changes=changes,
    )


def is_final(error: Exception) -> bool:
    """True for lakesink's own errors about a table, its configuration or rows; those of a service can be transient."""
    if not isinstance(error, LakesinkError):
        return False
    return error.code not in TRANSIENT_CODES or (error.code == _FAILED and is_of_the_program(error.__cause__))
