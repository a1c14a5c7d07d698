"""What happened in a cell."""

from dataclasses import dataclass, field

from proof.oracle import Broken


@dataclass(slots=True)
class Story:
    """What happened in a cell.

    Attributes:
        struck: How the driver that was struck ended: a code, empty if it was killed, None if it ended well.
        restarts: The same for each driver after it.
        kills: Processes that got a SIGKILL.
        recovery_ms: From the SIGKILL to the next commit; None where there was no kill, or nothing left to commit.
        broken: What the oracle says.
        orphans: Data files that nothing references.
        reader_failures: What a polling reader met.
        trace: Lines of the drivers' traces.
        replay: The same of the processes that replay dead letters; None if there are none.
        refused: How a replay ended which nobody had told that rows are new.
    """

    struck: str | None = ""
    restarts: list[str | None] = field(default_factory=list)
    kills: int = 0
    recovery_ms: float | None = None
    broken: list[Broken] = field(default_factory=list)
    orphans: int = 0
    reader_failures: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    replay: "Story | None" = None
    refused: str | None = None
