"""The columns that a part, a file of Parquet, stores without loss."""

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from lakesink.rows.libraries import check_library
from lakesink.rows.task_errors import shown
from lakesink_catalog.spark_types import sql_type
from lakesink_protocol.errors import WriteError

_TYPES = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_date32,
    pa.types.is_time,
    pa.types.is_timestamp,
)


def check_part_schema(schema: pa.Schema) -> None:
    """Refuse columns that a part does not store, or that readers cannot distinguish, and an old PyArrow."""
    check_library("pyarrow", pa.__version__)
    doubled = [name for name, count in Counter(name.casefold() for name in schema.names).items() if count > 1]
    if not schema.names:
        raise WriteError.of("COLUMNS_AMBIGUOUS.none")
    if doubled:
        raise WriteError.of("COLUMNS_AMBIGUOUS", column=shown(doubled[0]))
    for field in schema:
        for path, kind, why in _unsuitable(field.name, field.type):
            raise WriteError.of(
                "TYPE_UNSUPPORTED.in_files", shown=shown(path), kind=shown(sql_type(kind)), why=why, column=path
            )


def _unsuitable(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType, str]]:
    if pa.types.is_struct(kind):
        if kind.num_fields == 0:
            yield path, kind, "a struct needs at least one field"
        if len({part.name.casefold() for part in kind}) < kind.num_fields:
            yield path, kind, "two of its field names are equal if case is ignored"
        for part in kind:
            yield from _unsuitable(f"{path}.{part.name}", part.type)
    elif pa.types.is_map(kind):
        yield from _unsuitable(f"{path}.key", kind.key_type)
        yield from _unsuitable(f"{path}.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _unsuitable(f"{path}.element", kind.value_type)
    elif not any(is_kind(kind) for is_kind in _TYPES):
        yield path, kind, "Parquet files cannot store it without loss"
