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

    @property
    def root(self) -> str:
        """Folder of this sink."""
        return f"{self.directory}/{FOLDER}/{self.sink_id}"

    @property
    def commits(self) -> str:
        """Folder of markers."""
        return f"{self.root}/commits"

    @property
    def high_water(self) -> str:
        """Location of the file of `lakesink.sinks.directory.marker.HighWater`."""
        return f"{self.root}/high-water.json"

    def taken_back(self, name: str) -> str:
        """Folder for the files that one rewind moved, in subfolders of the same names."""
        return f"{self.root}/taken-back/{name}"

    def marker(self, number: int) -> str:
        """Location of a marker."""
        return f"{self.commits}/{number:020d}.json"

    def part_path(self, name: str) -> str:
        """A part's path, relative to the directory."""
        return f"{FOLDER}/{self.sink_id}/parts/{name}"


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
