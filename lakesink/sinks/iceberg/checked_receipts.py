"""Validates the receipts of a batch: one for each task, for this batch, with a schema and spec of the table.

Receipts come from less trusted processes, and another process may have planned the tasks. Statistics must be possible,
but are not compared with the file: the task is responsible for its rows. Impossible statistics in manifests would make
readers fail, or skip files, much later.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import le, lt

from pyiceberg import types
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table

from lakesink.keys.keys_file import is_keys_file
from lakesink.parquet.locations import is_location
from lakesink.rows.expectations import Expected, OnUnmet
from lakesink_catalog.commit.premises import premises_of
from lakesink_catalog.tables.locations import all_under, data_location, is_under
from lakesink_catalog.words import counted
from lakesink_protocol.change import ContentFile
from lakesink_protocol.errors import WriteError
from lakesink_protocol.measures import DEAD_LETTERS, RESCUED_ROWS, UNMET_ROWS, Tally
from lakesink_protocol.quality import OTHERS, Quality, together
from lakesink_protocol.receipt import MOST_MISFITS, Misfit, Receipt, decode
from lakesink_protocol.receipt_json import MOST_IN_A_BATCH, ReceiptInvalid
from lakesink_protocol.row_changes import DELETES, SPLITS, SUPERSEDED, TOMBSTONES, KeysFile
from lakesink_protocol.votes import check_tasks, receipt_rejected

_ROOM = 165
"""Characters available for a first line after its code."""


def check_documents(receipts: Sequence[Receipt], batch_id: int) -> None:
    """Refuse a batch with malformed documents. A task that has found one judges no further rows."""
    if any(receipt.malformed for receipt in receipts):
        malformed = counted(sum(receipt.malformed for receipt in receipts), "malformed document")
        at_least = "At least " if any(len(receipt.misfits) == MOST_MISFITS for receipt in receipts) else ""
        what = _with_first(f"{at_least}{malformed} in batch {batch_id}", receipts)
        ordered = sorted(receipts, key=lambda receipt: receipt.task)
        details = [_in_words(misfit) for receipt in ordered for misfit in receipt.misfits][:MOST_MISFITS]
        raise WriteError.of("VALUE_MALFORMED.refused", details=details, what=what, batch_id=batch_id)


def _with_first(what: str, receipts: Sequence[Receipt]) -> str:
    """A first line that ends with the first malformed value; a long place is cut at its start."""
    first = next((misfit for receipt in receipts for misfit in receipt.misfits), None)
    if first is None:
        return f"{what}."
    what = f"{what}; the first: "
    room = _ROOM - len(what) - len(_in_words(replace(first, place="")))
    place = first.place if len(first.place) <= room else f"...{first.place[3 - max(room, 24) :]}"
    return f"{what}{_in_words(replace(first, place=place))}."


def _in_words(misfit: Misfit) -> str:
    """One malformed value: place, column, expected type and found value."""
    column = f"column {misfit.column}: " if misfit.column else ""
    return f"{misfit.place}: {column}{misfit.expected} expected, found {misfit.found}"


def _found_in(receipts: Sequence[Receipt], expected: Sequence[Expected]) -> Quality:
    """What all tasks have found. Spark makes none of an empty batch, which has met every expectation too."""
    met = dict.fromkeys((one.name for one in expected), 0)
    return together([Quality(unmet=met), *(one.quality for one in receipts)])


def check_expectations(receipts: Sequence[Receipt], expected: Sequence[Expected], batch_id: int) -> None:
    """Refuse a batch if a row does not meet an expectation that fails the batch. Rows that tasks left count once."""
    unmet = _found_in(receipts, expected).unmet
    failed = [one for one in expected if one.on_unmet is OnUnmet.FAIL and unmet[one.name]]
    if not failed:
        return
    worst = max(failed, key=lambda one: unmet[one.name])
    rows = sum(receipt.rows for receipt in receipts) - _left(receipts)
    verb = "does" if unmet[worst.name] == 1 else "do"
    more = f", and {len(failed) - 1} more expectations" if len(failed) > 2 else ", and one more" if failed[1:] else ""
    raise WriteError.of(
        "EXPECTATION_UNMET",
        details=[f"{one.name}: {counted(unmet[one.name], 'row')}" for one in failed],
        unmet=unmet[worst.name],
        rows=counted(rows, "row"),
        batch_id=batch_id,
        verb=verb,
        name=worst.name,
        more=more,
    )


def judged(receipts: Sequence[Receipt], expected: Sequence[Expected], batch_id: int) -> Quality:
    """What all tasks have found in their rows; raises WriteError if it is impossible, or refuses the batch."""
    check_tasks(receipt.task for receipt in receipts)
    for receipt in receipts:
        _check_quality(receipt, expected)
    check_documents(receipts, batch_id)
    check_expectations(receipts, expected, batch_id)
    return _found_in(receipts, expected)


_WIDTHS: Mapping[type[types.IcebergType], range] = {
    types.BooleanType: range(1, 2),
    **dict.fromkeys((types.IntegerType, types.FloatType, types.DateType), range(4, 5)),
    **dict.fromkeys(
        (types.LongType, types.DoubleType, types.TimeType, types.TimestampType, types.TimestamptzType), range(8, 9)
    ),
    types.DecimalType: range(1, 17),
    types.UUIDType: range(16, 17),
}
_ANY = range(2**31)


@dataclass(frozen=True, slots=True)
class CombinedReceipts:
    """The combined receipts of a batch.

    `rows` are those that the tasks received.

    Attributes:
        keys_files: One of each task that wrote changes, in the order of the tasks.
        changed: What the tasks counted of changes by key.
    """

    files: tuple[ContentFile, ...]
    schema: Schema
    quality: Quality
    rows: int
    keys_files: tuple[KeysFile, ...] = ()
    changed: Tally = field(default_factory=Tally)


def count_votes(
    encoded: Sequence[bytes],
    table: Table,
    file_stem: str,
    batch_id: int,
    expected: Sequence[Expected] = (),
    *,
    rest: Table | None = None,
    changes_by_key: bool = False,
) -> CombinedReceipts:
    """Combine the receipts; raises WriteError unless every receipt is valid and none refuses the batch.

    `table` is the one that tasks wrote under, and `rest` that for the rows that they left, if they left any: these have
    the last receipt. `changes_by_key` is true if the rows are changes, and false if they are only appended.
    """
    receipts = sorted(map(decoded, encoded), key=lambda receipt: receipt.task)
    of_job, left = (receipts, []) if rest is None else (receipts[:-1], receipts[-1:])
    groups = [(table, of_job)] if rest is None or not left else [(table, of_job), (rest, left)]
    for under, some in groups:
        for receipt in some:
            _check_receipt(under, receipt, file_stem)
            _check_changes(under, receipt, file_stem, changes_by_key=changes_by_key)
    _check_rest(left, of_job)
    quality = judged(receipts, expected, batch_id)
    files = tuple(file for receipt in receipts for file in receipt.files)
    if len({file.path for file in files}) != len(files):
        raise receipt_rejected("a data file is listed twice")
    if max(sum(file.record_count for file in files), sum(file.file_size_bytes for file in files)) > MOST_IN_A_BATCH:
        raise receipt_rejected("the batch has more rows or bytes than the limit")
    schemas = [_written_under(under, some) for under, some in groups]
    for under, some in groups:
        _check_premises(under, some)
    return CombinedReceipts(
        files,
        schemas[-1],
        quality,
        sum(receipt.rows for receipt in of_job),
        keys_files=tuple(receipt.keys for receipt in receipts if receipt.keys is not None),
        changed=Tally.total(receipt.changed for receipt in receipts),
    )


def is_data_file(path: str, folder: str, file_stem: str, task: int | None = None) -> bool:
    """True if a task of this batch can have chosen this path for a data file below the folder."""
    return is_under(path, folder) and is_location(path, folder, file_stem, task)


def decoded(data: bytes) -> Receipt:
    """The receipt in these bytes; raises WriteError if there is none."""
    try:
        return decode(data)
    except ReceiptInvalid as error:
        raise receipt_rejected(str(error)) from None


def _check_receipt(table: Table, receipt: Receipt, file_stem: str) -> None:
    written = sum(file.record_count for file in receipt.files)
    left = 0 if receipt.left is None else receipt.left.rows
    changed, aside = receipt.changed[DELETES] + receipt.changed[SUPERSEDED], receipt.quality.counts[DEAD_LETTERS]
    if not receipt.refused and receipt.changes != written + aside + left + changed:
        raise receipt_rejected("a task received another number of rows than its files and dead letters contain")
    folder = data_location(table)
    if not all_under((file.path for file in receipt.files), folder):
        raise receipt_rejected("a data file is outside the table's data location")
    if not all(is_location(file.path, folder, file_stem, receipt.task) for file in receipt.files):
        raise receipt_rejected("a data file has the name of another task, batch or sink")
    specs = table.specs()
    if any(not _fits_its_spec(file, specs) for file in receipt.files):
        raise receipt_rejected("a data file is empty, or has a partition spec that the table does not have")
    if not all(counts_agree(file) for file in receipt.files):
        raise receipt_rejected("the statistics of a data file contradict each other")


def _check_changes(table: Table, receipt: Receipt, file_stem: str, *, changes_by_key: bool) -> None:
    """Check the file of keys, and that a task changes rows by key only if it should."""
    keys = receipt.keys
    if receipt.changes_by_key and not changes_by_key:
        raise receipt_rejected("a task changed rows by key, but its rows were to be appended")
    if max(receipt.changed[SPLITS], receipt.changed[TOMBSTONES]) > receipt.rows:
        raise receipt_rejected("a task split more rows than it received")
    if not changes_by_key:
        return
    written = receipt.changed[DELETES] + sum(file.record_count for file in receipt.files)
    if written != (0 if keys is None else keys.rows) or (receipt.refused and keys is not None):
        raise receipt_rejected("a task's file of keys has another number of changes than the task wrote")
    if keys is None:
        return
    if not is_under(keys.path, data_location(table)):
        raise receipt_rejected("a file of keys is outside the table's data location")
    if keys.task != receipt.task or not is_keys_file(keys.path, data_location(table), file_stem, receipt.task):
        raise receipt_rejected("a file of keys has the name of another task, batch or sink")
    if not keys.size_bytes:
        raise receipt_rejected("a file of keys is empty")


def _check_quality(receipt: Receipt, expected: Sequence[Expected]) -> None:
    counts, unmet = receipt.quality.counts, receipt.quality.unmet
    of_rows = [receipt.malformed, *(count for one, count in counts.items() if one.is_of_rows)]
    if max(of_rows) > receipt.rows:
        raise receipt_rejected("a task reports more malformed or unexpected rows than it received")
    if receipt.malformed and not receipt.refused:
        raise receipt_rejected("a task found malformed documents, and did not refuse the batch")
    _check_rescued(receipt)
    if set(unmet) != {one.name for one in expected}:
        raise receipt_rejected("a task counted other expectations than those of the query")
    reasons = receipt.malformed + sum(unmet[one.name] for one in expected if one.on_unmet is OnUnmet.FAIL)
    if receipt.refused and (receipt.files or not reasons):
        raise receipt_rejected("a task refused the batch, but wrote files or gave no reason")
    if not max(unmet.values(), default=0) <= counts[UNMET_ROWS] <= sum(unmet.values()):
        raise receipt_rejected("a task's counts of expectations contradict each other")


def _check_rest(rest: Sequence[Receipt], of_job: Sequence[Receipt]) -> None:
    """Check the receipt for the rows that the tasks of the job left; a changelog's says nothing of such rows."""
    left = _left(of_job)
    if left not in (0, sum(receipt.rows for receipt in rest)) or any(receipt.left is not None for receipt in rest):
        raise receipt_rejected("the driver wrote another number of rows than the tasks left")


def _left(receipts: Iterable[Receipt]) -> int:
    return sum(receipt.left.rows for receipt in receipts if receipt.left is not None and not receipt.refused)


def _written_under(table: Table, receipts: Sequence[Receipt]) -> Schema:
    """The schema of all files. An earlier process may have planned the tasks: the commit checks if it still holds."""
    schema_ids = {receipt.schema_id for receipt in receipts} or {table.schema().schema_id}
    known = [schema for schema in table.metadata.schemas if schema_ids == {schema.schema_id}]
    if not known:
        raise receipt_rejected("tasks used different schemas, or one that the table does not have")
    if not bounds_fit((file for receipt in receipts for file in receipt.files), known[0]):
        raise receipt_rejected("a bound is not a value of its column's type")
    return known[0]


def _check_premises(table: Table, receipts: Sequence[Receipt]) -> None:
    """Compare digests: tasks may have been planned before the id of a schema or spec was reused."""
    for schema_id, spec_id, order_id, digest in {
        (receipt.schema_id, file.spec_id, file.sort_order_id, receipt.premises)
        for receipt in receipts
        for file in receipt.files
    }:
        premises = None if schema_id is None else premises_of(table.metadata, schema_id, [spec_id], [order_id])
        if premises is None or premises.digest != digest:
            raise receipt_rejected("the id of a data file's schema, spec or order now means another one")


def _fits_its_spec(file: ContentFile, specs: Mapping[int, PartitionSpec]) -> bool:
    spec = specs.get(file.spec_id)
    fits = spec is not None and len(file.partition) == len(spec.fields)
    return fits and file.record_count > 0 and file.file_size_bytes > 0


def counts_agree(file: ContentFile) -> bool:
    """True if no column has more NULLs or NaNs than values, and the row groups' offsets ascend within the file."""
    offsets, values = file.split_offsets, file.value_counts
    ascending = all(map(lt, offsets, offsets[1:]))
    within = not offsets or offsets[-1] < file.file_size_bytes
    counted = [counts for counts in (file.null_value_counts, file.nan_value_counts) if any(counts.values())]
    return (
        ascending and within and all(all(map(le, each.values(), map(values.get, each, repeat(0)))) for each in counted)
    )


def bounds_fit(files: Iterable[ContentFile], schema: Schema) -> bool:
    """True if every bound belongs to a column of the schema and can be a value of its type."""
    kinds = {field_id: field.field_type for field_id, field in index_by_id(schema).items()}
    sizes = {
        field_id: range(len(kind) + 1) if isinstance(kind, types.FixedType) else _WIDTHS.get(type(kind), _ANY)
        for field_id, kind in kinds.items()
    }
    maps = [bounds for file in files for bounds in (file.lower_bounds, file.upper_bounds)]
    shapes = {(tuple(bounds), tuple(map(len, bounds.values()))) for bounds in maps}
    wide = all(
        width in sizes.get(field_id, ())
        for field_ids, widths in shapes
        for field_id, width in zip(field_ids, widths, strict=True)
    )
    return wide and all(
        _are_texts([each[field_id] for each in maps if field_id in each])
        for field_id, kind in kinds.items()
        if isinstance(kind, types.StringType)
    )


def _are_texts(bounds: Sequence[bytes]) -> bool:
    """True if each is UTF-8. Together they are only if each is: no byte below 128 is a part of another character."""
    try:
        b"\0".join(bounds).decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_rescued(receipt: Receipt) -> None:
    """Refuse counts of rescued rows that contradict each other."""
    rescued, rows = receipt.quality.rescued, receipt.quality.counts[RESCUED_ROWS]
    by_reason = [count for reason, count in rescued.items() if reason != OTHERS]
    if rescued.get(OTHERS, 0) > MOST_IN_A_BATCH:
        raise receipt_rejected("a task reports more reasons of rescued rows than the limit")
    if not max(by_reason, default=0) <= rows <= sum(rescued.values()):
        raise receipt_rejected("a task's counts of rescued rows contradict each other")
