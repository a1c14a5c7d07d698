"""A data file to be searched, as its manifest states it. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataFile:
    """Location and rows of a live data file.

    Attributes:
        constants: Values of key and sequence columns that the identity fields of its partition tell, by field id, in
            single-value form. A file that became a table's need not have these columns: Hive keeps them in folders.
    """

    path: str
    rows: int
    constants: tuple[tuple[int, bytes], ...] = ()
