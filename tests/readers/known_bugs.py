"""What readers get wrong by themselves, as narrowly as it can be said, with reader and version."""

from typing import Any

from pyiceberg.table import Table
from pyiceberg.types import FixedType, IcebergType, ListType, MapType, StructType, UUIDType


def lists_of_structs_are_never_null(kind: IcebergType, value: Any) -> Any:
    """PyIceberg 0.12.0 reads a NULL list or map of structs as an empty one."""
    match kind:
        case StructType() if value is not None:
            return {f.name: lists_of_structs_are_never_null(f.field_type, value[f.name]) for f in kind.fields}
        case ListType(element_type=StructType() as element):
            return [lists_of_structs_are_never_null(element, part) for part in value or []]
        case MapType(value_type=StructType() as struct):
            return [(key, lists_of_structs_are_never_null(struct, part)) for key, part in value or []]
        case _:
            return value


def rust_reads_manifests(table: Table) -> bool:
    """Iceberg's Rust library 0.10.1 cannot read a partition by uuid, nor one by two columns of the same `fixed`."""
    return all(_rust_reads(spec.partition_type(table.schema())) for spec in table.specs().values())


def _rust_reads(partition: StructType) -> bool:
    kinds = [field.field_type for field in partition.fields]
    fixed = [kind for kind in kinds if isinstance(kind, FixedType)]
    return not any(isinstance(kind, UUIDType) for kind in kinds) and len(set(fixed)) == len(fixed)
