"""Maintains one branch of one table: looks at its files, rewrites groups of them, and commits each group by itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyiceberg.table import Table

from lakesink.keys.deleted_rows import KnownDeletes
from lakesink.upkeep.health import Health
from lakesink.upkeep.policy import Policy
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.manifests.live_reading import LiveMemory
from lakesink_protocol.identity import MAIN_BRANCH

NOTHING_DUE, BUDGET, TURN = "nothing is due", "budget", "turn"
"""Why a run ended: `TURN` if another maintenance has the table's turn."""


@dataclass(frozen=True, slots=True)
class LeftFile:
    """A file that is not rewritten though it is due.

    Attributes:
        reason: A stable code, a colon, and words: ``lost: another writer was quicker``.
    """

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class GroupDone:
    """One group of files that a snapshot replaced.

    Attributes:
        partition: The partition as text, ``day=2026-01-01``; empty for a table without partitions.
        rows: Rows of the new files.
        dropped: Deleted rows that are not written again.
        carried: Rows that were deleted while the group was rewritten, and are deleted in the new files too.
    """

    snapshot_id: int
    partition: str
    files: int
    into: int
    bytes_before: int
    bytes_after: int
    rows: int
    dropped: int
    carried: int
    seconds: float


@dataclass(frozen=True, slots=True)
class GroupDue:
    """One group of files that a run would rewrite."""

    partition: str
    files: int
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do.

    Attributes:
        groups: The worst first.
        expected: The health after all groups.
    """

    groups: tuple[GroupDue, ...]
    left: tuple[LeftFile, ...]
    health: Health
    expected: Health


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did.

    Attributes:
        ended: `NOTHING_DUE`, `BUDGET` or `TURN`.
    """

    before: Health
    after: Health
    groups: tuple[GroupDone, ...]
    left: tuple[LeftFile, ...]
    ended: str


@dataclass(slots=True)
class UpkeepMemory:
    """What maintenances of one branch remember from run to run.

    Attributes:
        live: Decoded manifests; a stream shares those of its sink.
        deletes: Delete files that were read; likewise.
        left: Reasons of files that are not tried again, by path.
    """

    live: LiveMemory = field(default_factory=LiveMemory)
    deletes: KnownDeletes = field(default_factory=KnownDeletes)
    left: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Maintenance:
    """The maintenance of one branch of one table.

    Attributes:
        says: What the summary of each snapshot says beside its counts.
    """

    load: Callable[[], Table]
    branch: str = MAIN_BRANCH
    policy: Policy = field(default_factory=Policy)
    effects: Effects = field(default_factory=Effects)
    memory: UpkeepMemory = field(default_factory=UpkeepMemory)
    says: Mapping[str, str] = field(default_factory=dict)

    def look(self) -> Plan:
        """What a run would do; writes nothing.

        Raises:
            CatalogError: The table cannot be loaded, or a manifest cannot be read.
            SettingsError: `where` is no condition on partitions.
        """
        raise NotImplementedError

    def run(self, progress: Callable[[GroupDone], None] = lambda _: None) -> Report:
        """Rewrite what is due, group by group, until the budget ends.

        A group that fails or loses a race is left, and the others go on. Raises as `look` does, before any change.
        """
        raise NotImplementedError
