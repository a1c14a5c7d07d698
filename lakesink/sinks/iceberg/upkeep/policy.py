"""What a maintenance of a table may do."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Verify(StrEnum):
    """How the rows of new files are compared with those that they replace."""

    DIGEST = "digest"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Policy:
    """What is due, and how much of it one run does.

    Attributes:
        target_file_size: Bytes; None for the table's ``write.target-file-size-bytes``.
        min_input_files: Fewer small files of one partition stay, unless they fill a file of the target size.
        where: Condition on partition columns in PyIceberg's syntax, with present names: ``day = '2026-01-01'``. Empty
            for all partitions.
        budget: Of one run. A group begins only if the groups before it say that it will end in time; None is no limit.
        gate: True if a stream waits for its maintenance before it goes on.
    """

    target_file_size: int | None = None
    min_input_files: int = 5
    where: str = ""
    budget: timedelta | None = None
    gate: bool = False
    verify: Verify = Verify.DIGEST
