"""Checks one table as a stream would find it: format, settings with their origin, locations, state of its sinks."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from pyiceberg.manifest import read_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Summary

from lakesink.checkpoint.offsets import is_kafka_offset, parse_offsets
from lakesink.read.hold import LONGEST_HOLD_MS, PREFIX
from lakesink.settings.options import OPTIONS
from lakesink.settings.settings import POLICY
from lakesink.settings.table_settings import Effective, Origin
from lakesink.sinks.iceberg.side.side_rollback import left_of
from lakesink.sinks.iceberg.table_layout import order_in_words, unkept_field
from lakesink.task.changelog import changelog_key
from lakesink_catalog.connect.kinds import CODE_PROPERTY, kind_of
from lakesink_catalog.read.history import SinkState, sinks
from lakesink_catalog.read.landed import newest_batch
from lakesink_catalog.tables.partition_by import is_misread_by_java
from lakesink_catalog.words import changed, counted, printable, span
from lakesink_protocol.errors import CatalogError, Reason
from lakesink_protocol.ledger import mark_of
from lakesink_protocol.redact import redact, shown
from lakesink_protocol.row_changes import CHANGELOG_TABLE, ChangeCounts, counts_in
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION
from lakesink_tools.audit.finding import awaits_replay, of_replay
from lakesink_tools.checks.doctor.checkpoint import NextBatch, is_taken
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing, attempt, attempt_all
from lakesink_tools.checks.doctor.policy import ChangePolicy, change_policy, policy_in_words
from lakesink_tools.operate.maintain import seen_in
from lakesink_tools.past.lean import load_to_read
from lakesink_tools.past.records import key_of

_LEAST_SECONDS, _LEAST_SHARE = 1.0, 0.2
"""A maintenance that saves less of a full scan is worth no warning."""
_LONGEST_NAME = 60
_RESTORE = "Restore the changelog or roll it forward, or name another one with changelog_table."


def check_changes(table: Table, states: Sequence[SinkState]) -> Iterator[Finding]:
    """Findings about each sink that changes rows by key."""
    for state in states:
        summary = _summary_of(table, state)
        policy = None if summary is None else change_policy(str(summary[POLICY] or ""))
        if policy is not None:
            named = key_of(state).label
            yield _order(named, policy, is_kafka=_is_kafka(state.offsets))
            yield _deletes(named, policy, state.changes or ChangeCounts())
        yield from _changelog(table, state)


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
    summary = _summary_of(table, state)
    name, mark, counts = summary and summary[CHANGELOG_TABLE], mark_of(summary), counts_in(summary or {})
    if not name or mark is None or counts is None or not counts.changes:
        return
    key = changelog_key(key_of(state), mark.query_id, str(table.metadata.table_uuid))
    found = f"{key_of(state).label}: all changes are in {shown(str(name), _LONGEST_NAME)} too"
    try:
        newest = newest_batch(load_to_read(table.catalog, str(name)), key)
    except CatalogError as error:
        said = f"{found}, which cannot be read: {error.what}"
        yield Finding(Part.TABLE, "changelog", Standing.FAILED, said, _RESTORE)
        return
    if newest is None or newest.batch_id < mark.batch_id:
        said = f"{found}, but those of batch {mark.batch_id} are missing there"
        yield Finding(Part.TABLE, "changelog", Standing.FAILED, said, _RESTORE)
        return
    yield Finding(Part.TABLE, "changelog", Standing.OK, f"{found}, up to batch {mark.batch_id}")


def check_health(arguments: str, table: Table) -> Iterator[Finding]:
    """One finding for each branch that a sink writes; `arguments` are those of a command for the table."""
    for branch, seen in seen_in(table, sinks(table), arguments):
        if isinstance(seen, str):
            yield Finding(Part.TABLE, "health", Standing.SKIPPED, f"{branch}: {seen}")
            continue
        is_worth_it = seen.saved_seconds >= max(_LEAST_SECONDS, _LEAST_SHARE * seen.plan.health.scan_seconds)
        standing = Standing.WARNING if is_worth_it else Standing.OK
        found = f"{branch}: {seen.health}"
        yield Finding(Part.TABLE, "health", standing, found, seen.offer, seen.document)


def _is_kafka(offsets: str) -> bool:
    """Offsets of Kafka are topics with numbers of partitions."""
    sources = parse_offsets(offsets).values()
    return bool(sources) and all(map(is_kafka_offset, sources))


GIVEN_UP = timedelta(days=7)
"""A running reader moves its branch with what it reads, at most ten minutes later."""


def check_readers(identifier: str, table: Table) -> Iterator[Finding]:
    """One finding for each branch of a reading query; `identifier` as the user gave it."""
    for name, ref in sorted(table.metadata.refs.items()):
        if name.startswith(PREFIX) and ref.snapshot_ref_type is SnapshotRefType.BRANCH:
            yield _reader(identifier, table, name, ref)


def _reader(identifier: str, table: Table, name: str, ref: SnapshotRef) -> Finding:
    reader, behind = printable(name.removeprefix(PREFIX)), timedelta()
    own, head = table.snapshot_by_id(ref.snapshot_id), table.current_snapshot()
    if own is not None and head is not None:
        behind = timedelta(milliseconds=max(head.timestamp_ms - own.timestamp_ms, 0))
    kept = counted(ref.min_snapshots_to_keep, "snapshot")
    found = f"{reader} keeps {kept} from expiry, {span(behind)} behind the table"
    if behind < GIVEN_UP:
        return Finding(Part.TABLE, "readers", Standing.OK, found)
    days = timedelta(milliseconds=LONGEST_HOLD_MS).days
    fix = (
        f"Start the query with reader-id {reader} again. If it is given up, drop its branch: ALTER TABLE {identifier}"
        f" DROP BRANCH `{printable(name)}`. Expiry drops it after {days} days."
    )
    return Finding(Part.TABLE, "readers", Standing.WARNING, found, fix)


_HIVE_LIMIT = 4000
_SHOWN = 40


def check_table(identifier: str, table: Table, coming: NextBatch | Finding | None = None) -> Iterator[Finding]:
    """Check everything about a table that needs no writing; `identifier` as the user gave it.

    `coming` is the next batch of a checkpoint that was given and can be read: it decides how its sink can go on.
    """
    yield _loads(identifier, table)
    yield attempt(Part.TABLE, "readable", lambda: _readable(table), table.io.properties)
    yield attempt(Part.TABLE, "partitions", lambda: _partitions(table))
    yield from attempt_all(Part.TABLE, "sort order", lambda: _sort_order(identifier, table))
    yield attempt(Part.TABLE, "settings", lambda: _settings(table))
    yield from attempt_all(Part.TABLE, "properties", lambda: _property_limit(table))
    yield from attempt_all(Part.TABLE, "sinks", lambda: _sinks(identifier, table, coming))
    yield from attempt_all(Part.TABLE, "readers", lambda: check_readers(identifier, table))


def _loads(identifier: str, table: Table) -> Finding:
    version = table.metadata.format_version
    snapshots = counted(len(table.metadata.snapshots), "snapshot")
    found = f"{identifier}: format version {version}, {snapshots}, in {table.location()}"
    if version == SUPPORTED_FORMAT_VERSION:
        return Finding(Part.TABLE, "loads", Standing.OK, redact(found))
    fix = f"Stream into a table of format version {SUPPORTED_FORMAT_VERSION}: lakesink writes no other."
    return Finding(Part.TABLE, "loads", Standing.FAILED, redact(found), fix)


def _readable(table: Table) -> Finding:
    head = table.metadata.current_snapshot()
    if head is None:
        return Finding(Part.TABLE, "readable", Standing.OK, "the table has no snapshot yet")
    manifests = list(read_manifest_list(table.io.new_input(head.manifest_list)))
    found = f"snapshot {head.snapshot_id}: {counted(len(manifests), 'manifest')} in its list"
    return Finding(Part.TABLE, "readable", Standing.OK, found)


def _partitions(table: Table) -> Finding:
    schema = table.schema()
    columns = {field: schema.find_column_name(field.source_id) for field in table.spec().fields}
    found = ", ".join(f"{field.transform}({column})" for field, column in columns.items()) or "unpartitioned"
    lost = [field.name for field, column in columns.items() if column is None]
    if lost:
        fix = f"lakesink cannot write this table: drop partition field {lost[0]!r}, whose column was dropped."
        return Finding(Part.TABLE, "partitions", Standing.FAILED, found, fix)
    if any(is_misread_by_java(field.transform, schema.find_type(field.source_id)) for field in columns):
        fix = "Spark, Trino and Flink cannot read this table: partition a column of type fixed by bucket."
        return Finding(Part.TABLE, "partitions", Standing.WARNING, found, fix)
    return Finding(Part.TABLE, "partitions", Standing.OK, found)


def _sort_order(identifier: str, table: Table) -> Iterator[Finding]:
    if table.sort_order().is_unsorted:
        return
    found, unkept = redact(order_in_words(table)), redact(unkept_field(table))
    if not unkept:
        yield Finding(Part.TABLE, "sort order", Standing.OK, f"{found}; each file that lakesink writes has it")
        return
    said = f"{found}; lakesink cannot sort by {unkept}, so its files state no order"
    fix = f"ALTER TABLE {identifier} WRITE ORDERED BY other terms, or WRITE UNORDERED."
    yield Finding(Part.TABLE, "sort order", Standing.WARNING, said, fix)


def _settings(table: Table) -> Finding:
    effective = Effective.of({}, table.properties)
    chosen = [name for name, value in effective.values.items() if value.origin is Origin.TABLE]
    shown = ", ".join(f"{name}={_short(effective.values[name].value)}" for name in chosen) or "none"
    found = f"by table property: {shown}; all others are defaults"
    details = {"settings": _all_settings(effective)}
    ignored = list(effective.ignored())
    if ignored:
        fix = "lakesink ignores them: remove them, or keep them for other engines."
        found = f"{found}; not honoured: {', '.join(map(_short, ignored))}"
        return Finding(Part.TABLE, "settings", Standing.WARNING, found, fix, details)
    return Finding(Part.TABLE, "settings", Standing.OK, found, details=details)


def _all_settings(effective: Effective) -> dict[str, dict[str, Any]]:
    """Every effective setting: value, origin, and the stream option that overrides it."""
    options = {option.table_property: option.name for option in OPTIONS if option.table_property}
    honoured = {
        name: {"value": chosen.value, "origin": chosen.origin.value, "option": options.get(name)}
        for name, chosen in effective.values.items()
    }
    by_option = {
        option.name: {"value": option.default, "origin": "option default", "option": option.name}
        for option in OPTIONS
        if not option.table_property and option.default not in ("required", "none")
    }
    return honoured | by_option


def _property_limit(table: Table) -> Iterator[Finding]:
    """Hive stores table properties as parameters in its metastore, which often have a length limit."""
    properties = table.catalog.properties
    if CODE_PROPERTY in properties or kind_of(table.catalog.name, properties) != "hive":
        return
    name, value = max(table.metadata.properties.items(), key=lambda item: len(item[1]), default=("", ""))
    found = f"longest: {_short(name)}, {len(value):,} of {_HIVE_LIMIT:,} characters, the limit of many Hive metastores"
    if len(value) <= _HIVE_LIMIT:
        yield Finding(Part.TABLE, "properties", Standing.OK, found)
    else:
        fix = "Shorten it, or enlarge the metastore's column TABLE_PARAMS.PARAM_VALUE."
        yield Finding(Part.TABLE, "properties", Standing.WARNING, found, fix)


def _sinks(identifier: str, table: Table, coming: NextBatch | Finding | None) -> Iterator[Finding]:
    states = sinks(table)
    if not states:
        yield Finding(Part.TABLE, "sinks", Standing.OK, "no lakesink stream has written to it yet")
    for state in states:
        taken = coming if isinstance(coming, NextBatch) and is_taken(key_of(state), coming, table) else None
        yield _sink(identifier, state, taken)
        summary = _summary_of(table, state)
        if summary is None:
            yield Finding(Part.TABLE, "policy", Standing.SKIPPED, f"{_named(state)}: its last snapshot has expired")
        else:
            words = policy_in_words(str(summary[POLICY] or ""))
            yield Finding(Part.TABLE, "policy", Standing.OK, f"{_named(state)}: {words}")
        if state.trouble is Reason.ROLLED_BACK:
            for left in left_of(table, key_of(state)):
                said = f"{_named(state)}: {left.said}"
                yield Finding(Part.TABLE, "side table", Standing.FAILED, redact(said), redact(left.step))
        if state.trouble is None and key_of(state).ledger_tag not in table.metadata.refs:
            found = f"{_named(state)}: its ledger tag is missing, so a rollback after expiry is not noticed."
            fix = "Keep ledger_tag=True if the catalog supports tags; the next batch sets the tag."
            yield Finding(Part.TABLE, "tags", Standing.WARNING, found, fix)
    yield from check_changes(table, states)


def _sink(identifier: str, state: SinkState, taken: NextBatch | None) -> Finding:
    found = f"{_named(state)}: last batch {state.batch_id}, snapshot {state.snapshot_id}"
    if state.trouble is not None and taken is not None:
        found = f"{found} ({state.trouble.value}); the given checkpoint goes on with batch {taken.batch.batch_id}"
        return Finding(Part.TABLE, "sinks", Standing.OK, found)
    if awaits_replay(state):
        return Finding(Part.TABLE, "sinks", Standing.OK, found, of_replay(identifier, state))
    if state.trouble is not None:
        found = f"{found}; its next batch would be refused: {state.trouble.value}"
        log = f"lakesink log {identifier} --sink {state.sink}"
        fix = f"lakesink explain LAKESINK_{state.trouble.name}, and: {log}"
        return Finding(Part.TABLE, "sinks", Standing.FAILED, found, fix)
    if state.unverifiable:
        found = f"{found}; expiry removed the proof that it is in the branch; lakesink assumes that it is"
        fix = "Keep snapshots longer, or keep the ledger tag."
        return Finding(Part.TABLE, "sinks", Standing.WARNING, found, fix)
    return Finding(Part.TABLE, "sinks", Standing.OK, found)


def _summary_of(table: Table, state: SinkState) -> Summary | None:
    """That of the sink's last snapshot; None if it has expired."""
    snapshot = table.snapshot_by_id(state.snapshot_id) if state.snapshot_id is not None else None
    return None if snapshot is None else snapshot.summary


def _named(state: SinkState) -> str:
    return f"{key_of(state).label} into {_short(state.branch)}"


def _short(value: Any) -> str:
    text = redact(str(value))
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
