"""Avro files as another library reads them, bit for bit: without logical types, so that nothing is interpreted."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fastavro
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True)
class Raw:
    """A container file: header and records."""

    metadata: dict[str, str]
    records: list[dict[str, Any]]


def raw(location: str) -> Raw:
    """Everything that is in a file."""
    with Path(urlsplit(location).path).open("rb") as stream:
        found = fastavro.block_reader(stream)
        metadata = dict(found.metadata)
        schema = fastavro.parse_schema(plain(json.loads(metadata["avro.schema"])))
        records = []
        for block in found:
            values = io.BytesIO(block.bytes_.getvalue())  # type: ignore[attr-defined] # the stubs lack it
            records += [fastavro.schemaless_reader(values, schema, None) for _ in range(block.num_records)]
            assert not values.read()
    return Raw(metadata, [record for record in records if isinstance(record, dict)])


def raw_list(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The manifest list of a snapshot."""
    return raw(snapshot.manifest_list).records


def raw_entries(table: Table, snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """The live entries of a snapshot by the path of the file, with what they inherit filled in."""
    assert table.metadata.format_version == 2
    found: dict[str, dict[str, Any]] = {}
    for manifest in raw_list(snapshot):
        for entry in raw(manifest["manifest_path"]).records:
            if entry["status"] == 2:
                continue
            if entry["status"] == 1:
                inherited = dict.fromkeys(("sequence_number", "file_sequence_number"), manifest["sequence_number"])
                inherited["snapshot_id"] = manifest["added_snapshot_id"]
                entry |= {name: value for name, value in inherited.items() if entry[name] is None}
            path = entry["data_file"]["file_path"]
            assert path not in found
            found[path] = entry
    return found


def plain(schema: Any) -> Any:
    """The schema without logical types."""
    if isinstance(schema, dict):
        return {key: plain(value) for key, value in schema.items() if key != "logicalType"}
    return [plain(part) for part in schema] if isinstance(schema, list) else schema
