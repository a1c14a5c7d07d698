"""A data file to be searched, as its manifest states it. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataFile:
    """Location and rows of a live data file."""

    path: str
    rows: int
