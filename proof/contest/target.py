"""Where a stream goes, and what a reader sees there."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from proof.oracle import Key, Rows

BranchBy = Literal["option", "session", "toTable", "path"]
"""How a sink is told its branch: an option, `spark.wap.branch`, or the table's name, which is given to either."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a stream goes.

    Attributes:
        root: Folder of all that the stream has.
        catalog: Its name, in Spark and in PyIceberg.
        properties: Of the catalog, as PyIceberg takes them.
        table: Identifier in the catalog.
        branch: Branch.
        branch_by: How the sink is told, if it is not ``main``.
    """

    root: str
    catalog: str
    properties: Mapping[str, str]
    table: str
    branch: str = "main"
    branch_by: BranchBy = "option"

    @property
    def folder(self) -> Path:
        """All that the stream has; its name is the stream's."""
        return Path(self.root)

    @property
    def checkpoint(self) -> str:
        """Of the stream."""
        return f"{self.root}/checkpoint"


@dataclass(frozen=True, slots=True)
class View:
    """What a reader sees at one moment.

    Attributes:
        rows: Every row that it finds, as often as it finds it.
        newest: Number of the newest reading, by device.
    """

    rows: Rows
    newest: Mapping[int, int]


def seen(rows: Iterable[Key]) -> View:
    """What a reader makes of the rows that it finds."""
    found = Counter(rows)
    newest: dict[int, int] = {}
    for device, reading in found:
        newest[device] = max(reading, newest.get(device, reading))
    return View(found, newest)
