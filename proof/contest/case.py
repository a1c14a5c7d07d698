"""What a case is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proof.contest.target import BranchBy

if TYPE_CHECKING:
    from proof.contest.play import Player

INTO_TABLES = ("append", "marker", "iceberg", "lakesink")
Step = Callable[["Player"], None]


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        name: Short, for the command line.
        title: For the table.
        story: What happens, in words.
        steps: What happens.
        sinks: Names of those who have what the case is about.
        rows: Of a file of the source.
        replays: Whether the source can give a batch again.
        watched: True if a reader looks at the target all the while, and the sink is judged by its promise.
        branch: Branch that the rows are to be on.
        branch_by: How the sink is told.
        wap_id: `spark.wap.id` of the session; empty for none.
        needs_rest: True if the catalog is a REST server behind a proxy; else it is a SQLite file.
        refusals: Codes of lakesink that the protocol names for the case.
    """

    name: str
    title: str
    story: str
    steps: tuple[Step, ...]
    sinks: tuple[str, ...] = INTO_TABLES
    rows: int = 100
    replays: bool = True
    watched: bool = False
    branch: str = "main"
    branch_by: BranchBy = "option"
    wap_id: str = ""
    needs_rest: bool = False
    refusals: tuple[str, ...] = ()
