"""Describes malformed documents and unknown keys of a sink's rows. Pure."""

from collections.abc import Iterator

from lakesink.audit.finding import counted
from lakesink_catalog.read.history import SinkState


def of_documents(state: SinkState) -> Iterator[str]:
    """One sentence about rows of NULLs, one about values without a column; nothing if there are none."""
    if state.malformed_rows:
        rows = f"{state.malformed_rows:,} of {counted(state.rows, 'row')}"
        yield f"{rows} are NULLs in place of malformed documents (on_malformed='null-row')."
    if state.unknown_keys:
        values = counted(state.unknown_keys, "value")
        yield f"Of the documents that were looked at, {values} had no column in the table and were left out."
