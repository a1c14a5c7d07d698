"""What a scan of a table's keys found: how many there are, and those with more than one live row. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakesink_catalog.words import counted, number
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_tools.audit.finding import Code, Finding, listed


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """Which keys to prove.

    Attributes:
        columns: Columns of the key; empty for the table's identifier fields.
        at: Name of a branch or tag, or id of a snapshot.
        show_values: True to return some repeated keys.
    """

    columns: tuple[str, ...] = ()
    at: str = MAIN_BRANCH
    show_values: bool = False


@dataclass(frozen=True, slots=True)
class KeyProof:
    """The keys of one snapshot."""

    snapshot_id: int | None  # None for a table without a snapshot
    columns: tuple[str, ...]  # of the key
    rows: int  # live rows
    keys: int
    repeated: int  # keys with more than one live row
    surplus: int  # live rows beyond one for each key
    nulls: int  # live rows with a NULL in the key: they belong to no key
    files: tuple[tuple[str, int], ...] = ()  # data files with rows of repeated keys, and how many, the most first
    values: pa.Table | None = None  # some repeated keys and how many rows they have, if they were asked for

    @property
    def summary(self) -> str:
        """The result in one line."""
        what = f"{counted(self.rows, 'live row')}, {counted(self.keys, 'key')} ({', '.join(self.columns)})"
        result = f"{number(self.repeated)} with several rows" if self.repeated else "one row each"
        return f"keys of snapshot {self.snapshot_id or '-'}: {what}, {result}"

    def findings(self) -> Iterator[Finding]:
        """The violations."""
        if self.repeated:
            files = listed(f"{path} ({counted(rows, 'row')})" for path, rows in self.files)
            found = (
                f"{number(self.repeated)} of {counted(self.keys, 'key')} have {number(self.surplus)} rows too many, in"
            )
            yield Finding(Code.KEY_REPEATED, "", f"{found} {files}.", tuple(path for path, _ in self.files))
        if self.nulls:
            found = f"{number(self.nulls)} of {counted(self.rows, 'row')} have NULL in {', '.join(self.columns)}."
            yield Finding(Code.KEY_NULL, "", found)
