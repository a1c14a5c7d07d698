"""Parses ``partition_by`` text into a partition spec: ``month(time_hour), bucket(16, carrier), region``.

``sort_by`` text becomes a sort order: the same terms, each with Spark's ``asc|desc`` and ``nulls first|last``.

A word is a transform only before a parenthesis, so columns can be named ``month`` or ``day``. Columns are found by
Spark's rule; back-quotes hold names with dots, blanks or commas. Partition fields get the names of Iceberg's Java
library (``time_hour_month``), or the name after ``as``.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, Transform, parse_transform
from pyiceberg.types import FixedType, IcebergType, NestedField, PrimitiveType, StructType

from lakesink_protocol.errors import SettingsError
from lakesink_protocol.suggest import did_you_mean, sentence

_TIME = ("year", "month", "day", "hour")
_SUFFIX = {"identity": "", "void": "_null", "bucket": "_bucket", "truncate": "_trunc"} | {
    word: f"_{word}" for word in _TIME
}
_ALIASES = {f"{word}s": word for word in _TIME}
_NUMBERED = ("bucket", "truncate")
_LARGEST_NUMBER = 2**31 - 1
_TOKEN = re.compile(r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<mark>[(),.])|(?P<word>[^\s(),.`]+))")


def is_misread_by_java(transform: Transform[Any, Any], source: IcebergType) -> bool:
    """True if Iceberg's Java library misreads the manifests of such a partition field."""
    return isinstance(source, FixedType) and isinstance(transform, IdentityTransform)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    mark: bool = False


@dataclass(frozen=True, slots=True)
class Term:
    """One term of the text; `transform` is `identity` for a plain column.

    `column` is a path of names, `number` the parameter of a bucket or truncate, `name` the chosen name of the field.
    `direction` and `null_order` are those of a sort order; without the second, NULLs are first if it ascends.
    """

    transform: str
    column: tuple[str, ...]
    number: int | None
    name: str | None = None
    direction: SortDirection = SortDirection.ASC
    null_order: NullOrder | None = None

    @property
    def iceberg_transform(self) -> str:
        """The transform in Iceberg's spelling."""
        return f"{self.transform}[{self.number}]" if self.transform in _NUMBERED else self.transform

    def source_ids(self, schema: Schema) -> frozenset[int]:
        """Ids of the schema's fields that the column's name can mean."""
        fields: Sequence[NestedField] = schema.fields
        for part in self.column[:-1]:
            structs = [field.field_type for field in _named(part, fields) if isinstance(field.field_type, StructType)]
            fields = [field for struct in structs for field in struct.fields]
        return frozenset(field.field_id for field in _named(self.column[-1], fields))


class _Invalid(ValueError):
    """The text cannot be read, or does not fit the schema."""


@contextmanager
def _refused_as(code: str) -> Iterator[None]:
    try:
        yield
    except _Invalid as error:
        raise SettingsError.of(code, why=sentence(str(error))) from None


@_refused_as("PARTITION_BY_INVALID")
def parse_partition_by(text: str | None, schema: Schema, *, case_sensitive: bool = False) -> PartitionSpec:
    """The partition spec that the text describes; `case_sensitive` is Spark's rule for column names.

    The text is a list of ``column``, ``year|month|day|hour(column)``, ``bucket(count, column)``, ``truncate(width,
    column)``, ``identity(column)`` and ``void(column)``; each may end in ``as name``. None or blank means
    unpartitioned.

    Raises:
        SettingsError: The text is malformed, or does not fit the schema.
    """
    if not text or not text.strip():
        return PartitionSpec()
    fields: list[PartitionField] = []
    for term in _Parser(text).terms():
        source, path = _find(term.column, schema, case_sensitive=case_sensitive)
        transform = _transform(term, source.field_type, path)
        if is_misread_by_java(transform, source.field_type):
            raise _Invalid(
                f"Spark, Trino and Flink cannot read a table partitioned by {path!r} of type {source.field_type};"
                f" write bucket(16, {path})"
            )
        name = term.name or f"{path}{_SUFFIX[term.transform]}"
        field = PartitionField(source.field_id, PARTITION_FIELD_ID_START + len(fields), transform, name)
        plain = str(field.transform) in ("identity", "void")
        column = _match(field.name, schema.fields, case_sensitive=case_sensitive)
        if column is not None and not (plain and column.field_id == field.source_id):
            raise _Invalid(f"the partition field {field.name!r} would share its name with a column; add 'as <name>'")
        for other in fields:
            if field.name.lower() == other.name.lower():
                raise _Invalid(f"two partition fields are named {field.name!r}; add 'as <name>'")
            both = {str(field.transform), str(other.transform)}
            if field.source_id == other.source_id and (len(both) == 1 or both <= set(_TIME)):
                raise _Invalid(f"{field.name!r} and {other.name!r} partition by the same column; keep the finer one")
        fields.append(field)
    return PartitionSpec(*fields)


@_refused_as("PARTITION_BY_INVALID")
def parse_terms(text: str) -> tuple[Term, ...]:
    """The terms of a text, without a table: column names and the rules for a new spec are not checked."""
    return tuple(_Parser(text).terms())


@_refused_as("SORT_BY_INVALID")
def parse_sort_by(text: str | None, schema: Schema) -> SortOrder:
    """The sort order that the text describes, unsorted for None or blank; raises SettingsError like the others."""
    fields = []
    for term in parse_sort_terms(text):
        source, path = _find(term.column, schema, case_sensitive=False)
        transform = _transform(term, source.field_type, path)
        fields.append(SortField(source.field_id, transform, term.direction, term.null_order))
    return SortOrder(*fields) if fields else UNSORTED_SORT_ORDER


@_refused_as("SORT_BY_INVALID")
def parse_sort_terms(text: str | None) -> tuple[Term, ...]:
    """The same of a sort order."""
    return tuple(_Parser(text, sorts=True).terms()) if text and text.strip() else ()


def spelled_term(transform: str, column: str) -> str:
    """A term from Iceberg's spelling of its transform."""
    word, _, number = transform.rstrip("]").partition("[")
    if word == "identity":
        return column
    return f"{word}({number}, {column})" if number else f"{word}({column})"


class _Parser:
    def __init__(self, text: str, *, sorts: bool = False) -> None:
        self._text = text
        self._sorts = sorts
        self._tokens = list(self._scan())
        self._next = 0

    def terms(self) -> Iterator[Term]:
        yield self._term()
        while self._next < len(self._tokens):
            self._expect(",")
            yield self._term()

    def _scan(self) -> Iterator[_Token]:
        end = len(self._text.rstrip())
        place = 0
        while place < end:
            found = _TOKEN.match(self._text, place)
            if found is None:
                raise self._wrong("a back-quote is not closed")
            place = found.end()
            if found["quoted"] is not None:
                yield _Token(found["quoted"].replace("``", "`"))
            else:
                yield _Token(found["mark"] or found["word"], mark=found["mark"] is not None)

    def _term(self) -> Term:
        first = self._name()
        if len(first) > 1 or not self._accept("("):
            return self._named_or_ordered(Term("identity", first, None))
        transform = _ALIASES.get(first[0].lower(), first[0].lower())
        if transform not in _SUFFIX:
            raise self._wrong(f"{first[0]!r} is not a transform. {did_you_mean(transform, _SUFFIX)}")
        number = None
        if transform in _NUMBERED:
            text = self._word()
            if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:11]) <= _LARGEST_NUMBER:
                raise self._wrong(f"write {transform}(<whole number from 1>, <column>)")
            self._expect(",")
            number = int(text)
        column = self._name()
        self._expect(")")
        return self._named_or_ordered(Term(transform, column, number))

    def _named_or_ordered(self, term: Term) -> Term:
        if not self._sorts:
            return replace(term, name=self._word()) if self._one_of("as") else term
        way = SortDirection(self._one_of("asc", "desc") or "asc")
        if not self._one_of("nulls"):
            return replace(term, direction=way)
        place = self._one_of("first", "last")
        if not place:
            raise self._wrong("write NULLS FIRST or NULLS LAST")
        return replace(term, direction=way, null_order=NullOrder(f"nulls-{place}"))

    def _one_of(self, *words: str) -> str:
        return next((word for word in words if self._accept(word, mark=False)), "")

    def _name(self) -> tuple[str, ...]:
        parts = [self._word()]
        while self._accept("."):
            parts.append(self._word())
        return tuple(parts)

    def _word(self) -> str:
        token = self._peek()
        if token is None or token.mark:
            raise self._wrong(f"a name is missing before {token.text!r}" if token else "it ends too early")
        self._next += 1
        return token.text

    def _accept(self, text: str, *, mark: bool = True) -> bool:
        token = self._peek()
        accepted = token is not None and token.mark == mark and token.text.lower() == text
        self._next += accepted
        return accepted

    def _expect(self, mark: str) -> None:
        token = self._peek()
        if not self._accept(mark):
            raise self._wrong(f"expected {mark!r}" + (f" before {token.text!r}" if token else " at the end"))

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _wrong(self, why: str) -> _Invalid:
        return _Invalid(f"{self._text[:80]!r} cannot be read: {why}")


def _find(column: Sequence[str], schema: Schema, *, case_sensitive: bool) -> tuple[NestedField, str]:
    """The column, and its full name in the schema's spelling."""
    fields: Sequence[NestedField] = schema.fields
    path: list[str] = []
    for position, part in enumerate(column):
        field = _match(part, fields, case_sensitive=case_sensitive)
        if field is None:
            known = _paths(schema.as_struct())
            raise _Invalid(f"there is no column {'.'.join(column)!r}. {did_you_mean('.'.join(column), known)}")
        path.append(field.name)
        if position == len(column) - 1:
            return field, ".".join(path)
        if not isinstance(field.field_type, StructType):
            raise _Invalid(f"{'.'.join(path)!r} is not a struct, so it has no field {column[position + 1]!r}")
        fields = field.field_type.fields
    raise AssertionError("a column name has at least one part")


def _match(name: str, fields: Sequence[NestedField], *, case_sensitive: bool) -> NestedField | None:
    found = [field for field in fields if field.name == name] if case_sensitive else _named(name, fields)
    if len(found) > 1:
        raise _Invalid(f"{name!r} can mean {' or '.join(repr(field.name) for field in found)}")
    return found[0] if found else None


def _named(name: str, fields: Sequence[NestedField]) -> list[NestedField]:
    """The field of exactly this name, else the fields whose names differ only in case."""
    exact = [field for field in fields if field.name == name]
    return exact or [field for field in fields if field.name.lower() == name.lower()]


def _paths(struct: StructType, prefix: str = "") -> list[str]:
    found = []
    for field in struct.fields:
        found.append(f"{prefix}{field.name}")
        if isinstance(field.field_type, StructType):
            found += _paths(field.field_type, f"{prefix}{field.name}.")
    return found


def _transform(term: Term, source: IcebergType, path: str) -> Transform[object, object]:
    if not isinstance(source, PrimitiveType):
        raise _Invalid(f"{path!r} is a {str(source).partition('<')[0]}; name a column with plain values")
    transform: Transform[object, object] = parse_transform(term.iceberg_transform)
    if not transform.can_transform(source):
        spelled = {word: f"{word}[1]" if word in _NUMBERED else word for word in _SUFFIX}
        allowed = [word for word, text in spelled.items() if parse_transform(text).can_transform(source)]
        raise _Invalid(f"{term.transform} cannot be applied to {path!r} of type {source}; {', '.join(allowed)} can")
    return transform
