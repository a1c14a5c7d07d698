"""Checks that statistics are possible for a file. They are not compared with the file: a task answers for its rows.

Impossible statistics in manifests would make readers fail, or skip files, much later.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakesink_protocol.change import ContentFile

_WIDTHS: Mapping[type[IcebergType], range] = {
    BooleanType: range(1, 2),
    **dict.fromkeys((IntegerType, FloatType, DateType), range(4, 5)),
    **dict.fromkeys((LongType, DoubleType, TimeType, TimestampType, TimestamptzType), range(8, 9)),
    DecimalType: range(1, 17),
    UUIDType: range(16, 17),
}
_ANY = range(2**31)
Check = Callable[[bytes], bool]
"""True if a bound can be a value of its column."""


def checks_of(schema: Schema) -> dict[int, Check]:
    """The check for bounds of each column, by field id."""
    return {field_id: _check(field.field_type) for field_id, field in index_by_id(schema).items()}


def counts_agree(file: ContentFile) -> bool:
    """True if no column has more NULLs or NaNs than values, and the row groups' offsets ascend within the file."""
    values = file.value_counts
    counted = (*file.null_value_counts.items(), *file.nan_value_counts.items())
    ascending = all(before < after for before, after in pairwise(file.split_offsets))
    within = not file.split_offsets or file.split_offsets[-1] < file.file_size_bytes
    return ascending and within and all(count <= values.get(field_id, 0) for field_id, count in counted)


def bounds_fit(file: ContentFile, checks: Mapping[int, Check]) -> bool:
    """True if every bound belongs to a column of the schema and can be a value of its type."""
    bounds = (*file.lower_bounds.items(), *file.upper_bounds.items())
    return all(field_id in checks and checks[field_id](bound) for field_id, bound in bounds)


def _check(kind: IcebergType) -> Check:
    if isinstance(kind, StringType):
        return _is_text
    allowed = range(len(kind) + 1) if isinstance(kind, FixedType) else _WIDTHS.get(type(kind), _ANY)
    return lambda bound: len(bound) in allowed


def _is_text(bound: bytes) -> bool:
    try:
        bound.decode()
    except UnicodeDecodeError:
        return False
    return True
