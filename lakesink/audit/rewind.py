"""Takes Spark's checkpoint back to an earlier batch, for the replay after the table was rolled back.

What is removed is copied first. Every state in between is one that Spark itself leaves when it dies: entries go from
the newest batch down, and of each batch its commit before its offsets. Cut short, it is completed by being run again.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import fsspec

from lakesink_catalog.errors import QueryError

NOTHING_CHANGED = "Nothing was changed, neither in the checkpoint nor in a table."
_LOGS = ("commits", "offsets")
_STATE_FILE = re.compile(r"(\d+)(?:_[^.]*)?\.(?:delta|snapshot|changelog|zip)")


@dataclass(frozen=True, slots=True)
class Logs:
    """Batches that a checkpoint's logs hold.

    Attributes:
        offsets: Those that Spark has planned.
        commits: Those that it calls done.
    """

    offsets: frozenset[int]
    commits: frozenset[int]


@dataclass(frozen=True, slots=True)
class Rewound:
    """What a rewind did.

    Attributes:
        to_batch: Newest batch that is left; -1 if none.
        removed: Batches whose entries are gone, newest first; empty if there was nothing to do.
        backup: Where the logs were copied to; None if there was nothing to do.
    """

    to_batch: int
    removed: tuple[int, ...]
    backup: str | None


class RewindableCheckpoint:
    """A checkpoint whose query is stopped.

    Args:
        root: Path or URI.
    """

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self._system, self._folder = fsspec.core.url_to_fs(self._root, use_listings_cache=False)

    def rewind(self, to_batch: int, backup: str | None = None) -> Rewound:
        """Remove all that Spark logged about batches above `to_batch`, after copying the logs.

        Args:
            to_batch: Newest batch to keep; -1 for none.
            backup: Folder for the copy, which must not exist; None for one beside the checkpoint.

        Raises:
            QueryError: The folder is no checkpoint, or the query could not go on from that batch.
        """
        removed = self.removable(to_batch)
        if not removed:
            return Rewound(to_batch, (), None)
        place = backup or f"{self._root}.backup-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        self._copy_logs(place)
        for batch_id in removed:
            for log in _LOGS:
                self._remove(log, batch_id)
        return Rewound(to_batch, removed, place)

    def removable(self, to_batch: int) -> tuple[int, ...]:
        """Batches that `rewind` would remove, newest first; changes nothing.

        Raises:
            QueryError: As `rewind`.
        """
        logs = Logs(*(frozenset(self._batches(log)) for log in ("offsets", "commits")))
        if not self._system.exists(f"{self._folder}/metadata"):
            raise _refused("The folder is not the checkpoint of a query: it has no metadata file.")
        removed = above(logs, to_batch)
        if removed and to_batch >= 0:
            self._check_state(to_batch)
        return removed

    def _batches(self, log: str) -> Iterator[int]:
        return (int(name) for name in self._names(log) if name.isdecimal())

    def _names(self, folder: str) -> list[str]:
        try:
            return [str(path).rstrip("/").rpartition("/")[2] for path in self._listed(f"{self._folder}/{folder}")]
        except FileNotFoundError:
            return []

    def _listed(self, folder: str) -> list[Any]:
        listed: list[Any] = self._system.ls(folder, detail=False)
        return listed

    def _check_state(self, to_batch: int) -> None:
        """The state that the next batch starts from is the one that `to_batch` left: the version above its id."""
        needed = to_batch + 1
        versions: dict[str, set[int]] = {}
        for path in self._system.find(f"{self._folder}/state") if self._system.exists(f"{self._folder}/state") else ():
            folder, _, name = str(path).rpartition("/")
            if found := _STATE_FILE.fullmatch(name):
                versions.setdefault(folder, set()).add(int(found[1]))
        if any(needed not in known for known in versions.values()):
            raise _refused(f"The query keeps state, and Spark has removed the state as it was after batch {to_batch}.")

    def _copy_logs(self, place: str) -> None:
        system, folder = fsspec.core.url_to_fs(place, use_listings_cache=False)
        if system.exists(folder):
            raise _refused("The folder of the backup exists already.")
        for path in ("metadata", *(f"{log}/{name}" for log in _LOGS for name in self._names(log))):
            system.makedirs(f"{folder}/{path}".rpartition("/")[0], exist_ok=True)
            system.pipe_file(f"{folder}/{path}", self._system.cat_file(f"{self._folder}/{path}"))

    def _remove(self, log: str, batch_id: int) -> None:
        """The entry and Hadoop's checksum of it; a checksum without its file is ignored, the reverse is an error."""
        for name in (str(batch_id), f".{batch_id}.crc"):
            path = f"{self._folder}/{log}/{name}"
            if self._system.exists(path):
                self._system.rm_file(path)


def above(logs: Logs, to_batch: int) -> tuple[int, ...]:
    """Batches to remove, newest first, so that a query goes on after `to_batch`.

    Args:
        logs: What the checkpoint holds.
        to_batch: Newest batch to keep; -1 for none.

    Raises:
        QueryError: The query could not go on from there.
    """
    known = logs.offsets | logs.commits
    if not known:
        raise _refused("The checkpoint has no batch yet.")
    if to_batch > max(known):
        raise _refused(f"The checkpoint's newest batch is {max(known)}, so it cannot be taken back to {to_batch}.")
    if to_batch >= 0 and to_batch not in logs.offsets:
        oldest = min(logs.offsets, default=max(known))
        raise _refused(f"The checkpoint no longer has the offsets of batch {to_batch}; its oldest are of {oldest}.")
    return tuple(sorted((batch_id for batch_id in known if batch_id > to_batch), reverse=True))


def _refused(what: str) -> QueryError:
    return QueryError(
        "REWIND_REFUSED",
        what,
        data=NOTHING_CHANGED,
        action="Name the checkpoint and the batch as the refusal of the stream gave them. If the batch is too old,"
        " start a new checkpoint exactly where the table ends.",
    )
