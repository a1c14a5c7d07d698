"""Checks a sink that changes rows by key: can its order be trusted, which deletes does it need, how much is dead."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.table import Table

from lakesink.settings.settings import POLICY
from lakesink.task.changelog import changelog_key
from lakesink_catalog.read.history import SinkState
from lakesink_catalog.read.landed import newest_batch
from lakesink_catalog.tables.tables import load_to_read
from lakesink_catalog.words import changed, counted
from lakesink_protocol.errors import CatalogError, Reason
from lakesink_protocol.ledger import mark_of, stated
from lakesink_protocol.redact import shown
from lakesink_protocol.row_changes import CHANGELOG_TABLE, ChangeCounts, counts_in
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing
from lakesink_tools.checks.doctor.policy import ChangePolicy, change_policy
from lakesink_tools.past.records import key_of, sink_label

_MOST_DEAD = 0.1
_FEW_DEAD, _FEW_FILES = 10_000, 10
"""So few deleted rows and delete files cost a reader nothing that a compaction would be worth."""
_LONGEST_NAME = 60
_RESTORE = "Restore the changelog or roll it forward, or name another one with changelog_table."


def check_changes(identifier: str, table: Table, states: Sequence[SinkState]) -> Iterator[Finding]:
    """Findings about each sink that changes rows by key, and about deleted rows in the data files."""
    for state in states:
        snapshot = table.snapshot_by_id(state.snapshot_id) if state.snapshot_id is not None else None
        summary = None if snapshot is None else snapshot.summary
        policy = None if summary is None else change_policy(str(summary[POLICY] or ""))
        if policy is not None:
            named = sink_label(key_of(state))
            yield _order(named, policy, is_kafka=_is_kafka(state.offsets))
            yield _deletes(named, policy, state.changes or ChangeCounts())
        yield from _changelog(table, state)
    if any(state.changes is not None for state in states):
        yield _dead_rows(identifier, table)


def _order(named: str, policy: ChangePolicy, *, is_kafka: bool) -> Finding:
    """Which of two changes of a key is the newer one."""
    keys = ", ".join(policy.keys) or "the table's identifier fields"
    found = f"{named}: {policy.mode} by {keys}"
    if policy.sequence_by:
        said = f"{found}; the greatest {', '.join(policy.sequence_by)} wins, so changes may arrive in any order"
        return Finding(Part.TABLE, "order", Standing.OK, said)
    if policy.updates:
        said = f"{found}; output mode update: the later batch has the newer result of a key"
        return Finding(Part.TABLE, "order", Standing.OK, said)
    if is_kafka:
        said = f"{found}; no sequence_by: Kafka's order wins, which is right if messages have this key"
        fix = "Let the producer use these columns as the message key, or give sequence_by."
        return Finding(Part.TABLE, "order", Standing.OK, said, fix)
    said = f"{found}; no sequence_by: the later batch wins, also if its change is older"
    fix = "Give sequence_by a column that grows with each change of a key, if the source does not keep the order."
    return Finding(Part.TABLE, "order", Standing.WARNING, said, fix)


def _deletes(named: str, policy: ChangePolicy, counts: ChangeCounts) -> Finding:
    """A hard delete keeps no sequence, so a late upsert after it restores the row."""
    found = f"{named}: {changed(counts)} in the retained batches"
    if policy.keeps_deleted:
        return Finding(Part.TABLE, "deletes", Standing.OK, f"{found}; deleted rows are kept and marked")
    late = counts.late_upserts + counts.late_deletes
    if counts.deletes and late:
        said = f"{found}; {counted(late, 'change')} came late, and a late upsert restores a row that was deleted before"
        fix = "Give deletes='soft': a deleted row stays with _is_deleted = true and keeps its sequence."
        return Finding(Part.TABLE, "deletes", Standing.WARNING, said, fix)
    return Finding(Part.TABLE, "deletes", Standing.OK, f"{found}; no change came late after deletes")


def _changelog(table: Table, state: SinkState) -> Iterator[Finding]:
    """Whether the changelog of a sink has its last batch. After a rollback it has too much: see `check_table`."""
    if state.trouble is Reason.ROLLED_BACK:
        return
    snapshot = table.snapshot_by_id(state.snapshot_id) if state.snapshot_id is not None else None
    summary = None if snapshot is None else snapshot.summary
    name, mark, counts = summary and summary[CHANGELOG_TABLE], mark_of(summary), counts_in(summary or {})
    if not name or mark is None or counts is None or not counts.changes:
        return
    key = changelog_key(key_of(state), mark.query_id, str(table.metadata.table_uuid))
    found = f"{sink_label(key_of(state))}: all changes are in {shown(str(name), _LONGEST_NAME)} too"
    try:
        newest = newest_batch(load_to_read(table.catalog, str(name)), key)
    except CatalogError as error:
        yield Finding(
            Part.TABLE, "changelog", Standing.FAILED, f"{found}, which cannot be read: {error.what}", _RESTORE
        )
        return
    if newest is None or newest.batch_id < mark.batch_id:
        said = f"{found}, but those of batch {mark.batch_id} are missing there"
        yield Finding(Part.TABLE, "changelog", Standing.FAILED, said, _RESTORE)
        return
    yield Finding(Part.TABLE, "changelog", Standing.OK, f"{found}, up to batch {mark.batch_id}")


def _dead_rows(identifier: str, table: Table) -> Finding:
    """Rows that readers read and leave out, and the statements that remove them."""
    head = table.metadata.current_snapshot()
    summary: Mapping[str, Any] | None = head.summary if head is not None else None
    rows, deletes = stated(summary, "total-records"), stated(summary, "total-position-deletes")
    delete_files, files = stated(summary, "total-delete-files"), stated(summary, "total-data-files")
    if rows is None or deletes is None or delete_files is None or files is None:
        return Finding(Part.TABLE, "dead rows", Standing.SKIPPED, "the newest snapshot does not state its totals")
    share = deletes / rows if rows else 0.0
    found = f"{deletes:,} of {counted(rows, 'row')} are deleted ({share:.0%}), in {counted(delete_files, 'file')}"
    compact, left_over = statements(identifier, table.catalog.name)
    details = {"share": share, "compaction": [compact, left_over]}
    has_few_dead = share <= _MOST_DEAD or deletes <= _FEW_DEAD
    if has_few_dead and delete_files <= max(files, _FEW_FILES):
        return Finding(Part.TABLE, "dead rows", Standing.OK, found, details=details)
    fix = (
        f"In Spark, in a break of the stream (a batch that touches the same files makes it fail, and loses nothing):"
        f" {compact} If delete files are left: {left_over}"
    )
    return Finding(Part.TABLE, "dead rows", Standing.WARNING, found, fix, details)


def statements(identifier: str, catalog: str) -> tuple[str, str]:
    """Spark SQL that rewrites data files with deletes, and delete files whose data files were rewritten."""
    call = f"CALL `{catalog.replace('`', '``')}`.system"
    table = identifier.replace("'", "\\'")
    options = "options => map('delete-file-threshold', '1', 'remove-dangling-deletes', 'true')"
    return (
        f"{call}.rewrite_data_files(table => '{table}', {options});",
        f"{call}.rewrite_position_delete_files(table => '{table}', options => map('rewrite-all', 'true'));",
    )


def _is_kafka(offsets: str) -> bool:
    """Offsets of Kafka are topics with numbers of partitions."""
    try:
        document = json.loads(offsets) if offsets else []
    except (ValueError, RecursionError):
        return False
    sources = list(document.values()) if isinstance(document, dict) else document
    return (
        isinstance(sources, list)
        and bool(sources)
        and all(isinstance(one, dict) and one and all(map(_is_topic, one.values())) for one in sources)
    )


def _is_topic(partitions: object) -> bool:
    return isinstance(partitions, dict) and all(str(number).isdigit() for number in partitions)
