"""Entries of a manifest, cut out of its file: a merge decodes only the fields that it needs. Pure.

The layout comes from the schema in the manifest's own header. Entries of one layout can be put into one file without
decoding their data files, so no metadata is lost or changed, including fields that lakesink does not know.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakesink_catalog.manifests.avro import Header, blocks, check_end, read_header
from lakesink_catalog.manifests.avro_values import Malformed, encode_long, read_long, reader, skipper
from lakesink_catalog.manifests.partitions import Kind, single_value

STATUS, SNAPSHOT_ID, DATA_FILE, SEQUENCE_NUMBER, FILE_SEQUENCE_NUMBER = range(5)
"""Iceberg's field ids of an entry."""
HEAD = (STATUS, SNAPSHOT_ID, SEQUENCE_NUMBER, FILE_SEQUENCE_NUMBER)
FILE_PATH, PARTITION, RECORD_COUNT, FILE_SIZE, CONTENT = 100, 102, 103, 104, 134
EXISTING, ADDED, DELETED = range(3)
FORMAT_VERSION = b"2"
_WHOLE = ("int", "long")

Head = Mapping[int, int | None]
"""The fields of an entry except its data file, by id."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """Values in the manifest list that entries inherit where they have none."""

    snapshot_id: int | None
    sequence_number: int


@dataclass(frozen=True, slots=True)
class Carried:
    """The live entries of a manifest, encoded for another manifest with their sequence numbers written out.

    `partitions` are in single-value form. `min_sequence_number` is a data sequence number; None if there is no entry.
    """

    header: Header
    kinds: tuple[Kind, ...]
    entries: tuple[bytes, ...]
    rows: int
    partitions: frozenset[tuple[bytes | None, ...]]
    min_sequence_number: int | None


def layout_digest(header: Header) -> str:
    """Equal for manifests whose entries fit into one file: one spec, and one schema, documentation aside."""
    check_version(header)
    try:
        spec = json.loads(header.metadata["partition-spec"])
        layout = json.dumps([_undocumented(header.schema), spec], sort_keys=True)
    except (KeyError, ValueError, RecursionError) as error:
        raise Malformed("an incomplete header") from error
    return hashlib.sha256(layout.encode()).hexdigest()


def check_version(header: Header) -> None:
    """Raise `Malformed` unless it is a manifest of data files in format version 2."""
    metadata = header.metadata
    if metadata.get("format-version") != FORMAT_VERSION or metadata.get("content", b"data") != b"data":
        raise Malformed("not a manifest of data files of version 2")


def partition_kinds(schema: Any) -> tuple[Kind, ...]:
    """The kinds of a manifest's partition fields, from its writer's schema."""
    try:
        [file] = [field["type"] for field in schema["fields"] if field["field-id"] == DATA_FILE]
        [partition] = [field["type"] for field in file["fields"] if field["field-id"] == PARTITION]
        return tuple(_kind(field["type"]) for field in partition["fields"])
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed("not the schema of a manifest") from error


def single_values(kinds: Sequence[Kind], partition: Mapping[int | str, Any]) -> tuple[bytes | None, ...]:
    """The values of a decoded partition in single-value form; raises `Malformed` if a value does not match its type."""
    try:
        return tuple(single_value(kind, value) for kind, value in zip(kinds, partition.values(), strict=True))
    except (ValueError, struct.error) as error:
        raise Malformed("a partition value does not match its type") from error


def carry_over(data: bytes, inherited: Inherited) -> Carried:
    """The live entries of a manifest, for another manifest of the same layout."""
    header = read_header(data)
    layout = _Layout(header.schema)
    entries, rows, numbers, partitions = [], 0, [], set()
    for count, block in blocks(data, header):
        at = 0
        for _ in range(count):
            try:
                head, file, at = layout.cut(block, at)
            except IndexError:
                raise Malformed("an entry is cut") from None
            if head[STATUS] == DELETED:
                continue
            head = _as_existing(head, inherited)
            entries.append(layout.encoded(head, block[file.start : file.end]))
            numbers.append(head[SEQUENCE_NUMBER] or 0)
            rows += file.rows
            partitions.add(block[file.partition])
        check_end(block, at)
    return Carried(
        header=header,
        kinds=layout.kinds,
        entries=tuple(entries),
        rows=rows,
        partitions=frozenset(layout.partition(partition) for partition in partitions),
        min_sequence_number=min(numbers, default=None),
    )


@dataclass(frozen=True, slots=True)
class _File:
    """Position of an entry's data file and its partition in a block, and its number of rows."""

    start: int
    end: int
    partition: slice
    rows: int


class _Layout:
    """How a writer's schema lays out the entries of a manifest."""

    def __init__(self, schema: Any) -> None:
        try:
            fields = {field["field-id"]: field["type"] for field in schema["fields"]}
            file_fields = fields[DATA_FILE]["fields"]
            kinds = {field["field-id"]: field["type"] for field in file_fields}
            if len(schema["fields"]) != len(fields) or fields.keys() != {*HEAD, DATA_FILE}:
                raise Malformed("an entry has unknown fields")
            if kinds[RECORD_COUNT] != "long":
                raise Malformed("the number of rows is not a long")
        except (KeyError, TypeError) as error:
            raise Malformed("not the schema of a manifest") from error
        names: dict[str, Any] = {}
        self.kinds = partition_kinds(schema)
        self._order = tuple(fields)
        self._read = {field: reader(fields[field]) for field in HEAD}
        self._encode = {field: _encoder(fields[field]) for field in HEAD}
        self._file = tuple((field["field-id"], skipper(field["type"], names)) for field in file_fields)
        self._partition = reader(kinds[PARTITION])

    def cut(self, block: bytes, at: int) -> tuple[Head, _File, int]:
        """The head of the entry that begins here, the position of its data file, and the end of the entry."""
        head: dict[int, int | None] = {}
        for field in self._order:
            if field == DATA_FILE:
                file = self._cut_file(block, at)
                at = file.end
            else:
                head[field], at = self._read[field](block, at)
        if head[STATUS] not in {EXISTING, ADDED, DELETED}:
            raise Malformed("an unknown status")
        return head, file, at

    def _cut_file(self, block: bytes, at: int) -> _File:
        start, rows, partition = at, 0, slice(0)
        for field, skip in self._file:
            begun, at = at, skip(block, at)
            if field == PARTITION:
                partition = slice(begun, at)
            elif field == RECORD_COUNT:
                rows, _ = read_long(block, begun)
        return _File(start, at, partition, rows)

    def encoded(self, head: Head, data_file: bytes) -> bytes:
        """Encode an entry of this layout."""
        return b"".join(data_file if field == DATA_FILE else self._encode[field](head[field]) for field in self._order)

    def partition(self, encoded: bytes) -> tuple[bytes | None, ...]:
        """The values of a partition in single-value form."""
        found, _ = self._partition(encoded, 0)
        return single_values(self.kinds, found)


def _as_existing(head: Head, inherited: Inherited) -> Head:
    """Writes out inherited values, because in another manifest the entry would inherit other values."""
    found = {
        STATUS: EXISTING,
        SNAPSHOT_ID: inherited.snapshot_id if head[SNAPSHOT_ID] is None else head[SNAPSHOT_ID],
        SEQUENCE_NUMBER: _inherited(SEQUENCE_NUMBER, head, inherited),
        FILE_SEQUENCE_NUMBER: _inherited(FILE_SEQUENCE_NUMBER, head, inherited),
    }
    if found[SEQUENCE_NUMBER] is None:
        raise Malformed("an entry without a sequence number")
    return found


def _inherited(number: int, head: Head, inherited: Inherited) -> int | None:
    """Added entries inherit the manifest's number, and so do all entries from before sequence numbers existed."""
    takes = head[STATUS] == ADDED or inherited.sequence_number == 0
    return inherited.sequence_number if head[number] is None and takes else head[number]


def _encoder(schema: Any) -> Callable[[int | None], bytes]:
    """A function that encodes a whole number, or None, for a field of this type."""
    branches: Sequence[Any] = schema if isinstance(schema, list) else ()
    if schema in _WHOLE:
        return _encode_required
    if len(branches) == 2 and "null" in branches and any(kind in branches for kind in _WHOLE):
        null = branches.index("null")
        return lambda value: encode_long(null) if value is None else encode_long(1 - null) + encode_long(value)
    raise Malformed("a field of an entry is not a number")


def _encode_required(value: int | None) -> bytes:
    if value is None:
        raise Malformed("an entry lacks a required number")
    return encode_long(value)


def _kind(schema: Any) -> Kind:
    """How values of this Avro type become single values."""
    if isinstance(schema, list):
        [schema] = [branch for branch in schema if branch != "null"] or ["null"]
    name = schema if isinstance(schema, str) else schema["type"]
    if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
        return Kind.DECIMAL
    try:
        return Kind(name)
    except ValueError as error:
        raise Malformed("a partition of an unknown type") from error


def _undocumented(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _undocumented(value) for key, value in schema.items() if key != "doc"}
    return [_undocumented(part) for part in schema] if isinstance(schema, list) else schema
