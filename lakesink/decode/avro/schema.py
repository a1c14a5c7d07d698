"""Parses writers' Avro schemas and resolves names. Pure.

It ignores what a reader does not need: docs, aliases, defaults, and logical types that are unknown or do not fit their
type, as Avro's specification demands.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
UUID_BYTES = 16
_LOGICAL_OF: Mapping[str, frozenset[str]] = {
    "int": frozenset({"date", "time-millis"}),
    "long": frozenset({"time-micros"}).union(
        f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos")
    ),
}


ANY_ZONE, TEXT = "any-", "text-"
"""Beginnings of logical types of lakesink's own: of moments for columns with and without a zone, and of texts."""
_CONNECT_NAME = "connect.name"
MEANT: Mapping[tuple[str, str], str] = {
    ("long", "org.apache.kafka.connect.data.Timestamp"): f"{ANY_ZONE}timestamp-millis",
    ("int", "io.debezium.time.Date"): "date",
    ("int", "io.debezium.time.Time"): "time-millis",
    ("long", "io.debezium.time.MicroTime"): "time-micros",
    ("long", "io.debezium.time.NanoTime"): "time-nanos",
    ("long", "io.debezium.time.Timestamp"): "local-timestamp-millis",
    ("long", "io.debezium.time.MicroTimestamp"): "local-timestamp-micros",
    ("long", "io.debezium.time.NanoTimestamp"): "local-timestamp-nanos",
    ("string", "io.debezium.time.IsoDate"): f"{TEXT}date",
    ("string", "io.debezium.time.IsoTime"): f"{TEXT}time",
    ("string", "io.debezium.time.ZonedTime"): f"{TEXT}time",
    ("string", "io.debezium.time.IsoTimestamp"): f"{TEXT}timestamp",
    ("string", "io.debezium.time.ZonedTimestamp"): f"{TEXT}timestamptz",
}
"""Logical types by type and the name of its meaning."""


class SchemaInvalid(ValueError):
    """The text is not an Avro schema."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value without parts: a primitive or ``fixed`` (`size` in bytes), and its logical type if it has one.

    `scale` and `precision` are those of a decimal. A plain scalar may also be read as if it had no logical type.
    """

    name: str
    logical: str | None = None
    size: int = 0
    scale: int = 0
    precision: int = 0
    is_plain: bool = False


@dataclass(frozen=True, slots=True)
class Enumeration:
    """One of several symbols."""

    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """Any number of items."""

    items: "Kind"


@dataclass(frozen=True, slots=True)
class MapTo:
    """Values by string keys."""

    values: "Kind"


@dataclass(frozen=True, slots=True)
class Record:
    """Named fields in order; `meaning` is Kafka Connect's name for such records, if it is asked for."""

    fields: tuple[tuple[str, "Kind"], ...]
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types, identified by its number."""

    branches: tuple["Kind", ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A type that is defined elsewhere, perhaps by a record that contains this reference."""

    name: str


Kind = Scalar | Enumeration | ArrayOf | MapTo | Record | Union | Reference


_NAMES: Mapping[type, str] = {Enumeration: "enum", ArrayOf: "array", MapTo: "map", Record: "record"}


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """The schema of written values: their type, and every named type in it."""

    root: Kind
    named: Mapping[str, Kind]


def kind_at(schema: WriterSchema, path: Sequence[str]) -> str:
    """Description of the type at a path from the top; for an unknown path, of the last known type on it."""
    kind: Kind | None = schema.root
    for step in path:
        kind = _below(schema, kind, step)
    return "no field" if kind is None else f"Avro's {_words(schema, kind)}"


def _below(schema: WriterSchema, kind: Kind | None, step: str) -> Kind | None:
    match kind:
        case Reference(name):
            return _below(schema, schema.named[name], step)
        case Union(branches):
            return next((found for branch in branches if (found := _below(schema, branch, step)) is not branch), kind)
        case Record(fields):
            return dict(fields).get(step)
        case ArrayOf(items):
            return items
        case MapTo(values):
            return values
        case _:
            return kind


def _words(schema: WriterSchema, kind: Kind) -> str:
    match kind:
        case Reference(name):
            return _words(schema, schema.named[name])
        case Union(branches):
            return f"union of {' and '.join(_words(schema, branch) for branch in branches)}"
        case Scalar(name, logical):
            return f"{name} ({logical})" if logical else name
        case _:
            return _NAMES[type(kind)]


def parse_writer_schema(texts: Sequence[str], *, connect_names: bool = False) -> WriterSchema:
    """Parse the last of these schemas, which may refer to the earlier ones; raises SchemaInvalid.

    With `connect_names`, the names that Kafka Connect gives to types count as logical types.
    """
    names = _Names(connect_names)
    try:
        kinds = [names.parse(_document(text), "") for text in texts]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SchemaInvalid(f"it does not have the form of an Avro schema ({type(error).__name__})") from None
    return WriterSchema(kinds[-1], names.known)


def _document(text: str) -> Any:
    if text in PRIMITIVES:
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise SchemaInvalid("it is not JSON") from None


@dataclass(slots=True)
class _Names:
    """Parses types, and keeps named types by their full names."""

    connect_names: bool = False
    known: dict[str, Kind] = field(default_factory=dict, init=False)

    def parse(self, document: Any, namespace: str) -> Kind:  # noqa: PLR0911 - one for each type
        if isinstance(document, str):
            return Scalar(document) if document in PRIMITIVES else self._reference(document, namespace)
        if isinstance(document, list):
            return Union(tuple(self.parse(branch, namespace) for branch in document))
        match document["type"]:
            case "array":
                return ArrayOf(self.parse(document["items"], namespace))
            case "map":
                return MapTo(self.parse(document["values"], namespace))
            case "record" | "error" | "enum" | "fixed":
                return self._named(document, namespace)
            case str(name) if name in PRIMITIVES:
                return _connect_scalar(name, document) if self.connect_names else _scalar(name, document)
            case nested:
                return self.parse(nested, namespace)

    def _reference(self, name: str, namespace: str) -> Reference:
        for full in (_full_name(name, namespace), name):
            if full in self.known:
                return Reference(full)
        raise SchemaInvalid(f"it uses the type {name[:60]!r}, which it does not define")

    def _named(self, document: Mapping[str, Any], namespace: str) -> Kind:
        full = _full_name(document["name"], document.get("namespace", namespace) or "")
        within = full.rpartition(".")[0]
        self.known[full] = Reference(full)  # a record may contain its own type
        kind: Kind
        match document["type"]:
            case "enum":
                kind = Enumeration(tuple(str(symbol) for symbol in document["symbols"]))
            case "fixed":
                kind = _fixed(document)
            case _:
                parts = [(_field_name(part), self.parse(part["type"], within)) for part in document["fields"]]
                if len(dict(parts)) < len(parts):
                    raise SchemaInvalid("a record has two fields of one name")
                meaning = str(document.get(_CONNECT_NAME, "")) if self.connect_names else ""
                kind = Record(tuple(parts), meaning)
        self.known[full] = kind
        return kind


def _field_name(document: Mapping[str, Any]) -> str:
    name = document["name"]
    if not isinstance(name, str) or any("\ud800" <= character <= "\udfff" for character in name):
        raise SchemaInvalid("the name of a field is not a text")
    return name


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _scalar(name: str, document: Mapping[str, Any]) -> Scalar:
    logical = document.get("logicalType")
    if name == "bytes" and logical == "decimal":
        return Scalar(name, *_decimal(document, 0))
    return Scalar(name, logical if logical in _LOGICAL_OF.get(name, ()) else None)


def _connect_scalar(name: str, document: Mapping[str, Any]) -> Scalar:
    """A scalar whose logical type is what Kafka Connect's name for it means."""
    meant = document.get(_CONNECT_NAME)
    logical = MEANT.get((name, meant)) if isinstance(meant, str) else None
    if logical is None:
        return _scalar(name, document)
    return Scalar(name, logical, is_plain=not logical.startswith(ANY_ZONE))


def _fixed(document: Mapping[str, Any]) -> Scalar:
    size = document["size"]
    if type(size) is not int or size < 0:
        raise SchemaInvalid("the size of a fixed type is not a whole number")
    logical = document.get("logicalType")
    if logical == "decimal":
        return Scalar("fixed", *_decimal(document, size))
    return Scalar("fixed", "uuid" if logical == "uuid" and size == UUID_BYTES else None, size)


def _decimal(document: Mapping[str, Any], size: int) -> tuple[str | None, int, int, int]:
    precision, scale = document.get("precision"), document.get("scale", 0)
    if type(precision) is int and type(scale) is int and 0 <= scale <= precision and precision > 0:
        return "decimal", size, scale, precision
    return None, size, 0, 0
