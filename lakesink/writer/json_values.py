"""JSON documents as Arrow arrays of a table's type, by DuckDB, which opens them faster than anything else for Python.

DuckDB is asked for texts alone: of its own conversions many lose without a word (1.5 as a whole number is 2). What is
a scalar is parsed from its text, see `json_scalars`; what is nested is opened again, so that every level is checked.
"""

import json
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.writer.json_scalars import Parsed, either, parse, wants_json, without
from lakesink.writer.nested import as_list, rebuild_list, rebuild_map, rebuild_struct
from lakesink.writer.refusals import decoder_missing
from lakesink.writer.schema import Field, ListOf, MapOf, Primitive, Struct, Type, arrow_type

_BLANKS = " \t\r\n"
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {"threads": 1, "enable_external_access": False}


@dataclass(slots=True)
class JsonReader:
    """Reads documents for one task; what DuckDB needs is opened with it."""

    _duckdb: Any = field(init=False)
    _connection: Any = field(init=False)

    def __post_init__(self) -> None:
        try:
            import duckdb  # noqa: PLC0415 - an extra: only who decodes JSON needs it
        except ModuleNotFoundError:
            raise decoder_missing("duckdb", "json") from None
        self._duckdb = duckdb
        self._connection = duckdb.connect(config=_SETTINGS)

    def read(self, texts: pa.StringArray, kind: Type) -> Parsed:
        """Values of a type from their texts.

        Args:
            texts: JSON of a nested type, of any other see `json_scalars`; NULL for NULL.
            kind: The type.
        """
        match kind:
            case Primitive():
                return parse(texts, kind)
            case Struct():
                return self._struct(texts, kind)
            case ListOf(element):
                return self._list(texts, kind, element)
            case MapOf():
                return self._map(texts, kind)

    def _struct(self, texts: pa.Array, struct: Struct) -> Parsed:
        opened = self._open(texts, {field.name: _asked(field.type) for field in struct.fields}, "{")
        children = opened.values.flatten()
        parts = [self.read(child, field.type) for child, field in zip(children, struct.fields, strict=True)]
        values = rebuild_struct(opened.values, [part.values for part in parts], list(arrow_type(struct)))
        return Parsed(values, reduce(either, (part.misfits for part in parts), opened.misfits))

    def _list(self, texts: pa.Array, kind: ListOf, element: Field) -> Parsed:
        opened = self._open(texts, [_asked(element.type)], "[")
        elements = self.read(opened.values.flatten(), element.type)
        values = rebuild_list(opened.values, arrow_type(kind), lambda _: elements.values)
        return Parsed(values, either(opened.misfits, _holders(opened.values, elements.misfits)))

    def _map(self, texts: pa.Array, kind: MapOf) -> Parsed:
        opened = self._open(texts, f"MAP(VARCHAR, {_asked(kind.value.type)})", "{")
        entries = as_list(opened.values)
        keys, items = entries.flatten().flatten()
        read_keys, read_items = self.read(keys, kind.key.type), self.read(items, kind.value.type)
        values = rebuild_map(opened.values, arrow_type(kind), lambda _: read_keys.values, lambda _: read_items.values)
        below = _holders(entries, either(read_keys.misfits, read_items.misfits))
        return Parsed(values, either(opened.misfits, below))

    def _open(self, texts: pa.Array, structure: Any, opener: str) -> Parsed:
        """One level of JSON: the texts of its parts.

        Args:
            texts: The documents.
            structure: What DuckDB is asked for.
            opener: The character that such a document begins with.
        """
        wrong = _other_than(texts, opener)
        texts = texts if wrong is None else without(texts, wrong)
        try:
            values = self._transformed(texts, structure)
        except self._duckdb.InvalidInputException:
            invalid = self._invalid(texts)
            wrong, texts = either(wrong, invalid), without(texts, invalid)
            values = self._transformed(texts, structure)
        if values.null_count != texts.null_count:  # a key that a map has twice
            wrong = either(wrong, pc.and_(values.is_null(), texts.is_valid()))
        return Parsed(values, wrong)

    def _transformed(self, texts: pa.Array, structure: Any) -> pa.Array:
        literal = json.dumps(structure).replace("'", "''")
        return self._asked(texts, f"json_transform(value, '{literal}')")

    def _invalid(self, texts: pa.Array) -> pa.BooleanArray:
        return self._asked(texts, "coalesce(NOT json_valid(value), false)")

    def _asked(self, texts: pa.Array, expression: str) -> pa.Array:
        self._connection.register("documents", pa.table({"value": texts}))
        found = self._connection.sql(f"SELECT {expression} AS found FROM documents")  # noqa: S608 - expressions of this class
        return found.to_arrow_table().column("found").combine_chunks()


def _asked(kind: Type) -> str:
    return "VARCHAR" if isinstance(kind, Primitive) and not wants_json(kind) else "JSON"


def _other_than(texts: pa.Array, opener: str) -> pa.BooleanArray | None:
    """Which documents do not begin as they should; None if all do."""
    begins = pc.starts_with(texts, opener)
    if pc.all(begins, min_count=0).as_py():
        return None
    begins = pc.starts_with(pc.ascii_ltrim(texts, characters=_BLANKS), opener)
    return pc.fill_null(pc.invert(begins), False)  # noqa: FBT003 - Arrow takes it by position


def _holders(holders: pa.Array, misfits: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Which lists hold a misfit."""
    if misfits is None:
        return None
    parents = pc.list_parent_indices(holders)
    hit = set(pc.filter(parents, misfits).to_pylist())
    return pa.array([position in hit for position in range(len(holders))], pa.bool_())
