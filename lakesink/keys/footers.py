"""What the footer of a Parquet file says of its columns and rows."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakesink.keys.keys_file import OpenInput
from lakesink.keys.locate_errors import file_unreadable
from lakesink.rows.schema import FIELD_ID_KEY
from lakesink_protocol.redact import describe

_NAME_MAPPING = "schema.name-mapping.default"


@dataclass(frozen=True, slots=True)
class Footer:
    """The places of a file's top-level columns by field id.

    `has_ids` is False if the file itself has no field ids: another program wrote it, before it became a table's.
    """

    columns: Mapping[int, int]
    has_ids: bool


@dataclass(frozen=True, slots=True)
class Source:
    """How data files are opened, and the field ids by column names of files without field ids."""

    open_input: OpenInput
    mapping: Mapping[str, int] = field(default_factory=dict)


def opener(table: Any) -> OpenInput:
    """Opens a location of the table for reading."""
    return lambda location: table.io.new_input(location).open()


def footer_of(schema: pa.Schema, mapping: Mapping[str, int]) -> Footer:
    """From a file's schema; columns of a file without field ids get them from the name mapping."""
    found = ((field_id_of(field), place) for place, field in enumerate(schema))
    ids = {field_id: place for field_id, place in found if field_id is not None}
    if ids:
        return Footer(ids, has_ids=True)
    named = {mapping[name]: place for place, name in enumerate(schema.names) if name in mapping}
    return Footer(named, has_ids=False)


def open_parquet(path: str, source: Any, rows: int, **options: Any) -> pq.ParquetFile:
    """Open a data file and compare its rows with the manifest's; raises WriteError."""
    try:
        file = pq.ParquetFile(source, arrow_extensions_enabled=False, **options)
    except pa.ArrowException as error:
        raise file_unreadable(path, describe(error)) from error
    if file.metadata.num_rows != rows:
        raise file_unreadable(path, f"its footer has {file.metadata.num_rows} rows, and its manifest has {rows}")
    return file


def name_mapping(properties: Mapping[str, str]) -> dict[str, int]:
    """Field ids by the names of top-level columns, from the table's property ``schema.name-mapping.default``."""
    text = properties.get(_NAME_MAPPING)
    if not text:
        return {}
    entries = json.loads(text)
    return {name: entry["field-id"] for entry in entries if "field-id" in entry for name in entry["names"]}


def field_id_of(field: pa.Field) -> int | None:
    """The field id of a column; None if it has none."""
    text = (field.metadata or {}).get(FIELD_ID_KEY.encode())
    return int(text) if text is not None and int(text) >= 0 else None
