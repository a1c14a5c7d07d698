"""A data file to be searched, as its manifest states it. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from lakesink.parquet.partitions import Partition


@dataclass(frozen=True, slots=True)
class DataFile:
    """Location and rows of a live data file.

    Attributes:
        constants: Values of key and sequence columns that the identity fields of its partition tell, by field id, in
            single-value form. A file that became a table's need not have these columns: Hive keeps them in folders.
        since: The table, and the sequence number with which it got the file. A path can be used again, in a new table
            of the same name or for a new export.
    """

    path: str
    rows: int
    constants: tuple[tuple[int, bytes], ...] = ()
    since: str = ""


def constants_of(partition: Partition, fields: Iterable[Any], ids: Collection[int]) -> tuple[tuple[int, bytes], ...]:
    """Values of these columns that a partition tells: those of its identity fields, which have source and transform."""
    parts = zip(fields, partition, strict=True)
    told = (part for part in parts if str(part[0].transform) == "identity" and part[0].source_id in ids)
    return tuple((field.source_id, value) for field, value in told if value is not None)
