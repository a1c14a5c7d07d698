"""Whether a run wrote the right rows, whoever ran: a fast wrong sink scores nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb


class WrongRows(Exception):
    """A sink wrote other rows than it was given."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Of a multiset of rows, whatever their order: their number, and the sum of the hashes of each."""

    rows: int
    hashes: int

    def check(self, sink: str, found: "Fingerprint") -> None:
        """Compare.

        Raises:
            WrongRows: They differ.
        """
        if found != self:
            raise WrongRows(f"{sink} wrote {found.rows} rows for {self.rows}, or other values than were in them.")


def fingerprint(relation: str) -> Fingerprint:
    """Of the rows of a query or table function; times as instants in UTC, numbers by their values."""
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        names = [row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()]
        columns = ", ".join(f'"{name}"' for name in sorted(names))
        found = connection.execute(f"SELECT count(*), sum(hash({columns})::HUGEINT) FROM {relation}").fetchone()
    rows, hashes = found or (0, None)
    return Fingerprint(int(rows), int(hashes or 0))


def files_fingerprint(paths: Sequence[str]) -> Fingerprint:
    """Of the rows of Parquet files."""
    if not paths:
        return Fingerprint(0, 0)
    listed = ", ".join(f"'{path}'" for path in paths)
    return fingerprint(f"read_parquet([{listed}], hive_partitioning = false)")


def size_of(paths: Sequence[str]) -> int:
    """Bytes of files."""
    return sum(Path(path).stat().st_size for path in paths)
