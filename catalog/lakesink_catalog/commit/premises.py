"""The schema, the specs and the sort orders that data files were written under, compared by content. Pure.

An id is no proof: catalogs can assign the id of a removed one again.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg import types
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID, SortOrder

Path = tuple[str, ...]
DIGEST_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Premises:
    """Schema of all files of a batch, and their partition specs and sort orders, each once."""

    schema: Schema
    specs: tuple[PartitionSpec, ...]
    orders: tuple[SortOrder, ...] = ()

    @property
    def ids(self) -> tuple[int, tuple[int, ...]]:
        """Ids of the schema and of the specs."""
        return self.schema.schema_id, tuple(spec.spec_id for spec in self.specs)

    @property
    def digest(self) -> str:
        """Digest of the content."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:DIGEST_LENGTH]

    def hold_in(self, metadata: TableMetadata) -> bool:
        """True if the ids mean the same in the table as when the files were written."""
        found = premises_of(metadata, *self.ids)
        return found is not None and self.specs_hold_in(metadata) and _are_equal(found.schema, self.schema)

    def specs_hold_in(self, metadata: TableMetadata) -> bool:
        """True if the ids of specs and orders mean the same in the table as when the files were written."""
        present = {spec.spec_id: spec for spec in metadata.partition_specs}
        orders = {order.order_id: order for order in metadata.sort_orders}
        same_orders = all(orders.get(order.order_id) == order for order in self.orders)
        return same_orders and all(present.get(spec.spec_id) == spec for spec in self.specs)

    def to_json(self) -> dict[str, Any]:
        """JSON form for the prepared record; that of files without an order has none."""
        orders = [json.loads(order.model_dump_json()) for order in self.orders]
        return {
            "schema": json.loads(self.schema.model_dump_json()),
            "specs": [json.loads(spec.model_dump_json()) for spec in self.specs],
        } | ({"orders": orders} if orders else {})

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Premises":
        """The inverse of `to_json`; raises ValueError if the document is malformed."""
        try:
            document["schema"]["fields"]  # PyIceberg would take it for empty; only a new table's can be
            schema = Schema.model_validate_json(json.dumps(document["schema"]))
            specs = tuple(PartitionSpec.model_validate_json(json.dumps(spec)) for spec in document["specs"])
            orders = tuple(SortOrder.model_validate_json(json.dumps(one)) for one in document.get("orders", ()))
        except Exception as error:  # PyIceberg checks neither names nor types before it indexes them
            raise ValueError("not a schema with its partition specs") from error
        return cls(schema, specs, orders)


def premises_of(
    metadata: TableMetadata, schema_id: int, spec_ids: Iterable[int], order_ids: Iterable[int] = ()
) -> Premises | None:
    """The schema, the specs and the orders of these ids in a table; None if the table lacks one of them."""
    schemas = {schema.schema_id: schema for schema in metadata.schemas}
    specs = {spec.spec_id: spec for spec in metadata.partition_specs}
    orders = {order.order_id: order for order in metadata.sort_orders}
    wanted, ordered = sorted(set(spec_ids)), sorted({*order_ids} - {UNSORTED_SORT_ORDER_ID})
    if schema_id not in schemas or not specs.keys() >= set(wanted) or not orders.keys() >= set(ordered):
        return None
    return Premises(schemas[schema_id], tuple(specs[one] for one in wanted), tuple(orders[one] for one in ordered))


def is_compatible(written: Schema, present: Schema) -> bool:
    """True if files of one schema show the same values under another schema of the table.

    A field that is required now must have been required then. No field may have been dropped and added again under its
    name: readers use field ids and would find no value. No written type may be wider than the current one.
    """
    before, now = columns(written), columns(present)
    by_id = {field.field_id: field for field in before.values()}
    folded = {_folded(path) for path in before}
    for path, field in now.items():
        known = by_id.get(field.field_id)
        if path in before and before[path].field_id != field.field_id:
            return False
        if known is None and (field.required or _folded(path) in folded):
            return False
        if known is not None and (field.required and not known.required):
            return False
        if known is not None and not _holds(field.field_type, known.field_type):
            return False
    return True


def is_promotion(narrow: types.IcebergType, wide: types.IcebergType) -> bool:
    """True if Iceberg can promote a column from the type `narrow` to the other type `wide`."""
    match narrow, wide:
        case (types.IntegerType(), types.LongType()) | (types.FloatType(), types.DoubleType()):
            return True
        case types.DecimalType(), types.DecimalType():
            return narrow.scale == wide.scale and narrow.precision < wide.precision
    return False


def columns(schema: Schema) -> dict[Path, types.NestedField]:
    """Every field by its path of names, with the elements of lists and the keys and values of maps."""
    return dict(pair for field in schema.fields for pair in _with_inner((), field))


def former_names(table: Table) -> dict[Path, Path]:
    """Names that present fields had in earlier schemas, as far as the table still has these, with the present ones."""
    present = {field.field_id: path for path, field in columns(table.schema()).items()}
    return {
        (*present[field.field_id][:-1], field.name): present[field.field_id]
        for schema in table.schemas().values()
        for field in columns(schema).values()
        if field.field_id in present and field.name != present[field.field_id][-1]
    }


def _are_equal(one: Schema, other: Schema) -> bool:
    """PyIceberg takes a schema without columns for none, and so for different from itself."""
    return (one.fields, one.identifier_field_ids) == (other.fields, other.identifier_field_ids)


def _with_inner(above: Path, field: types.NestedField) -> Iterator[tuple[Path, types.NestedField]]:
    path = (*above, field.name)
    yield path, field
    for inner in _inner(field.field_type):
        yield from _with_inner(path, inner)


def _inner(field_type: types.IcebergType) -> tuple[types.NestedField, ...]:
    match field_type:
        case types.StructType(fields=fields):
            return fields
        case types.ListType():
            return (field_type.element_field,)
        case types.MapType():
            return field_type.key_field, field_type.value_field
    return ()


def _folded(path: Path) -> Path:
    return tuple(name.casefold() for name in path)


def _holds(present: types.IcebergType, written: types.IcebergType) -> bool:
    """True if the current type can hold every written value; fields of nested types are compared one by one."""
    if not isinstance(written, types.PrimitiveType):
        return type(written) is type(present)
    return written == present or is_promotion(written, present)
