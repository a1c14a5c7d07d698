"""Metrics modes of columns (``write.metadata.metrics.*``), by the rules of Iceberg's Java library."""

import re
from collections.abc import Iterator, Mapping, Sequence

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

METRICS_PREFIX = "write.metadata.metrics."
DEFAULT_MODE = "truncate(16)"
MAX_INFERRED_COLUMNS = 100
_COLUMN_PREFIX = f"{METRICS_PREFIX}column."
_MODE = re.compile(r"none|counts|full|truncate\(([1-9]\d{0,8})\)")


def metrics_modes(properties: Mapping[str, str], schema: Schema) -> dict[int, str]:
    """Metrics mode of each leaf column by field id: ``none``, ``counts``, ``truncate(n)`` or ``full``.

    An invalid mode counts as `DEFAULT_MODE`. Without a configured default, only the first
    ``max-inferred-column-defaults`` leaf columns get statistics, upper levels first. Columns inside lists and maps get
    ``counts`` at most, because Iceberg has no bounds for them.
    """
    configured = properties.get(f"{METRICS_PREFIX}default")
    default = DEFAULT_MODE if configured is None else _mode(configured)
    limit = _limit(properties) if configured is None else None
    modes: dict[int, str] = {}
    for place, (field_id, repeated) in enumerate(_leaves(schema.fields)):
        name = schema.find_column_name(field_id)
        own = properties.get(f"{_COLUMN_PREFIX}{name}")
        mode = _mode(own) if own is not None else "none" if limit is not None and place >= limit else default
        modes[field_id] = "counts" if repeated and mode != "none" else mode
    return modes


def _mode(text: str) -> str:
    word = text.strip().lower()
    return word if _MODE.fullmatch(word) else DEFAULT_MODE


def _limit(properties: Mapping[str, str]) -> int:
    text = properties.get(f"{METRICS_PREFIX}max-inferred-column-defaults", "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else MAX_INFERRED_COLUMNS


def _leaves(fields: Sequence[NestedField], *, repeated: bool = False) -> Iterator[tuple[int, bool]]:
    """Field ids of leaf columns, upper levels first; the flag is True inside a list or map."""
    for field in fields:
        if isinstance(field.field_type, PrimitiveType):
            yield field.field_id, repeated
    for field in fields:
        inner, within = _members(field.field_type)
        yield from _leaves(inner, repeated=repeated or within)


def _members(outer: IcebergType) -> tuple[Sequence[NestedField], bool]:
    if isinstance(outer, StructType):
        return outer.fields, False
    if isinstance(outer, ListType):
        return (outer.element_field,), True
    if isinstance(outer, MapType):
        return (outer.key_field, outer.value_field), True
    return (), False
