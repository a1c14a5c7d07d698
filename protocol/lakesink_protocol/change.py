"""What a batch does to one target: the content files that it adds, and a schema change. Pure.

The vocabulary is Iceberg's: a content file holds rows, or the positions of rows that are deleted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from lakesink_protocol.redact import shown

LONGEST_COLUMN = 1_000
LONGEST_TYPE = 1_000_000
MOST_COLUMNS = 10_000
"""Limits for records; the options of a stream have much lower limits."""
MOST_NAMED, LONGEST_NAMED = 10, 60
SCHEMA_CHANGE = "lakesink.schema-change"
"""Summary property of a snapshot whose commit changed the schema: the change in words."""
LONGEST_WORDS = 2_000


class ChangeInvalid(ValueError):
    """The document is not a valid change."""


class Content(Enum):
    """The kind of a content file, with the number that Iceberg's manifests have for it."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


@dataclass(frozen=True, slots=True)
class ContentFile:
    """One closed file.

    All statistics are by field id. Partition values and bounds are in Iceberg's single-value binary form.

    Attributes:
        partition: One value per partition field; None is NULL.
        value_counts: Values, NULLs included.
        nan_value_counts: NaNs, for floating-point columns only.
        split_offsets: Offsets of the row groups in bytes, ascending.
        sort_order_id: The table's order in which all rows of a data file are; 0 for none.
        referenced_data_file: The one data file whose rows a file of position deletes deletes; empty for several.
    """

    path: str
    spec_id: int
    partition: tuple[bytes | None, ...]
    record_count: int
    file_size_bytes: int
    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    nan_value_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]
    split_offsets: tuple[int, ...]
    sort_order_id: int = 0
    content: Content = Content.DATA
    referenced_data_file: str = ""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column by its path of names, and an Iceberg type as JSON text: ``"long"``, or an object for a nested one."""

    column: tuple[str, ...]
    type_json: str


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """Columns to add, columns to widen, and required columns that become optional. Nothing is renamed or dropped."""

    added: tuple[ColumnType, ...] = ()
    widened: tuple[ColumnType, ...] = ()
    optional: tuple[tuple[str, ...], ...] = ()

    def with_more(self, other: "SchemaChange") -> "SchemaChange":
        """Both changes."""
        return SchemaChange(self.added + other.added, self.widened + other.widened, self.optional + other.optional)

    @property
    def in_words(self) -> str:
        """The change for a line or a summary, with ten names of each kind: ``added a, s.b; made c optional``."""
        parts = (
            ("added ", tuple(one.column for one in self.added), ""),
            ("widened ", tuple(one.column for one in self.widened), ""),
            ("made ", self.optional, " optional"),
        )
        return "; ".join(f"{verb}{_named(columns)}{after}" for verb, columns, after in parts if columns)

    def to_json(self) -> dict[str, Any]:
        """JSON form for prepared records."""
        return {
            "added": [[list(one.column), one.type_json] for one in self.added],
            "widened": [[list(one.column), one.type_json] for one in self.widened],
            "optional": [list(column) for column in self.optional],
        }

    @classmethod
    def from_json(cls, document: Any) -> "SchemaChange":
        """The inverse of `to_json`; raises ChangeInvalid."""
        match document:
            case {"added": list(added), "widened": list(widened), "optional": list(optional), **rest} if not rest:
                if len(added) + len(widened) + len(optional) <= MOST_COLUMNS:
                    new, wider = (tuple(map(_column_type, columns)) for columns in (added, widened))
                    return cls(new, wider, tuple(map(_column, optional)))
        raise ChangeInvalid("not a schema change, or it has too many columns")


def _named(columns: Sequence[tuple[str, ...]]) -> str:
    names = ", ".join(shown(".".join(column), LONGEST_NAMED) for column in columns[:MOST_NAMED])
    return f"{names} and {len(columns) - MOST_NAMED} more" if len(columns) > MOST_NAMED else names


def _column_type(document: Any) -> ColumnType:
    match document:
        case [column, str(type_json)] if 0 < len(type_json) <= LONGEST_TYPE:
            return ColumnType(_column(column), type_json)
    raise ChangeInvalid("a column has no type")


def _column(document: Any) -> tuple[str, ...]:
    named = isinstance(document, list) and document and all(isinstance(name, str) and name for name in document)
    if not named or sum(map(len, document)) > LONGEST_COLUMN:
        raise ChangeInvalid("a column has no name, or its name is too long")
    return tuple(document)
