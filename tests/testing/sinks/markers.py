"""Sound sinks on a file system: a batch is visible when its marker is there, and only one can put it."""

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlite_sink import Open, Staged

from lakesink import AlreadyCommitted, Committed, Outcome
from tests.testing.sinks.staged import Entry, StagedSink, has, put_temporary


class MarkerSink(StagedSink):
    """A marker names the staged files of its batch."""

    def markers(self) -> list[Path]:
        return sorted(self.folder.glob("markers/*.json"))

    def marker(self, batch_id: int) -> Path:
        return self.folder / "markers" / f"{batch_id:08d}.json"

    def told(self) -> list[tuple[Entry, list[str]]]:
        found = [json.loads(marker.read_text()) for marker in self.markers()]
        return [(Entry(*entry), files) for entry, files in found]

    def entries(self) -> Sequence[Entry]:
        return [entry for entry, _ in self.told()]

    def rows(self) -> list[tuple[int, int]]:
        return [row for _, files in self.told() for row in self.staged_rows(files)]

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        (self.folder / "markers").mkdir(exist_ok=True)
        temporary = put_temporary(self.folder / "pending", [Entry.of(transaction.batch), prepared.files])
        if not self.put(temporary, transaction.batch.batch_id):
            assert has(self.entries(), transaction.batch)
            return AlreadyCommitted(None)
        rows = len(self.staged_rows(prepared.files))
        return Committed(transaction.batch.batch_id, rows, recovered=prepared.recovered)

    def put(self, temporary: Path, batch_id: int) -> bool:
        """Give the marker its name, unless the name is taken; one step: `link` fails where `rename` replaces."""
        try:
            os.link(temporary, self.marker(batch_id))
        except FileExistsError:
            return False
        return True


class FolderMarkerSink(MarkerSink):
    """The marker lies in a folder: a folder that is not empty is never replaced by a rename."""

    def markers(self) -> list[Path]:
        return sorted(self.folder.glob("markers/*/entry.json"))

    def put(self, temporary: Path, batch_id: int) -> bool:
        folder = temporary.with_suffix(".folder")
        folder.mkdir()
        temporary.rename(folder / "entry.json")
        try:
            folder.rename(self.marker(batch_id).with_suffix(""))
        except OSError:
            return False
        return True


class LockedFileSink(MarkerSink):
    """One file with everything in it, replaced under a lock by what it was and one batch more."""

    def told(self) -> list[tuple[Entry, list[str]]]:
        path = self.folder / "all.json"
        found = json.loads(path.read_text()) if path.exists() else []
        return [(Entry(*entry), files) for entry, files in found]

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        with self.locked():
            told = self.told()
            if has([entry for entry, _ in told], transaction.batch):
                return AlreadyCommitted(None)
            temporary = put_temporary(self.folder, [*told, (Entry.of(transaction.batch), prepared.files)])
            temporary.replace(self.folder / "all.json")
        rows = len(self.staged_rows(prepared.files))
        return Committed(transaction.batch.batch_id, rows, recovered=prepared.recovered)

    @contextmanager
    def locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class JournalSink(LockedFileSink):
    """One line a batch, appended under a lock; a line that was cut short ends what counts."""

    def told(self) -> list[tuple[Entry, list[str]]]:
        lines = self.whole().splitlines()
        return [(Entry(*entry), files) for entry, files in map(json.loads, lines)]

    def whole(self) -> bytes:
        """The whole lines."""
        path = self.folder / "journal"
        content = path.read_bytes() if path.exists() else b""
        return content[: content.rfind(b"\n") + 1]

    def commit(self, transaction: Open, prepared: Staged) -> Outcome:
        with self.locked(), (self.folder / "journal").open("ab") as journal:
            if has(self.entries(), transaction.batch):
                return AlreadyCommitted(None)
            journal.truncate(len(self.whole()))
            journal.write(json.dumps([Entry.of(transaction.batch), prepared.files]).encode() + b"\n")
            journal.flush()
        rows = len(self.staged_rows(prepared.files))
        return Committed(transaction.batch.batch_id, rows, recovered=prepared.recovered)
