"""The folders and file names of the file sink. Pure.

Below ``<directory>/_lakesink/<sink id>/``, ``parts/`` contains the files of rows, ``commits/`` the markers,
``prepared/`` the records of batches that are not committed yet, ``taken-back/`` the files that a rewind moved.
Spark and Hive skip folders that begin with an underscore.
"""

import re

from lakesink.sinks.staged.part_receipt import SinkFolder

FOLDER = "_lakesink"
_MARKER = re.compile(r"(\d{20})\.json", re.ASCII)
_RECORD = re.compile(r"(\d{1,19})-[0-9a-f]+\.json", re.ASCII)
_PART_TAIL = re.compile(r"(\d{1,19})-\d{5,10}-[0-9a-f-]{36}\..*", re.ASCII)


class Layout(SinkFolder):
    """The locations of one sink."""

    def __init__(self, directory: str, sink_id: str) -> None:
        super().__init__(directory, sink_id, f"{FOLDER}/")
        self.commits = f"{self.root}/commits"  # the markers
        self.high_water = f"{self.root}/high-water.json"  # `lakesink.sinks.directory.marker.HighWater`
        self.taken_back = f"{self.root}/taken-back"  # files that rewinds moved, each in subfolders of the same names

    def marker(self, number: int) -> str:
        """Location of a marker."""
        return f"{self.commits}/{number:020d}.json"


def marker_number(name: str) -> int | None:
    """The number of a marker of this name; None for any other name."""
    found = _MARKER.fullmatch(name)
    return None if found is None else int(found[1])


def batch_of_part(name: str, sink_id: str) -> int | None:
    """The batch of a part of this name; None if it is not a part of the sink."""
    found = _PART_TAIL.fullmatch(name.removeprefix(f"{sink_id}-")) if name.startswith(f"{sink_id}-") else None
    return None if found is None else int(found[1])


def batch_of_record(name: str) -> int | None:
    """The batch of a prepared record of this name; None for any other name."""
    found = _RECORD.fullmatch(name)
    return None if found is None else int(found[1])
