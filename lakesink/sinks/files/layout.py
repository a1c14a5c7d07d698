"""Where the file sink keeps what. Pure.

``<directory>/_lakesink/<sink id>/parts/`` holds files of rows, ``commits/`` the markers, ``prepared/`` the records of
batches that are not committed yet. Spark and Hive pass by folders that begin with an underscore.
"""

import re
from dataclasses import dataclass

FOLDER = "_lakesink"
_MARKER = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of one sink.

    Attributes:
        directory: Path or URI, without a slash at its end.
        sink_id: The sink.
    """

    directory: str
    sink_id: str

    @property
    def root(self) -> str:
        """Everything of this sink."""
        return f"{self.directory}/{FOLDER}/{self.sink_id}"

    @property
    def parts(self) -> str:
        """Folder of files of rows."""
        return f"{self.root}/parts"

    @property
    def commits(self) -> str:
        """Folder of markers."""
        return f"{self.root}/commits"

    @property
    def prepared(self) -> str:
        """Folder of prepared records."""
        return f"{self.root}/prepared"

    def marker(self, number: int) -> str:
        """Location of a marker."""
        return f"{self.commits}/{number:020d}.json"

    def part_path(self, name: str) -> str:
        """A part's path, relative to the directory."""
        return f"{FOLDER}/{self.sink_id}/parts/{name}"


def marker_number(name: str) -> int | None:
    """The number of a marker of this name; None if it is no marker's."""
    found = _MARKER.fullmatch(name)
    return None if found is None else int(found[1])
