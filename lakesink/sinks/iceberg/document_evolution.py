"""Merges what the documents of a batch bring, and decides how the table's schema follows them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import StructType

from lakesink.decode.news import MOST_KEYS, News, all_news
from lakesink.decode.value_kinds import DOUBLE, Kind, arrow_of, leaves_of, says_nothing, without_type
from lakesink.parquet.side_file import LEFT_ROWS, is_side_file, read_side_file
from lakesink.rows.plan import DEBEZIUM_JSON, DELETED, JSON, OnMalformed, WritePlan
from lakesink.rows.task_errors import schema_mismatch
from lakesink.settings.option_types import Deletes, SchemaEvolution
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import BatchWrite
from lakesink.sinks.iceberg.evolution import kept_types
from lakesink.sinks.iceberg.schema_advice import commands, difference_lines, new_column, unfit_name, unfit_names_within
from lakesink.task.task import check_columns
from lakesink_catalog.commit.evolution import ChangeImpossible, parse_type
from lakesink_catalog.commit.premises import Path, columns, former_names, is_promotion
from lakesink_catalog.connect.catalog_failures import translate_storage_errors
from lakesink_catalog.tables.locations import data_location
from lakesink_catalog.words import counted
from lakesink_protocol.change import ColumnType, SchemaChange
from lakesink_protocol.errors import WriteError
from lakesink_protocol.quality import LONGEST_NAME
from lakesink_protocol.receipt import Receipt
from lakesink_protocol.redact import redact, shown
from lakesink_protocol.votes import receipt_rejected

_DOUBLE = f'"{DOUBLE}"'
_RESERVED = ("_kafka_", "_lakesink_")
_MOST_NAMED = 10
_MOST_LEVELS = 20
"""Batch by batch, a column could grow deeper than libraries read a schema."""
_TOO_MANY, _OF_VALUES = (f"more than {MOST_KEYS:,} new keys",), "so many keys are rather values"


@dataclass(frozen=True, slots=True)
class Followed:
    """What becomes of the news of a batch.

    Attributes:
        change: The change of the schema; empty if no key can become a column.
        refused: Keys that cannot, by their paths, with the reasons.
    """

    change: SchemaChange
    refused: Mapping[Path, str]

    def refused_for_good(self, settings: Settings) -> list[Path]:
        """Those that no later batch can add either."""
        return [place for place, why in self.refused.items() if why != _limit(settings)]


def follow(
    receipts: Sequence[Receipt], write: BatchWrite, before: Table, settings: Settings
) -> tuple[Followed, BatchWrite]:
    """What becomes of the news of a batch, and the batch under the schema that follows them.

    `before` is the table without the batch.

    Raises:
        WriteError: The table must not follow the documents, or cannot.
    """
    table, batch_id = write.table, write.plan.batch_id
    try:
        found, after = possible(follow_documents(receipts, table, settings), partial(write.following, before))
    except ChangeImpossible as error:
        raise schema_mismatch(
            f"The table's schema cannot follow the documents: {error}.", action="Set schema_evolution='add'."
        ) from None
    if not after.table.schema().fields:
        raise WriteError.of(
            "SCHEMA_MISMATCH.no_columns",
            details=_reasons(found),
            table=shown(".".join(table.name()), LONGEST_NAME),
            batch_id=batch_id,
        )
    if settings.schema_evolution is SchemaEvolution.FAIL:
        raise _must_not(found, table.schema(), table.name(), batch_id)
    if found.refused and not settings.rescue_column and settings.on_malformed is OnMalformed.FAIL:
        raise WriteError.of(
            "SCHEMA_MISMATCH.no_columns_for_keys",
            details=_reasons(found),
            batch_id=batch_id,
            columns=_named(list(found.refused)),
        )
    return found, after


def follow_documents(receipts: Sequence[Receipt], table: Table, settings: Settings) -> Followed:
    """The change for the news in the receipts of all tasks; the same for any split of the documents into tasks.

    Raises:
        WriteError: The news are malformed.
    """
    try:
        news = all_news(receipt.news for receipt in receipts)
    except ValueError as error:
        raise receipt_rejected(str(error)) from None
    schema = table.schema()
    added, refused = _added(news, schema, former_names(table), settings)
    if settings.schema_evolution is SchemaEvolution.ADD:
        return Followed(SchemaChange(added), refused)
    present = {place: field for place, field in columns(schema).items() if place in news.optional and field.required}
    optional = sorted(place for place in present if present[place].field_id not in schema.identifier_field_ids)
    return Followed(SchemaChange(added, tuple(_widened(news, table, settings)), tuple(optional)), refused)


def possible(found: Followed, follow: Callable[[SchemaChange], BatchWrite]) -> tuple[Followed, BatchWrite]:
    """What the table can follow, key by key if not all together; raises ChangeImpossible if it cannot even widen."""
    try:
        return found, follow(found.change)
    except ChangeImpossible:
        change, refused = replace(found.change, added=()), dict(found.refused)
    for one in found.change.added:
        longer = replace(change, added=(*change.added, one))
        try:
            follow(longer)
        except ChangeImpossible:
            refused[one.column] = "another column or partition field of the table has its name"
        else:
            change = longer
    return Followed(change, refused), follow(change)


def widened_floats(found: Followed, plan: WritePlan, receipts: Iterable[Receipt]) -> SchemaChange | None:
    """The columns that tasks have written as FLOAT, though the batch makes them DOUBLE; None if there are none.

    JSON's 0.1 is one number as a FLOAT and another one as a DOUBLE. Avro's numbers and other types are exact in both.
    """
    doubles = tuple(one for one in found.change.widened if one.type_json == _DOUBLE)
    wrote = plan.decode in (JSON, DEBEZIUM_JSON) and any(receipt.files for receipt in receipts)
    return SchemaChange(widened=doubles) if doubles and wrote else None


def not_written_again(doubles: SchemaChange, schema: Schema, table: Path, batch_id: int) -> WriteError:
    """The error for columns that become DOUBLE after tasks have written FLOAT, where the job cannot run again."""
    return WriteError.of(
        "SCHEMA_MISMATCH.double_after_float",
        details=difference_lines(doubles, schema),
        batch_id=batch_id,
        columns=_named([one.column for one in doubles.widened]),
        commands=commands(doubles, table),
    )


def left_rows(receipts: Sequence[Receipt], write: BatchWrite) -> Iterator[pa.RecordBatch]:
    """The rows that the tasks of a batch left, from their files; raises WriteError for a file of another kind."""
    folder, stem, io = data_location(write.table), write.plan.file_stem, write.table.io
    schema: pa.Schema | None = None
    for receipt in receipts:
        assert receipt.left is not None
        if not is_side_file(receipt.left.path, folder, stem, receipt.task, LEFT_ROWS):
            raise receipt_rejected("the file of rows that a task left has the name of another task, batch or sink")
        opened = io.new_input(receipt.left.path)
        if translate_storage_errors(io.properties, opened.__len__) != receipt.left.size_bytes:
            raise receipt_rejected("the file of rows that a task left has another size")
        with translate_storage_errors(io.properties, opened.open) as source:
            for rows in _checked_rows(source, write.plan):
                if schema not in (None, rows.schema):
                    raise receipt_rejected("tasks left rows with different columns")
                schema = rows.schema
                yield rows


def _checked_rows(source: Any, plan: WritePlan) -> Iterator[pa.RecordBatch]:
    try:
        for rows in read_side_file(source):
            check_columns(rows.schema, plan)
            yield rows
    except (pa.ArrowException, OSError, ValueError, WriteError) as error:
        raise receipt_rejected("the file of rows that a task left cannot be read") from error


def _added(
    news: News, schema: Schema, former: Mapping[Path, Path], settings: Settings
) -> tuple[tuple[ColumnType, ...], dict[Path, str]]:
    present = {path: field.name for path, field in columns(schema).items()}
    taken = {(*path[:-1], path[-1].casefold()) for path in present} | {(settings.rescue_column.casefold(),)}
    heard = {place: kind for place, kind in news.added.items() if not says_nothing(kind)}
    spelled = Counter(map(_folded, heard))
    renamed = {_folded(place): now for place, now in former.items()}
    added: list[ColumnType] = []
    refused: dict[Path, str] = dict.fromkeys([_TOO_MANY], _OF_VALUES) if news.has_too_many else {}
    room = settings.max_new_columns
    for place in sorted(heard):
        kind, arrow, leaves = heard[place], arrow_of(heard[place]), leaves_of(heard[place])
        why = _not_of_documents(place, settings)
        if place in present and not why:
            continue
        if not why and (spelled[_folded(place)] > 1 or _folded(place) in taken):
            why = "another key or column differs from it only in case"
        if not why and _folded(place) in renamed:
            why = f"the table's column {_safe(renamed[_folded(place)])} had this name before it was renamed"
        why = why or _why_not(place, kind, schema)
        if not why and leaves > room:
            why = _limit(settings)
        if why:
            refused[place] = why
        elif arrow is not None:
            room -= leaves
            added.append(new_column(place, arrow))
            refused |= dict(without_type(place, kind))
    return tuple(added), refused


def _folded(place: Path) -> Path:
    return (*place[:-1], place[-1].casefold())


def _limit(settings: Settings) -> str:
    return f"a batch can add {counted(settings.max_new_columns, 'column')} (max_new_columns)"


def _not_of_documents(place: Path, settings: Settings) -> str:
    """Why a key has the name of a column that does not come from documents; empty if it has not."""
    if place == ("",):
        return "its name is empty"
    reserved = next((begin for begin in _RESERVED if place[0].casefold().startswith(begin)), "")
    if len(place) == 1 and reserved:
        return f"names that begin with {reserved} are reserved"
    if place == (DELETED,) and settings.deletes is Deletes.SOFT:
        return "deletes='soft' fills the column of this name itself"
    return "it is the name of the rescue column" if place == (settings.rescue_column,) else ""


def _why_not(place: Path, kind: Kind, schema: Schema) -> str:
    """Why a key cannot become a column; empty if it can."""
    arrow = arrow_of(kind)
    if arrow is None:
        return next(why for _, why in without_type(place, kind))
    if len(place) + _levels(arrow) > _MOST_LEVELS:
        return f"a column can have at most {_MOST_LEVELS} levels"
    if len(place) > 1:
        parent = columns(schema).get(place[:-1])
        if parent is None or not isinstance(parent.field_type, StructType):
            return "the table has no STRUCT for it"
    if not all(map(str.isprintable, (place[-1], *_names_in(arrow)))):
        return "its name has characters that are not printable"
    return unfit_name(place[-1], None, is_column=len(place) == 1) or unfit_names_within(place, arrow)


def _levels(kind: pa.DataType) -> int:
    return max((1 + _levels(kind.field(number).type) for number in range(kind.num_fields)), default=0)


def _names_in(kind: pa.DataType) -> Iterator[str]:
    for number in range(kind.num_fields):
        yield kind.field(number).name
        yield from _names_in(kind.field(number).type)


def _widened(news: News, table: Table, settings: Settings) -> Iterator[ColumnType]:
    present, kept = columns(table.schema()), kept_types(table, settings)
    for place, name in sorted(news.widened.items()):
        wide, field = parse_type(f'"{name}"'), present.get(place)
        if field is not None and field.field_id not in kept and is_promotion(field.field_type, wide):
            yield ColumnType(place, wide.model_dump_json())


def _must_not(found: Followed, schema: Schema, table: Path, batch_id: int) -> WriteError:
    change = found.change
    needed = SchemaEvolution.WIDEN if change.widened or change.optional else SchemaEvolution.ADD
    follows = change != SchemaChange()
    names = [*(one.column for one in (*change.added, *change.widened)), *change.optional, *found.refused]
    return WriteError.of(
        "SCHEMA_MISMATCH.documents",
        details=(*(difference_lines(change, schema) if follows else ()), *_reasons(found)),
        batch_id=batch_id,
        columns=_named(names),
        evolution=needed if follows else None,
        commands=commands(change, table) if follows else (),
    )


def _reasons(found: Followed) -> list[str]:
    return [f"{_safe(place)}: {why}" for place, why in list(found.refused.items())[:_MOST_NAMED]]


def _named(names: Sequence[Path]) -> str:
    said = ", ".join(map(_safe, names[:_MOST_NAMED]))
    return said if len(names) <= _MOST_NAMED else f"{said} and {len(names) - _MOST_NAMED} more"


def _safe(place: Path) -> str:
    return redact(shown(".".join(place), LONGEST_NAME))
