"""Compares the events that Kafka acknowledged with the rows that Trino finds in the table."""

from dataclasses import dataclass
from typing import Any

from servers.trino import Trino, TrinoFailed

from .setting import CATALOG, TABLE


@dataclass(frozen=True, slots=True)
class Count:
    """What came of the events."""

    produced: int
    rows: int
    lost: int  # produced, and not in the table
    doubled: int  # rows too many
    foreign: int  # in the table, and never produced

    @property
    def exact(self) -> bool:
        """True if every event is there once."""
        return not (self.lost or self.doubled or self.foreign)

    def __str__(self) -> str:
        foreign = f", never produced {self.foreign}" if self.foreign else ""
        return f"produced {self.produced}, in the table {self.rows}, lost {self.lost}, doubled {self.doubled}{foreign}"


def count(engine: Trino, produced: set[int]) -> Count:
    """Ask Trino for the id of every row."""
    ids = [number for (number,) in rows(engine, "id")]
    there = set(ids)
    return Count(len(produced), len(ids), len(produced - there), len(ids) - len(there), len(there - produced))


def number_of_rows(engine: Trino) -> int:
    """How many rows the table has; 0 if it is not there yet."""
    return sum(number for (number,) in rows(engine, "count(*)"))


def rows(engine: Trino, what: str, rest: str = "", *, of: str = "") -> list[list[Any]]:
    """Values of the table, or of one of its metadata tables; none if it is not there yet."""
    namespace, _, name = TABLE.partition(".")
    try:
        return engine.sql(f'SELECT {what} FROM {CATALOG}.{namespace}."{name}{of}" {rest}').rows  # noqa: S608 - constant names
    except TrinoFailed as error:
        if "does not exist" in str(error):
            return []
        raise
