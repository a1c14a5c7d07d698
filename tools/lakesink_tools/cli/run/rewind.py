"""The command ``rewind``: takes a checkpoint back to an earlier batch, and a directory or side tables with it."""

from collections.abc import Sequence
from typing import Any

from lakesink.sinks.iceberg.side.side_batches import WayBack
from lakesink_catalog.words import counted
from lakesink_tools.audit.checkpoint import opened
from lakesink_tools.cli.output import Report, confirmed, invalid
from lakesink_tools.operate.rewind import Plan, RewindableCheckpoint
from lakesink_tools.operate.rewind_directory import DirectoryPlan, RewindableDirectory
from lakesink_tools.operate.rewind_side_tables import RewindableSideTables


def rewind(  # noqa: PLR0913 - the options of the command
    checkpoint: str,
    to_batch: int,
    directory: str | None,
    sink: str | None,
    table: str | None,
    catalog: str | None,
    backup: str | None,
    *,
    yes: bool,
) -> Report:
    """Exit code 2: it cannot be taken back to that batch; nothing was changed."""
    if sink is not None and directory is None:
        raise invalid("--sink names a sink of a directory, and none is given.", "Give --directory too.")
    place = RewindableCheckpoint(checkpoint)
    plan = place.plan(to_batch)
    target = None if directory is None else RewindableDirectory(directory, sink)
    sides = None if table is None else RewindableSideTables(table, catalog)
    query_id = "" if target is None and sides is None else opened(checkpoint).query_id()
    commits = None if target is None else target.plan(query_id, to_batch)
    ways = () if sides is None else sides.plan(query_id)
    if question := _question(plan, commits, ways):
        confirmed(question, yes=yes)
    if target is not None and commits is not None:
        target.check(commits, query_id, to_batch)
    copied = place.rewind(plan, backup)
    aside = None if target is None or commits is None else target.rewind(commits)
    if sides is not None:
        sides.rewind(ways)
    document = {
        "checkpoint": checkpoint,
        "to_batch": to_batch,
        "removed": sorted(plan.batches),
        "files": len(plan.files),
        "backup": copied,
    }
    if commits is not None:
        document["directory"] = _document(directory, commits, aside)
    if sides is not None:
        document["side_tables"] = [
            {"table": ".".join(way.side.name()), "snapshot_id": way.snapshot_id, "dropped": way.snapshot_id is None}
            for way in ways
        ]
    hints = [f"Done: {way}" for way in ways]
    hints += [f"A copy of the removed files is in {moved}" for moved in (copied, aside) if moved]
    if commits is None:
        hints.append("Next: start the query again; lakesink replays the batches that the table lacks.")
    else:
        hints.append("Next: start the query again; it plans and writes the later batches again.")
    return Report(document=document, title=_title(plan, commits), hints=hints)


def _title(plan: Plan, commits: DirectoryPlan | None) -> str:
    title = f"The checkpoint ends at batch {plan.to_batch}: {counted(len(plan.batches), 'batch')} will run again."
    if not plan.files:
        title = f"Nothing to do: the checkpoint ends at batch {plan.to_batch}."
    if commits is None:
        return title
    removed = f"{counted(len(commits.numbers), 'commit')} of sink {commits.sink_id}"
    return f"Removed from the directory: {removed}. {title}"


def _question(plan: Plan, commits: DirectoryPlan | None, ways: Sequence[WayBack]) -> str:
    """What to ask before anything is changed; empty if nothing will be."""
    parts = [f"{told[0].lower()}{told[1:].rstrip('.')}" for told in map(str, ways)]
    if commits is not None and (commits.numbers or commits.records):
        parts.append(
            f"take {counted(len(commits.numbers), 'commit')} with {counted(commits.rows, 'row')} out of the directory"
        )
    if plan.files:
        which = (
            f"batches {plan.batches[-1]} to {plan.batches[0]}" if plan.batches else f"all after batch {plan.to_batch}"
        )
        parts.append(f"have Spark run {which} again")
    return f"Is the query stopped, and shall lakesink {' and '.join(parts)}?" if parts else ""


def _document(directory: str | None, commits: DirectoryPlan, aside: str | None) -> dict[str, Any]:
    return {
        "directory": directory,
        "sink": commits.sink_id,
        "commits_kept": commits.kept,
        "commits_taken_back": len(commits.numbers),
        "rows_taken_back": commits.rows,
        "moved_to": aside,
    }
