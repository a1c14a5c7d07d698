"""Counts in the summaries of snapshots. Pure."""

import re
from typing import Any

from lakesink_protocol.ledger import LARGEST_NUMBER

_NUMBER = re.compile(r"[0-9]{1,19}")


def stated(summary: Any, name: str) -> int | None:
    """A count in a snapshot's summary; None if it is missing, or if Iceberg's readers cannot hold it."""
    text = str((summary.get(name) if summary else None) or "")
    count = int(text) if _NUMBER.fullmatch(text) else LARGEST_NUMBER + 1
    return count if count <= LARGEST_NUMBER else None
