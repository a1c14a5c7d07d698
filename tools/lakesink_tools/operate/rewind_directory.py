"""Sets the commits of a directory sink back to an earlier batch, like its checkpoint.

Markers and prepared records are copied to another folder before they are removed. The high-water file is written
first, and the newest marker is moved before older ones: each intermediate state is a shorter history. Part files stay,
because readers that listed them can read them. A rewind that was interrupted is completed by the next run.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from lakesink.sinks.directory.directory_errors import directory_failures
from lakesink.sinks.directory.layout import batch_of_record
from lakesink.sinks.directory.marker import HighWater
from lakesink.sinks.directory.marker_ledger import marker_sizes, undamaged_history
from lakesink_protocol.errors import QueryError
from lakesink_protocol.redact import redact
from lakesink_tools.past.committed_files import opened_sinks


@dataclass(frozen=True, slots=True)
class DirectoryPlan:
    """What a rewind of a directory will do."""

    sink_id: str
    kept: int  # number of commits to keep, from number 0
    rows: int  # rows of the later commits, as far as these are readable
    size_bytes: int  # size of the kept markers
    numbers: tuple[int, ...]  # markers to move, newest first
    records: tuple[str, ...]  # names of the prepared records to move


class RewindableDirectory:
    """A directory sink whose stream is stopped; `sink_id` is None for the only one of the directory."""

    def __init__(self, directory: str, sink_id: str | None) -> None:
        with opened_sinks(directory, sink_id) as (self._storage, found):
            if len(found) > 1:
                names = ", ".join(layout.sink_id for layout in found)
                raise _refused("The directory has several sinks.", f"Name one by --sink: {names}.")
            self.layout = found[0]

    def plan(self, query_id: str, to_batch: int) -> DirectoryPlan:
        """Return what `rewind` would do to keep the batches of the checkpoint's query up to `to_batch`, -1 for none.

        Changes nothing. Raises a QueryError if the directory lacks that batch, or a commit before it is damaged.
        """
        with directory_failures(self.layout.directory):
            sizes = marker_sizes(self._storage, self.layout)
            kept, rows = self._kept(query_id, to_batch, max(sizes, default=-1) + 1)
            names = self._storage.names(self.layout.prepared)
        return DirectoryPlan(
            sink_id=self.layout.sink_id,
            kept=kept,
            rows=rows,
            size_bytes=sum(sizes[number] for number in range(kept)),
            numbers=tuple(sorted((number for number in sizes if number >= kept), reverse=True)),
            records=tuple(sorted(name for name in names if batch_of_record(name) is not None)),
        )

    def rewind(self, plan: DirectoryPlan) -> str | None:
        """Move later markers and all prepared records to a folder and return it; None if there was nothing to move.

        Call `check` before.
        """
        with directory_failures(self.layout.directory, data="It is set back in part: run the command again."):
            self._storage.replace(self.layout.high_water, HighWater(plan.kept, plan.size_bytes).to_bytes())
            aside = f"{self.layout.taken_back}/{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
            for name in plan.records:
                self._move(f"{self.layout.prepared}/{name}", f"{aside}/prepared/{name}")
            for number in plan.numbers:
                marker = self.layout.marker(number)
                self._move(marker, f"{aside}/commits/{marker.rpartition('/')[2]}")
        return aside if plan.numbers or plan.records else None

    def check(self, plan: DirectoryPlan, query_id: str, to_batch: int) -> None:
        """Compare the directory with the plan again, because a directory does not show that its stream is stopped."""
        if self.plan(query_id, to_batch) != plan:
            raise _refused("The stream is running: its directory changed meanwhile.", "Stop it, and run this again.")

    def _kept(self, query_id: str, to_batch: int, count: int) -> tuple[int, int]:
        """Where the history will end, and the rows of the later commits."""
        sound, damage = undamaged_history(self._storage, self.layout, count)
        own = [marker for marker in sound if marker.batch.query_id == query_id]
        beyond = next((marker.number for marker in own if marker.ledger_batch_id > to_batch), len(sound))
        last = next((marker for marker in reversed(own) if marker.number < beyond), None)
        if to_batch < 0:
            end = beyond
        elif last is not None and last.ledger_batch_id == to_batch:
            end = last.number + 1
        else:
            newest = "none" if last is None else f"up to {last.ledger_batch_id}"
            why = f", and {damage}" if damage else ""
            raise _refused(
                f"The directory does not have batch {to_batch} of this checkpoint's query: it has {newest}{why}.",
                "Name a batch that lakesink log DIRECTORY shows.",
            )
        return end, sum(marker.rows for marker in sound[end:])

    def _move(self, location: str, to: str) -> None:
        data = self._storage.read(location)
        if data is not None:
            self._storage.replace(to, data)
            self._storage.remove(location)


def _refused(what: str, action: str) -> QueryError:
    return QueryError("REWIND_REFUSED", redact(what), action=action)
