"""Sets Spark's checkpoint back to an earlier batch, to replay the stream after a rollback of the table.

Everything is copied before it is removed. The logs lose the newest batch first, and of each batch the commit before the
offsets. Each intermediate state is therefore one that Spark itself leaves after a crash. The state of later batches is
removed before the logs: Spark refuses to start if a log lacks its state, but would read state without a log as the
state of another batch, which doubles rows. A rewind that was interrupted is completed by the next run.
"""

import re
import shutil
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime

import fsspec

from lakesink.checkpoint.folder import FsspecFiles
from lakesink_protocol.errors import QueryError

_LOGS = ("commits", "offsets")
_STATE_FILE = re.compile(r"(\d+)(?:_[^.]*)?\.(?:delta|snapshot|changelog|zip)(?:\.crc)?")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a rewind will do."""

    to_batch: int  # newest batch to keep; -1 if none
    batches: tuple[int, ...]  # batches whose log entries are removed, newest first
    files: tuple[str, ...]  # paths to remove, relative to the checkpoint, in this order: state, then log entries


class RewindableCheckpoint:
    """A checkpoint whose query is stopped, given as a path or URI."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self._system, self._folder = fsspec.core.url_to_fs(self._root, use_listings_cache=False)
        self._files = FsspecFiles(self._root)

    def plan(self, to_batch: int) -> Plan:
        """Return what `rewind` would do to keep batches up to `to_batch`, -1 for none; changes nothing.

        Raises a QueryError if the folder is no checkpoint, or the query could not continue from that batch.
        """
        if not self._system.exists(f"{self._folder}/metadata"):
            raise _refused("The folder is not the checkpoint of a query: it has no metadata file.")
        logs = {log: {int(name) for name in self._files.names(log) if name.isdecimal()} for log in _LOGS}
        batches = _above(to_batch, planned=logs["offsets"], done=logs["commits"])
        entries = (f"{log}/{batch_id}" for batch_id in batches for log in _LOGS if batch_id in logs[log])
        # Every state file with its version, Spark's checksum files too; the newest version first.
        folder = f"{self._folder}/state"
        paths = map(str, self._system.find(folder) if self._system.exists(folder) else ())
        found = ((path, _STATE_FILE.fullmatch(path.rpartition("/")[2])) for path in paths)
        files = ((f"state/{path.partition(f'{folder}/')[2]}", int(named[1])) for path, named in found if named)
        state = sorted(files, key=lambda file: (-file[1], file[0]))
        # Spark numbers state by the batch that reads it: the state after `to_batch` has the next number.
        later = (name for name, version in state if version > to_batch + 1)
        plan = Plan(to_batch, batches, (*later, *entries))
        if plan.files and to_batch >= 0:
            _check_state(state, to_batch)
        return plan

    def rewind(self, plan: Plan, backup: str | None = None) -> str | None:
        """Remove everything about later batches, after a copy; returns its folder, None if there was nothing to do.

        The folder for the copy must not exist; None for one beside the checkpoint. Raises a QueryError as `plan`, or if
        the checkpoint changed since the plan: its query runs.
        """
        if not plan.files:
            return None
        place = backup or f"{self._root}.backup-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        self._copy(plan, place)
        # A checkpoint does not show that its query is stopped; a change shows that it runs.
        if self.plan(plan.to_batch) != plan:
            raise _refused("The query is running: its checkpoint changed meanwhile.")
        for path in plan.files:
            # The file, then its Hadoop checksum: a checksum without its file is ignored.
            folder, _, name = path.rpartition("/")
            for each in (name, f".{name}.crc"):
                if self._system.exists(f"{self._folder}/{folder}/{each}"):
                    self._system.rm_file(f"{self._folder}/{folder}/{each}")
        return place

    def _copy(self, plan: Plan, place: str) -> None:
        system, folder = fsspec.core.url_to_fs(place, use_listings_cache=False)
        if system.exists(folder):
            raise _refused("The folder of the backup exists already.")
        logs = (f"{log}/{name}" for log in _LOGS for name in self._files.names(log))
        for path in sorted({"metadata", *logs, *plan.files}):
            system.makedirs(f"{folder}/{path}".rpartition("/")[0], exist_ok=True)
            with self._system.open(f"{self._folder}/{path}", "rb") as here, system.open(f"{folder}/{path}", "wb") as to:
                shutil.copyfileobj(here, to)


def _above(to_batch: int, *, planned: set[int], done: set[int]) -> tuple[int, ...]:
    """Batches to remove, newest first, so that the query continues after `to_batch`; -1 removes all."""
    known = planned | done
    if not known:
        raise _refused("The checkpoint has no batch yet.")
    if to_batch > max(known):
        raise _refused(f"The checkpoint's newest batch is {max(known)}, so it cannot be set back to {to_batch}.")
    if to_batch >= 0 and to_batch not in planned:
        oldest = min(planned, default=max(known))
        raise _refused(f"The checkpoint no longer has the offsets of batch {to_batch}; its oldest are of {oldest}.")
    return tuple(sorted((batch_id for batch_id in known if batch_id > to_batch), reverse=True))


def _check_state(files: list[tuple[str, int]], to_batch: int) -> None:
    versions: dict[str, set[int]] = defaultdict(set)
    for name, version in files:
        if not name.endswith(".crc"):
            versions[name.rpartition("/")[0]].add(version)
    if any(to_batch + 1 not in known for known in versions.values()):
        raise _refused(f"The query keeps state, and Spark no longer has its state as of batch {to_batch}.")


def _refused(what: str) -> QueryError:
    return QueryError.of("REWIND_REFUSED.checkpoint", what=what)
