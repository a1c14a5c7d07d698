"""Reads the columns of a table from Spark's DDL text: ``id BIGINT NOT NULL, items ARRAY<STRUCT<sku: STRING>>``. Pure.

Spark's own parser is in its JVM, and ``format("lakesink")`` reads its options where there is none.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache

import pyarrow as pa

from lakesink.settings.tokens import Tokens, scan
from lakesink_catalog.spark_types import sql_name

_PRECISION, _SCALE, _MOST_DIGITS = 10, 0, 38
_DEEPEST = 100
_PLAIN: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("tinyint", "byte", "smallint", "short", "int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMALS = ("decimal", "dec", "numeric")
_TEXTS = ("char", "character", "varchar")
_NESTED = ("array", "map", "struct")
_TOKEN = re.compile(
    r"""\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<word>\w+)|(?P<mark>[<>(),:]))""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPABLE = frozenset("'\"\\")


@cache
def columns_of(ddl: str) -> pa.Schema:
    """The columns that the text describes, with NOT NULL and comments; raises ValueError."""
    tokens = scan(ddl, _TOKEN, lambda text: _ESCAPED.sub(_unescaped, text), "; back-quotes hold unusual names")
    return pa.schema(list(_Parser(tokens).columns()))


class _Parser(Tokens):
    _levels = 0

    def columns(self) -> Iterator[pa.Field]:
        """All columns of the text."""
        yield from self._listed(self._column)
        if self._peek():
            self._wrong("expected a comma or the end")

    def _column(self) -> pa.Field:
        kind, name = self._take("a name of a column")
        if kind == "word" and sql_name(name) != name:
            self._wrong(f"write the name {name} in back-quotes: {sql_name(name)}")
        if kind not in ("word", "quoted"):
            self._wrong(f"expected a name of a column, not {name!r}")
        self._accept("mark", ":")
        data_type, required = self._type(), self._accept("word", "NOT")
        if required:
            self._expect("word", "NULL")
        comment = None
        if self._accept("word", "COMMENT"):
            kind, comment = self._take("a comment in quotes")
            if kind != "text":
                self._wrong(f"expected a comment in quotes, not {comment!r}")
        return pa.field(name, data_type, not required, None if comment is None else {"doc": comment})

    def _type(self) -> pa.DataType:
        kind, written = self._take("a type")
        name = written.lower() if kind == "word" else ""
        if name in _PLAIN:
            return _PLAIN[name]
        if name in _DECIMALS:
            return self._decimal()
        if name in _TEXTS:
            self._expect("mark", "(")
            self._number(1, 2**31 - 1)
            self._expect("mark", ")")
            return pa.string()
        if name not in _NESTED:
            self._wrong(f"{written} is not a type that a table can have")
        self._levels += 1
        if self._levels > _DEEPEST:
            self._wrong(f"more than {_DEEPEST} levels")
        self._expect("mark", "<")
        found = self._nested(name)
        self._expect("mark", ">")
        self._levels -= 1
        return found

    def _nested(self, name: str) -> pa.DataType:
        if name == "struct":
            return pa.struct(list(self._listed(self._column)))
        first = self._type()
        if name == "array":
            return pa.list_(first)
        self._expect("mark", ",")
        return pa.map_(first, self._type())

    def _decimal(self) -> pa.DataType:
        precision, scale = _PRECISION, _SCALE
        if self._accept("mark", "("):
            precision = self._number(1, _MOST_DIGITS)
            if self._accept("mark", ","):
                scale = self._number(0, precision)
            self._expect("mark", ")")
        return pa.decimal128(precision, scale)

    def _number(self, lowest: int, highest: int) -> int:
        _, written = self._take("a number")
        if not (written.isascii() and written.isdecimal()) or not lowest <= int(written[:11]) <= highest:
            self._wrong(f"expected a whole number from {lowest} to {highest}, not {written}")
        return int(written)


def _unescaped(found: re.Match[str]) -> str:
    if found[1] not in _ESCAPABLE:
        raise ValueError(f"a comment has {found[0]}: a backslash can stand before quotes and backslashes only")
    return found[1]
