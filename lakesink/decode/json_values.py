"""Decodes JSON documents to Arrow arrays of a table's type with DuckDB, the fastest JSON reader for Python.

DuckDB only returns texts, because many of its conversions silently lose information (1.5 as an integer is 2). Scalars
are parsed from their texts, see `json_scalars`. Nested values are opened again, so every level is checked.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode import json_misfits
from lakesink.decode import misfits as misfit
from lakesink.decode.json_digits import respelled
from lakesink.decode.json_raw import as_taken, first_members, items, members
from lakesink.decode.json_scalars import Parsed, either, forgiven, holding, parse, texts_of, wants_json, without
from lakesink.decode.news_rows import Find, JsonNews
from lakesink.rows import nested
from lakesink.rows.libraries import check_library
from lakesink.rows.plan import BinaryEncoding, NewsPlan
from lakesink.rows.schema import Field, ListOf, MapOf, Nested, Primitive, Struct, Type, arrow_type
from lakesink.rows.unfit import all_but
from lakesink_protocol.errors import WriteError

_BLANKS = " \t\r\n"
_UNKNOWN = """
    SELECT key, count(*) FROM (SELECT value, unnest(json_keys(value)) AS key FROM documents)
    WHERE NOT list_contains(?::VARCHAR[], key)
      AND json_type(value, '/' || replace(replace(key, '~', '~0'), '/', '~1')) <> 'NULL'
    GROUP BY key
"""
_VALID = "SELECT coalesce(json_valid(value), false) FROM documents"
FindUnknownKeys = Callable[[pa.Array, Sequence[pa.Array], Struct], pa.BooleanArray | None]
"""Finds objects with a member for which a struct has no field; see `json_unknown.with_unknown_keys`."""
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {"threads": 1, "enable_external_access": False}


def load_duckdb() -> Any:
    """The module `duckdb`; raises `WriteError` if it is not installed or too old."""
    try:
        import duckdb  # an optional dependency, for JSON only
    except ModuleNotFoundError:
        raise WriteError.of("DECODER_MISSING", library="duckdb") from None
    check_library("duckdb", duckdb.__version__)
    return duckdb


def load_unknown_keys() -> FindUnknownKeys:
    """The function `with_unknown_keys`; raises `WriteError` if numpy, which it needs, is not installed."""
    try:
        from lakesink.decode.json_unknown import with_unknown_keys  # an optional dependency, for rescue_column only
    except ModuleNotFoundError:
        raise WriteError.of("DECODER_MISSING", library="numpy") from None
    return with_unknown_keys


@dataclass(slots=True)
class JsonReader:
    """Reads documents for one task, with its own DuckDB connection.

    Attributes:
        unknown: Counts keys without a column, in a sample.
        marks: True to find all documents with such a key.
        forgives: True to read a misfit in an optional field as NULL.
        encoding: How texts spell the bytes of BINARY columns; None if no text is taken for bytes.
    """

    unknown: misfit.UnknownKeys | None = None
    marks: bool = False
    forgives: bool = False
    encoding: BinaryEncoding | None = None
    _duckdb: Any = field(init=False)
    _connection: Any = field(init=False)
    with_unknown_keys: FindUnknownKeys = field(default=lambda *_: None, init=False)
    """Finds objects with a member for which a struct has no field."""

    def __post_init__(self) -> None:
        self._duckdb = load_duckdb()
        self._connection = self._duckdb.connect(config=_SETTINGS)
        if self.marks:
            self.with_unknown_keys = load_unknown_keys()

    def documents(self, values: pa.Array, kind: Struct) -> Parsed:
        """A table's columns from binary or string documents; NULL is malformed, as is what is not UTF-8."""
        found = self.read(texts_of(values), kind)
        nulls = found.values.is_null() if found.values.null_count else None
        return replace(found, misfits=either(found.misfits, nulls))

    def texts(self, values: pa.Array, without: Collection[str] = ()) -> Iterator[str]:  # noqa: ARG002 - as they are
        """Documents as JSON, as they are; `documents` has accepted them."""
        return (text.decode() for text in values.cast(pa.binary()).to_pylist())

    def news(self, plan: NewsPlan, struct: Struct) -> Find:
        """See `lakesink.decode.documents.DocumentReader`."""
        return JsonNews(plan, struct, self).found

    def explain(self, values: pa.Array, kind: Struct) -> list[list[misfit.Found]]:
        """For each of a few malformed documents, the values that do not fit."""
        alone = copy(self)
        alone.unknown = None  # a second reading must not count unknown keys again
        [valid] = self._found(texts_of(values), _VALID)
        # What is no JSON has no columns: most malformed documents are such, and the search is the longer part.
        columns = iter(misfit.misfitting(values.filter(valid), kind, alone.documents) if valid.true_count else ())
        texts = values.cast(pa.binary()).to_pylist()
        return [
            self._explained(text, next(columns) if is_valid else [], alone, is_valid=is_valid)
            for text, is_valid in zip(texts, valid.to_pylist(), strict=True)
        ]

    def _explained(
        self, value: bytes | None, columns: list[misfit.Column], alone: "JsonReader", *, is_valid: bool
    ) -> list[misfit.Found]:
        text = json_misfits.text_in(value)
        if isinstance(text, misfit.Found):
            return [text]
        document = json_misfits.parsed(text)
        if not is_valid:
            return [json_misfits.unreadable(document, text)]
        misfits = dict.fromkeys(
            misfit.with_option(
                json_misfits.found_at(document, column, _fits(column, alone)), column.type, self.encoding
            )
            for column in columns
        )
        return list(misfits) or [json_misfits.REST_TOO_LARGE if self.forgives else json_misfits.UNKNOWN_MISFIT]

    def read(self, texts: pa.StringArray, kind: Type, path: misfit.Path = ()) -> Parsed:
        """Values of a type from their texts, NULL for NULL: JSON for a nested type, else see `json_scalars`."""
        match kind:
            case Primitive():
                return parse(texts, kind, self.encoding)
            case Struct():
                return self._struct(texts, kind, path)
            case ListOf(element):
                return self._list(texts, kind, element, path)
            case MapOf():
                return self._map(texts, kind, path)

    def _struct(self, texts: pa.Array, struct: Struct, path: misfit.Path) -> Parsed:
        query = members_query((pointer(field.name), wants_json(field.type)) for field in struct.fields)
        texts, columns, misfits = self._open(texts, struct, "{", query)
        self.count_unknown(texts[: misfit.SEARCHED], struct, path)
        parts = [
            self._field(column, field, (*path, field.name))
            for column, field in zip(columns, struct.fields, strict=True)
        ]
        values = nested.rebuild_struct(texts, [part.values for part in parts], list(arrow_type(struct)))
        wrong = [part.misfits for part in parts]
        wrong += [_missing(part, field, texts.is_valid()) for part, field in zip(parts, struct.fields, strict=True)]
        rest = reduce(either, (part.rest for part in parts), self.with_unknown_keys(texts, columns, struct))
        return Parsed(values, reduce(either, wrong, misfits), rest)

    def _field(self, texts: pa.Array, field: Field, path: misfit.Path) -> Parsed:
        found = self.read(texts, field.type, path)
        return forgiven(found) if self.forgives and field.forgives else found

    def count_unknown(self, texts: pa.Array, struct: Struct, path: misfit.Path = ()) -> None:
        """Count the keys without a field in some objects, by their values other than null."""
        if self.unknown is None:
            return
        self._connection.register("documents", pa.table({"value": texts}))
        known = [field.name for field in struct.fields]
        self.unknown.add(path, self._connection.execute(_UNKNOWN, [known]).fetchall())

    def _list(self, texts: pa.Array, kind: ListOf, element: Field, path: misfit.Path) -> Parsed:
        _, [lists], misfits = self._open(texts, kind, "[", _transformed([_duckdb_type(element.type)]))
        elements = self._field(lists.flatten(), element, (*path, misfit.ITEM))
        values = nested.rebuild_list(lists, arrow_type(kind), elements.values)
        below = holding(lists, either(elements.misfits, _missing(elements, element)))
        return Parsed(values, either(misfits, below), holding(lists, elements.rest))

    def _map(self, texts: pa.Array, kind: MapOf, path: misfit.Path) -> Parsed:
        query = _transformed(f"MAP(VARCHAR, {_duckdb_type(kind.value.type)})")
        texts, [maps], misfits = self._open(texts, kind, "{", query)
        entries = nested.as_list(maps)
        keys, items = entries.flatten().flatten()
        if isinstance(kind.key.type, Primitive) and wants_json(kind.key.type):
            keys = pa.array([json.dumps(key) for key in keys.to_pylist()], pa.string())
        read_keys = self.read(keys, kind.key.type, (*path, misfit.KEY))
        read_items = self._field(items, kind.value, (*path, misfit.ENTRY))
        found = read_keys.values
        known = nested.without_validity(found) if found.null_count else found  # a map must not contain misfits' NULLs
        values = nested.rebuild_map(maps, arrow_type(kind), known, read_items.values)
        missing = _missing(read_items, kind.value)
        below = holding(entries, reduce(either, (read_keys.misfits, read_items.misfits, missing)))
        # DuckDB returns a map with a duplicate key as NULL.
        twice = pc.and_(maps.is_null(), texts.is_valid()) if maps.null_count > texts.null_count else None
        wrong = (below, twice, _one_key_spelled_twice(entries, found, kind))
        return Parsed(values, reduce(either, wrong, misfits), holding(entries, read_items.rest))

    def _open(
        self, texts: pa.Array, kind: Nested, opener: str, query: str
    ) -> tuple[pa.Array, list[pa.Array], pa.BooleanArray | None]:
        """Open one level of documents that start with `opener`: the documents (NULL if not opened), parts, misfits."""
        wrong = other_than(texts, opener)
        texts = texts if wrong is None else without(texts, wrong)
        texts, columns, invalid = self.find(texts, query)
        positions = respelled(texts, kind)
        if positions is not None:
            columns = with_spelling(columns, texts, positions, lambda text: _parts(text, kind))
        return texts, columns, either(wrong, invalid)

    def find(self, texts: pa.Array, query: str) -> tuple[pa.Array, list[pa.Array], pa.BooleanArray | None]:
        """The columns of a query over ``documents``; returns the texts too, NULL if not JSON, and True for those."""
        try:
            return texts, self._found(texts, query), None
        except (self._duckdb.InvalidInputException, UnicodeDecodeError):  # a message may cut a character
            [invalid] = self._found(texts, "SELECT coalesce(NOT json_valid(value), false) FROM documents")
        texts = without(texts, invalid)
        return texts, self._found(texts, query), invalid

    def _found(self, texts: pa.Array, query: str) -> list[pa.Array]:
        self._connection.register("documents", pa.table({"value": texts}))
        return [column.combine_chunks() for column in self._connection.sql(query).to_arrow_table().columns]


def members_query(members: Iterable[tuple[str, bool]]) -> str:
    """A query for members by their paths, as JSON if this is said, else as texts; NULL for null.

    This is faster than `json_transform` into a struct.
    """
    paths: dict[bool, list[str]] = {False: [], True: []}
    columns = []
    for path, as_json in members:
        paths[as_json].append(f"'{path}'")
        at = len(paths[as_json])
        columns.append(f"nullif(parts[{at}]::VARCHAR, 'null')" if as_json else f"texts[{at}]")
    texts, parts = (", ".join(found) for found in paths.values())
    lists = [f"json_extract_string(value, [{texts}]) AS texts"] if texts else []
    lists += [f"json_extract(value, [{parts}]) AS parts"] if parts else []
    return f"SELECT {', '.join(columns)} FROM (SELECT {', '.join(lists)} FROM documents)"  # noqa: S608 - names are quoted


def pointer(*names: str) -> str:
    """The JSON pointer (RFC 6901) to a member, for a text of SQL."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1").replace("'", "''") for name in names)


def with_spelling(
    columns: Sequence[pa.Array], texts: pa.Array, positions: pa.Array, parts_of: Callable[[str], list[Any]]
) -> list[pa.Array]:
    """The parts; those of the documents at `positions` are replaced by their original spelling."""
    written = [parts_of(text) for text in texts.take(positions).to_pylist()]
    parts = zip(columns, zip(*written, strict=True), strict=True)
    return [nested.replaced(column, positions, pa.array(part, column.type)) for column, part in parts]


def _parts(text: str, kind: Nested) -> list[Any]:
    """The parts of one document in the form of `JsonReader._found`, one for each column."""
    match kind:
        case Struct(fields):
            found = first_members(text, [field.name for field in fields])
            pairs = zip(found, fields, strict=True)
            return [as_taken(member, as_json=wants_json(field.type)) for member, field in pairs]
        case ListOf(element):
            return [[as_taken(item, as_json=wants_json(element.type)) for item in items(text)]]
        case MapOf(_, value):
            entries, as_json = members(text), wants_json(value.type)
            is_unique = len(dict(entries)) == len(entries)
            return [[(key, as_taken(item, as_json=as_json)) for key, item in entries] if is_unique else None]


def _transformed(structure: list[str] | str) -> str:
    return f"SELECT json_transform(value, '{json.dumps(structure)}') FROM documents"  # noqa: S608 - types alone


def _duckdb_type(kind: Type) -> str:
    return "JSON" if wants_json(kind) else "VARCHAR"


def other_than(texts: pa.Array, opener: str) -> pa.BooleanArray | None:
    """True for documents that do not start with the opener; None if all do."""
    begins = pc.starts_with(texts, opener)
    if not begins.false_count:
        return None
    others = pc.indices_nonzero(pc.invert(begins))
    begins = pc.starts_with(pc.ascii_ltrim(texts.take(others), characters=_BLANKS), opener)
    return pc.invert(all_but(len(texts), others.filter(pc.invert(begins)).to_pylist()))


def _one_key_spelled_twice(entries: pa.ListArray, keys: pa.Array, kind: MapOf) -> pa.BooleanArray | None:
    """True for maps in which two texts are one key; None if there are none. DuckDB finds equal string keys."""
    if kind.key.type == Primitive("string"):
        return None
    twice = nested.with_duplicate_keys(pc.list_parent_indices(entries), keys)
    return pc.is_in(pa.arange(0, len(entries)), twice) if len(twice) else None


def _missing(part: Parsed, field: Field, wanted: pa.BooleanArray | None = None) -> pa.BooleanArray | None:
    """True for missing values of a required field, where `wanted` (the parent exists); None if there are none."""
    if not field.required or not part.values.null_count:
        return None
    nulls = part.values.is_null()
    return nulls if wanted is None else pc.and_(nulls, wanted)


def _fits(column: misfit.Column, reader: JsonReader) -> Callable[[Any], bool]:
    alone = Struct((Field(0, "c", required=True, type=column.type),))
    return lambda value: (
        reader.documents(pa.array([f'{{"c": {json_misfits.as_written(value)}}}'.encode()]), alone).misfits is None
    )
