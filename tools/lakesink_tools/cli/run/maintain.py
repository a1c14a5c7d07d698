"""The command ``maintain``: makes small files of a table large ones, without its deleted rows, group by group."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta
from itertools import groupby
from typing import Any

from lakesink.sinks.iceberg.upkeep.health import Health
from lakesink.sinks.iceberg.upkeep.policy import Policy, Verify
from lakesink.sinks.iceberg.upkeep.reports import BUDGET, FAILED, NOTHING_DUE, TURN, GroupDone, GroupDue, LeftFile, Plan
from lakesink.sinks.iceberg.upkeep.reports import Report as Run
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.words import as_arguments, counted, number, rewritten, size
from lakesink_protocol.redact import redact
from lakesink_tools.cli.output import NOT_WELL, OK, Report, progress
from lakesink_tools.cli.until_stopped import say
from lakesink_tools.operate.maintain import Seen, figures, maintenance_of, saving_in_words, seconds, seen_by

_COLUMNS = ("", "files>", "small>", "rows deleted>", "manifests>", "metadata>", "size>", "full scan>")
_SHOWN = 5
_ENDS = {
    NOTHING_DUE: "Nothing more is due. Next: run it again when lakesink status says what it would save.",
    BUDGET: "The budget ended before everything was done. Next: run it again.",
    TURN: "Another maintenance is at work on this table. Next: run it again later.",
    FAILED: "An error ended the run; the groups above stay. Next: correct what it names, and run it again.",
}
"""Why a run ended, and what to do."""
_STAY = "Nothing else is due. Next: see what is left and why, and run it again."
_FAILED = frozenset(("lost", "failed", "unknown", "unreadable", "proof"))
"""Codes of files that a later run compacts, or that an operator must look at; a run never rewrites the others."""


def maintain(  # noqa: PLR0913 - click hands over one argument an option
    *,
    table: str,
    catalog: str | None,
    branch: str,
    budget: timedelta | None,
    target_file_size: int | None,
    min_input_files: int,
    where: str,
    verify: str,
    dry_run: bool,
) -> Report:
    """Exit code 1: files that are due stay, because a group failed or another maintenance is at work."""
    opened = connect(catalog, create=False)
    policy = Policy(target_file_size, min_input_files, where, budget, verify=Verify(verify))
    maintenance = maintenance_of(opened, table, branch, policy)
    seen = seen_by(maintenance, as_arguments(table, catalog))
    managed_by = None if seen.manager is None else seen.manager.name
    about = {"table": table, "catalog": opened.name, "branch": branch, "managed_by": managed_by, "dry_run": dry_run}
    if dry_run or managed_by:
        return _planned(about, seen)
    with progress(say) as tell:
        done = maintenance.run(lambda group: tell(_in_words(group)))
    stay = done.ended == NOTHING_DUE and _have_failed(done.left)
    return _report(
        {**about, "ended": done.ended},
        f"{counted(len(done.groups), 'group')} of files compacted" if done.groups or stay else done.ended,
        {"before": done.before, "after": done.after},
        done,
        f"Saved {saving_in_words(done.before, done.after)}." if done.groups else "Nothing was changed.",
        _STAY if stay else _ENDS[done.ended],
    )


def _planned(about: dict[str, Any], seen: Seen) -> Report:
    plan = seen.plan
    saving = f"A run would save {saving_in_words(plan.health, plan.expected)}." if plan.groups else "Nothing is due."
    then = " Next: the same command without --dry-run." if plan.groups and not seen.manager else ""
    return _report(
        about,
        "left alone" if seen.manager else f"{counted(len(plan.groups), 'group')} of files due",
        {"now": plan.health, "expected": plan.expected},
        plan,
        seen.offer if seen.manager else saving,
        f"Nothing was changed.{then}",
    )


def _report(about: dict[str, Any], title: str, health: dict[str, Health], found: Plan | Run, *ends: str) -> Report:
    left = sorted(found.left, key=lambda one: (one.reason, one.path))
    failed = about.get("ended") == TURN or _have_failed(left)
    return Report(
        document={
            **about,
            **{when: figures(one) for when, one in health.items()},
            "groups": [asdict(one) for one in found.groups],
            "left": [redact(asdict(one)) for one in left],
        },
        title=f"{about['table']} in {about['catalog']}: {title}",
        columns=_COLUMNS,
        rows=[[when, *_row(one)] for when, one in health.items()],
        hints=[redact(line) for line in (*_shown(found, left), *ends)],
        exit_code=NOT_WELL if failed else OK,
    )


def _have_failed(left: Sequence[LeftFile]) -> bool:
    return any(one.reason.partition(":")[0] in _FAILED for one in left)


def _row(found: Health) -> list[str]:
    return [
        number(found.files),
        number(found.small_files),
        f"{found.deleted_share:.1%}",
        number(found.manifests),
        size(found.metadata_bytes),
        size(found.bytes),
        seconds(found.scan_seconds),
    ]


def _shown(found: Plan | Run, left: Sequence[LeftFile]) -> Iterator[str]:
    """The first groups, which are the worst, and files that stay by their reason, with one of them."""
    yield from map(_in_words, found.groups[:_SHOWN])
    if len(found.groups) > _SHOWN:
        yield f"And {counted(len(found.groups) - _SHOWN, 'group')} more; --output json has all."
    for reason, files in groupby(left, key=lambda one: one.reason):
        paths = [one.path for one in files]
        yield f"Left: {counted(len(paths), 'file')}, {reason}; for example {paths[0]}"


def _in_words(group: GroupDone | GroupDue) -> str:
    where = f"{group.partition}: " if group.partition else ""
    if isinstance(group, GroupDue):
        return f"{where}{counted(group.files, 'file')}, {size(group.bytes)}, {counted(group.rows, 'row')}"
    return f"{where}{rewritten(asdict(group))}, {seconds(group.seconds)}"
