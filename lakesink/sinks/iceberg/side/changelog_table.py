"""The side table of all changes of a stream, and its messages: the changelog that downstream streams read."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from lakesink.rows.letters import SUFFIX
from lakesink.rows.plan import ChangesPlan
from lakesink.rows.schema import Field, Primitive, parse_schema
from lakesink.rows.task_errors import shown
from lakesink.settings.option_types import SchemaEvolution
from lakesink.settings.options import option_invalid
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.checked_receipts import CombinedReceipts
from lakesink.sinks.iceberg.schema_advice import commands
from lakesink.sinks.iceberg.side.side_batches import in_snapshots, left_behind, way_back
from lakesink.sinks.iceberg.side.side_sink import SideTableSink
from lakesink.sinks.iceberg.side.side_table import SideTable
from lakesink.task.changelog import METADATA, changelog_key, changelog_schema
from lakesink_catalog.commit.decision import Decision
from lakesink_catalog.commit.premises import Path
from lakesink_catalog.connect.catalog_failures import translated
from lakesink_catalog.tables.tables import find_table, parse_identifier
from lakesink_protocol.change import SchemaChange
from lakesink_protocol.errors import Reason, WriteError
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.redact import shown as redacted
from lakesink_protocol.refusals.texts import Words
from lakesink_protocol.row_changes import CHANGELOG_TABLE, DELETES, SUPERSEDED, logged_changes
from lakesink_protocol.votes import receipt_rejected

CHANGELOG_WORDS: Sequence[Words] = (
    Words(
        Reason.TABLE_REPLACED,
        "The changelog now has UUID {table_uuid}; this query wrote to {known_uuid}.",
        "If the old changelog was dropped by mistake, restore it, and start the query again.\n"
        "If a new changelog is wanted, name it with another name in the option changelog_table.",
    ),
    Words(
        Reason.REWOUND,
        "The changelog has just got the changes of batch {last}, and this is batch {n}.",
        "Look for a second query with the same sink id and stop it. Then start this one again.",
    ),
    Words(
        Reason.ROLLED_BACK,
        "The changelog was rolled back behind the changes of batch {last}; the newest in it are of {newest}.",
        "If the query's table still has the batches of which changes are missing ({undone}), roll the changelog forward"
        " again.\n"
        "If these batches are written again, nothing is missing: accept as below.\n"
        "If the query's table was rolled back too, no accept overrules both: rewind with `lakesink rewind`,"
        " or name another table with the option changelog_table.",
    ),
)
"""All can be met by a query whose own table is as it was."""


CHANGELOG = SideTable(
    "changes",
    "changelog_table",
    "CHANGELOG_DIFFERS",
    changelog_key,
    CHANGELOG_WORDS,
    "Start the query again as it was, over the same rows.",
    schema_evolution=SchemaEvolution.WIDEN,
    is_read=True,
)
"""Every change of a batch. New and wider columns of the table are followed."""


def changelog_columns(schema_json: str, changes: ChangesPlan, table: str) -> pa.Schema:
    """The columns of the changelog of a table; raises SettingsError if the table has one of lakesink's names."""
    columns = parse_schema(schema_json)
    own = {name.casefold() for name in METADATA.names}
    taken = next((one.name for one in columns.fields if one.name.casefold() in own), None)
    if taken is not None:
        raise option_invalid(
            "changelog_table",
            f"The option changelog_table cannot be used: {shown(table)} has a column {taken!r}, which a changelog has"
            " for itself.",
        )
    return changelog_schema(columns, changes)


def check_filled(changelog: str, schema_json: str, columns: pa.Schema) -> None:
    """Refuse a changelog of this schema with a NOT NULL column for which a change may have no value."""
    path = next(_unfilled(parse_schema(schema_json).fields, list(columns)), None)
    if path is not None:
        raise WriteError.of(
            "SCHEMA_MISMATCH.changelog_not_null",
            changelog=changelog,
            column=shown(".".join(path)),
            commands=commands(SchemaChange(optional=(path,)), parse_identifier(changelog)),
        )


def _unfilled(wanted: Iterable[Field], arriving: Iterable[pa.Field], path: Path = ()) -> Iterator[Path]:
    """The NOT NULL columns, also those within others, for which nullable ones arrive."""
    by_name = {one.name.lower(): one for one in arriving}
    for field in wanted:
        found, below = by_name.get(field.name.lower()), (*path, field.name)
        if found is None:
            continue  # the evolution has made it optional
        if field.required and found.nullable:
            yield below
        if not isinstance(field.type, Primitive):
            yield from _unfilled(field.type.fields, _parts(found.type), below)


def _parts(kind: pa.DataType) -> list[pa.Field]:
    """The fields of a nested type, under Iceberg's names."""
    if pa.types.is_map(kind):
        return [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    return [kind.value_field.with_name("element")] if pa.types.is_list(kind) else list(kind)


def check_changelog_name(table: str, name: str) -> None:
    """Refuse a malformed name, and those of the table and of its dead letters."""
    for taken, what in ((table, "the table itself"), (f"{table}{SUFFIX}", "the table of its dead letters")):
        if parse_identifier(name) == parse_identifier(taken):
            raise option_invalid("changelog_table", f"The option changelog_table is {name!r}, {what}.")


def check_changelog(counted: CombinedReceipts, changelog: SideTableSink, batch_id: int) -> None:
    """Check that the tasks wrote each change into the changelog, and nothing else."""
    changes = sum(file.record_count for file in counted.files) + counted.changed[DELETES] + counted.changed[SUPERSEDED]
    if changes != (changelog.voted[1] if changelog.voted[0] == batch_id else 0):
        raise receipt_rejected("a task wrote another number of changes into the changelog than it has")


def check_is_logged(decision: Decision, changelog: SideTableSink) -> None:
    """Refuse an empty changelog that, by the newest batch that the table has, has the changes of that: it was dropped.

    A changelog that was rolled back knows what it had, and its own verdict refuses it.
    """
    batch, seen = decision.situation.batch, decision.situation
    newest = seen.newest_mark if seen.rolled_back else seen.entry
    if newest is None or newest.query_id != batch.query_id:
        return
    its = (newest.query_id, newest.batch_id)
    summary = next((one.summary for mark, one in seen.own_marks if (mark.query_id, mark.batch_id) == its), None) or {}
    is_logged = summary.get(CHANGELOG_TABLE) == changelog.table and logged_changes(summary)
    if not is_logged or changelog.knows(batch):
        return
    raise WriteError.of(
        "CHANGELOG_DIFFERS.dropped", table=changelog.table, newest=newest.batch_id, batch_id=batch.batch_id
    )


def note_changelog(
    catalog: Catalog, table: Table, key: SinkKey, batch: Batch, name: str, changelog: str | None
) -> None:
    """Keep in a table, in the property of this name, where the changes of a sink go, before any is there.

    Raises:
        WriteError: The changelog that was kept has changes of this batch, and the query has another one, or none.
        CatalogError: The catalog failed.
    """
    if (known := table.properties.get(name)) is not None:
        _check_without_changes(catalog, known, table, key, batch)
    update: TableUpdate = RemovePropertiesUpdate(removals=[name])
    if changelog is not None:
        update = SetPropertiesUpdate(updates={name: changelog})
    same = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    translated("The catalog", catalog.properties, lambda: catalog.commit_table(table, same, (update,)))


def _check_without_changes(catalog: Catalog, changelog: str, table: Table, key: SinkKey, batch: Batch) -> None:
    """Refuse a batch of which an earlier run has written changes into this changelog: its readers have got them."""
    side = find_table(catalog, changelog)
    if side is None:
        return
    found = left_behind(side, changelog_key, key, table)
    left = [one for one in found if one.query_id == batch.query_id and one.batch_id >= batch.batch_id]
    back = way_back(side, left)
    if back is None:
        return  # none, or other batches came later: then another changelog is the way out that keeps theirs
    changelog = redacted(changelog, 200)
    raise WriteError.of(
        "CHANGELOG_DIFFERS.left",
        details=[in_snapshots(left)],
        changelog=changelog,
        newest=left[-1].batch_id,
        back=back,
        batch_id=batch.batch_id,
    )


def other_changelog(participant: str, settings: Settings) -> WriteError:
    """The error for a batch that was prepared for another changelog than the query's."""
    other = redacted(participant.removesuffix("@main"), 60)
    named = f"changelog_table={settings.changelog_table!r}" if settings.changelog_table else "no changelog_table"
    return WriteError.of("CHANGELOG_DIFFERS.other_table", other=other, named=named)
