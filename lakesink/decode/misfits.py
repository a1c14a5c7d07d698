"""What messages say of malformed documents: their places, and the values that do not fit.

Those are found by reading the documents column by column. Each column needs another read, so this is only for a few
documents that are known to be malformed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.json_scalars import Parsed
from lakesink.rows.changed_rows import FILE, OFFSET, PARTITION, TOPIC, exact_values
from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.schema import ListOf, MapOf, Primitive, Struct, Type, sql_type_of
from lakesink_protocol.quality import MOST_NAMES, first_names
from lakesink_protocol.redact import redact

SEARCHED = 1_000
"""Documents, or objects inside them, that are searched at one level of a merged batch."""
_NAMES_KEPT = 1_000
ITEM, KEY, ENTRY = "[]", "{key}", "{}"
"""Steps of a path below a list or map: any element, any key, any value."""

KAFKA = (TOPIC, PARTITION, OFFSET)
PLACES = (FILE, *KAFKA)
"""Columns that tell the place of a document."""

Path = tuple[str, ...]
Read = Callable[[pa.Array, Struct], Parsed]


@dataclass(frozen=True, slots=True)
class Found:
    """A value that does not fit.

    Attributes:
        kind: Description of the value's kind.
        value: The value as text; empty if it cannot be shown.
        column: Names from the top, with dots; empty for the document itself.
        expected: The type or value that would fit.
    """

    kind: str
    value: str = ""
    column: str = ""
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One leaf of the columns.

    Attributes:
        path: Names from the top, and `ITEM`, `KEY` or `ENTRY` below lists and maps.
        alone: The columns reduced to this leaf.
    """

    path: Path
    alone: Struct
    type: Primitive

    def found(self, kind: str, value: str = "", path: Path | None = None, expected: str = "") -> Found:
        """A value of this column; `path` and `expected` if the value contains the column."""
        return Found(kind, value, dotted(self.path if path is None else path), expected or sql_type_of(self.type))


def misfitting(documents: pa.Array, kind: Struct, read: Read) -> list[list[Column]]:
    """For every malformed document, the columns that make it malformed."""
    found: list[list[Column]] = [[] for _ in range(len(documents))]
    for path, alone, leaf in _narrowed(kind):
        assert isinstance(alone, Struct)
        misfits = read(documents, alone).misfits
        for position, wrong in enumerate([] if misfits is None else misfits.to_pylist()):
            if wrong:
                found[position].append(Column(path, alone, leaf))
    return found


def with_option(found: Found, kind: Primitive, encoding: BinaryEncoding | None) -> Found:
    """The same, with the option that a text for a BINARY column needs."""
    if kind.name != "binary" or encoding is not None or found.expected != sql_type_of(kind):
        return found
    return replace(found, expected=f"{found.expected}, for a text with binary_encoding='base64' or 'hex'")


def dotted(path: Path) -> str:
    """A path as text: ``lines[].price``."""
    text = ""
    for step in path:
        text += step if step.startswith(("[", "{")) or not text else f".{step}"
    return text


def _narrowed(kind: Type) -> Iterator[tuple[Path, Type, Primitive]]:
    """The type reduced to one leaf, for each of its leaves."""
    match kind:
        case Primitive():
            yield (), kind, kind
        case Struct(fields):
            for field in fields:
                for path, below, leaf in _narrowed(field.type):
                    yield (field.name, *path), Struct((replace(field, type=below),)), leaf
        case ListOf(element):
            for path, below, leaf in _narrowed(element.type):
                yield (ITEM, *path), ListOf(replace(element, type=below)), leaf
        case MapOf(key, value):
            anything = Primitive("string")
            unasked = replace(value, type=anything, required=False)
            for path, below, leaf in _narrowed(key.type):
                yield (KEY, *path), MapOf(replace(key, type=below), unasked), leaf
            for path, below, leaf in _narrowed(value.type):
                yield (ENTRY, *path), MapOf(replace(key, type=anything), replace(value, type=below)), leaf


@dataclass(slots=True)
class UnknownKeys:
    """Keys without a column in a task's searched documents; `count` is the number of their values other than null.

    Listing the keys of all documents would take at least a third of the time for decoding. The first documents of every
    merged batch show a new key as well.
    """

    count: int = field(default=0, init=False)
    _names: set[str] = field(default_factory=set, init=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The first names, in alphabetical order."""
        return first_names(self._names)

    def add(self, path: Path, found: Iterable[tuple[str, int]]) -> None:
        """Add the keys and their counts at one level of the documents."""
        for name, times in found:
            self.count += times
            self._names.add(dotted((*path, name)))
        if len(self._names) > _NAMES_KEPT:
            self._names = set(sorted(self._names)[:MOST_NAMES])


@dataclass(slots=True)
class Places:
    """The places of documents: file, or Kafka's partition and offset, or else row of the task. Counts the rows for it.

    Without `numbered`, rows have no numbers: those that tasks left have lost theirs.
    """

    task: int
    numbered: bool = True
    _rows: int = field(default=0, init=False)
    _of_file: Counter[str | None] = field(default_factory=Counter, init=False)

    def of(self, batch: pa.RecordBatch, position: int) -> str:
        """The place of a document of the current batch.

        The row number counts the rows that the task has read from the file. It is the line number if one task reads the
        file and the query keeps every row.
        """
        if FILE in batch.schema.names:
            paths = _paths(batch)
            path = paths[position].as_py()
            before = self._of_file[path] + pc.sum(pc.equal(paths.slice(0, position), path), min_count=0).as_py()
            if path is not None:
                return f"{redact(path)}, row {before + 1}" if self.numbered else redact(path)
        kafka = [f"{name} {batch.column(name)[position]}" for name in KAFKA if name in batch.schema.names]
        if kafka:
            return ", ".join(kafka)
        return f"row {self._rows + position + 1} of task {self.task}" if self.numbered else "a row with a new key"

    def advance(self, batch: pa.RecordBatch) -> None:
        """Continue with the next batch."""
        self._rows += batch.num_rows
        if FILE in batch.schema.names:
            for each in pc.value_counts(_paths(batch)):
                self._of_file[each["values"].as_py()] += each["counts"].as_py()


def _paths(batch: pa.RecordBatch) -> pa.Array:
    return exact_values(batch.column(FILE), pa.string())
