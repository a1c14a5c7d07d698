"""What a maintenance would do, and what it did. Pure."""

from dataclasses import dataclass, replace

from lakesink.sinks.iceberg.upkeep.choose import Group, sizes
from lakesink.sinks.iceberg.upkeep.health import SMALL, Health, is_small

NOTHING_DUE, BUDGET, TURN, REST, FAILED = "nothing is due", "budget", "turn", "rest", "an error"
"""Why a run ended: `TURN` if another maintenance is at work on the table, `REST` if a stream's last runs failed."""


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
        ended: `NOTHING_DUE`, `BUDGET`, `TURN`, `REST`, or `FAILED`: `after` is an estimate, and the error in `left`.
    """

    before: Health
    after: Health
    groups: tuple[GroupDone, ...]
    left: tuple[LeftFile, ...]
    ended: str


def after(health: Health, group: Group, target_bytes: int) -> Health:
    """The health when a group was replaced, about."""
    new = sizes(group.live_bytes, target_bytes)
    small = sum(size < SMALL * target_bytes for size in new)
    return replace(
        health,
        files=health.files - len(group.files) + len(new),
        small_files=health.small_files - sum(is_small(file, target_bytes) for file in group.files) + small,
        bytes=health.bytes - group.bytes + int(group.live_bytes),
        rows=health.rows - int(group.deleted),
        deleted_rows=max(0, health.deleted_rows - int(group.deleted)),
    )
