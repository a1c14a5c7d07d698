"""The file of rows that a task leaves to the driver, as they came."""

from lakesink.parquet.side_file import SideFile, is_side_file
from lakesink.rows.plan import WritePlan
from lakesink_protocol.receipt import LeftRows

_SUFFIX = "arrows"


def left_rows_file(plan: WritePlan, task: int) -> SideFile:
    """The file of one task, which is created with the first row that is left."""
    return SideFile(plan, task, _SUFFIX)


def left_in(file: SideFile) -> LeftRows | None:
    """What a receipt says of the closed file; None without rows."""
    return LeftRows(file.location, file.rows, file.size_bytes) if file.rows else None


def is_left_rows(location: str, folder: str, stem: str, task: int) -> bool:
    """True if a task of this batch can have chosen this location."""
    return is_side_file(location, folder, stem, task, _SUFFIX)
