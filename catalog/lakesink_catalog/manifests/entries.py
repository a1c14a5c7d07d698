"""Entries of a manifest, cut out of its file: a merge decodes only the fields that it needs. Pure.

The layout comes from the schema in the manifest's own header. Entries of one layout can be put into one file without
decoding their data files, so no metadata is lost or changed, including fields that lakesink does not know.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from lakesink_catalog.manifests.avro import Header, each_value, parsed_schema
from lakesink_catalog.manifests.avro_skips import skipper
from lakesink_catalog.manifests.avro_values import Malformed, encode_long, read_long, reader
from lakesink_catalog.manifests.partitions import Kind, single_value

STATUS, SNAPSHOT_ID, DATA_FILE, SEQUENCE_NUMBER, FILE_SEQUENCE_NUMBER = range(5)
"""Iceberg's field ids of an entry."""
HEAD = (STATUS, SNAPSHOT_ID, SEQUENCE_NUMBER, FILE_SEQUENCE_NUMBER)
FILE_PATH, PARTITION, RECORD_COUNT, FILE_SIZE, CONTENT = 100, 102, 103, 104, 134
SORT_ORDER_ID, REFERENCED_DATA_FILE = 140, 143
EXISTING, ADDED, DELETED = range(3)
FORMAT_VERSION = b"2"
DATA, DELETES = b"data", b"deletes"
"""What a manifest's header says of its content."""
_WHOLE = ("int", "long")

Partition = tuple[bytes | None, ...]
"""In single-value form; None is NULL."""
Head = Mapping[int, int | None]
"""The fields of an entry except its data file, by id."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """Values in the manifest list that entries inherit where they have none."""

    snapshot_id: int | None
    sequence_number: int


class NewEntry(NamedTuple):
    """An entry of the manifest to write.

    `rows` is its number of rows or positions. `sequence_number` is its data sequence number; None for the one that the
    commit will have. `path` is that of a file whose entry ends here, else empty.
    """

    status: int
    encoded: bytes
    rows: int
    partition: Partition
    sequence_number: int | None
    path: str = ""


def layout_digest(metadata: Mapping[str, bytes], content: bytes = DATA) -> str:
    """Equal for manifests whose entries fit into one file: one spec, and one schema, documentation aside."""
    check_version(metadata, content)
    try:
        return _digest(metadata["avro.schema"], metadata["partition-spec"])
    except (KeyError, ValueError, RecursionError) as error:
        raise Malformed("an incomplete header") from error


@lru_cache(maxsize=64)
def _digest(avro_schema: bytes, partition_spec: bytes) -> str:
    layout = json.dumps([_undocumented(parsed_schema(avro_schema)), json.loads(partition_spec)], sort_keys=True)
    return hashlib.sha256(layout.encode()).hexdigest()


def check_version(metadata: Mapping[str, bytes], content: bytes = DATA) -> None:
    """Raise `Malformed` unless it is a manifest of data files, or of the other content, in format version 2."""
    if metadata.get("format-version") != FORMAT_VERSION or metadata.get("content", DATA) != content:
        raise Malformed(f"not a manifest of {'data files' if content == DATA else 'delete files'} of version 2")


def partition_kinds(schema: Any) -> tuple[Kind, ...]:
    """The kinds of a manifest's partition fields, from its writer's schema."""
    try:
        [file] = [field["type"] for field in schema["fields"] if field["field-id"] == DATA_FILE]
        [partition] = [field["type"] for field in file["fields"] if field["field-id"] == PARTITION]
        return tuple(_kind(field["type"]) for field in partition["fields"])
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed("not the schema of a manifest") from error


def single_values(kinds: Sequence[Kind], partition: Mapping[int | str, Any]) -> Partition:
    """The values of a decoded partition in single-value form; raises `Malformed` if a value does not match its type."""
    try:
        return tuple(single_value(kind, value) for kind, value in zip(kinds, partition.values(), strict=True))
    except (ValueError, struct.error) as error:
        raise Malformed("a partition value does not match its type") from error


def partition_reader(schema: Any, partition: Any) -> Callable[[bytes], Partition]:
    """A function that decodes a partition into single-value form; neighbouring files mostly have few different ones."""
    kinds, read = partition_kinds(schema), reader(partition)
    return lru_cache(maxsize=1024)(lambda encoded: single_values(kinds, read(encoded, 0)[0]))


def carry_over(
    data: bytes, header: Header, inherited: Inherited, removed: Collection[str] = (), snapshot_id: int | None = None
) -> Iterator[NewEntry | None]:
    """The entries of a manifest for another one of the same layout; None for each that an earlier snapshot deleted.

    Those of `removed` paths become DELETED by the snapshot, the others EXISTING. Sequence numbers are written out,
    because in another manifest the entries would inherit other ones.
    """
    layout = _layout(header.avro_schema)
    heads: dict[tuple[bytes, bytes, bool], NewHead | None] = {}

    def read(block: bytes, at: int) -> tuple[NewEntry | None, int]:
        cut = layout.cut(block, at)
        path = layout.path(block, cut) if removed else ""
        ends = path in removed
        around = block[at : cut.begin], block[cut.end : cut.after], ends
        if around not in heads:
            heads[around] = layout.carried(*around[:2], inherited, removed_by=snapshot_id if ends else None)
        head = heads[around]
        if head is None:
            return None, cut.after
        encoded = head.before + block[cut.begin : cut.end] + head.behind
        status, partition = DELETED if ends else EXISTING, layout.partition(block[cut.partition])
        return NewEntry(status, encoded, cut.rows, partition, head.sequence_number, path if ends else ""), cut.after

    return each_value(data, header, read, "an entry")


class Cut(NamedTuple):
    """Where an entry's data file begins and ends, its path, its partition, its rows, and the end of the entry."""

    begin: int
    end: int
    path: int
    partition: slice
    rows: int
    after: int


class NewHead(NamedTuple):
    """What an entry has before and behind its data file in another manifest, and its data sequence number."""

    before: bytes
    behind: bytes
    sequence_number: int


class Layout:
    """How a writer's schema lays out the entries of a manifest."""

    def __init__(self, avro_schema: bytes) -> None:
        schema = parsed_schema(avro_schema)
        try:
            fields = {field["field-id"]: field["type"] for field in schema["fields"]}
            if len(schema["fields"]) != len(fields) or fields.keys() != {*HEAD, DATA_FILE}:
                raise Malformed("an entry has unknown fields")
            kinds = {field["field-id"]: field["type"] for field in fields[DATA_FILE]["fields"]}
            if kinds[RECORD_COUNT] != "long":
                raise Malformed("the number of rows is not a long")
            self._path = reader(kinds[FILE_PATH])
        except (KeyError, TypeError) as error:
            raise Malformed("not the schema of a manifest") from error
        order, place = list(fields), list(fields).index(DATA_FILE)
        self._before, self._behind = _Fields(order[:place], fields), _Fields(order[place + 1 :], fields)
        self._file = [skip.skip for _, skip in skipper(fields[DATA_FILE]).fields]
        places = (list(kinds).index(field) for field in (FILE_PATH, PARTITION, RECORD_COUNT))
        self._path_at, self._partition_at, self._rows_at = places
        self.partition = partition_reader(schema, kinds[PARTITION])

    def cut(self, block: bytes, at: int) -> Cut:
        """The parts of the entry that begins here."""
        at = self._before.skip(block, at)
        ends = [at]
        for skip in self._file:
            at = skip(block, at)
            ends.append(at)
        partition = slice(ends[self._partition_at], ends[self._partition_at + 1])
        rows, _ = read_long(block, ends[self._rows_at])
        return Cut(ends[0], at, ends[self._path_at], partition, rows, self._behind.skip(block, at))

    def path(self, block: bytes, cut: Cut) -> str:
        """The path of an entry's file."""
        return str(self._path(block, cut.path)[0])

    def carried(
        self, before: bytes, behind: bytes, inherited: Inherited, *, removed_by: int | None = None
    ) -> NewHead | None:
        """The head that an entry with this one gets in another manifest; None if its file was deleted before.

        `removed_by` is the snapshot that deletes the file now; its entry keeps its sequence numbers.
        """
        head = {**self._before.read(before), **self._behind.read(behind)}
        if head[STATUS] not in {EXISTING, ADDED, DELETED}:
            raise Malformed("an unknown status")
        if head[STATUS] == DELETED:
            return None
        found, sequence_number = _as_existing(head, inherited)
        if removed_by is not None:
            found = {**found, STATUS: DELETED, SNAPSHOT_ID: removed_by}
        return NewHead(self._before.encoded(found), self._behind.encoded(found), sequence_number)


class _Fields:
    """Neighbouring fields of an entry's head."""

    def __init__(self, ids: Sequence[int], types: Mapping[int, Any]) -> None:
        fields = [{"name": str(field), "field-id": field, "type": types[field]} for field in ids]
        record = {"type": "record", "name": "fields", "fields": fields}
        self._encoders = [(field, _encoder(types[field])) for field in ids]
        self._read = reader(record)
        self.skip = skipper(record).skip

    def read(self, encoded: bytes) -> Head:
        head: Head
        head, _ = self._read(encoded, 0)
        return head

    def encoded(self, head: Head) -> bytes:
        return b"".join(encode(head[field]) for field, encode in self._encoders)


_layout = lru_cache(maxsize=64)(Layout)


def _as_existing(head: Head, inherited: Inherited) -> tuple[Head, int]:
    """Writes out inherited values, because in another manifest the entry would inherit other values."""
    sequence_number = data_sequence_number(head, inherited.sequence_number)
    found = {
        STATUS: EXISTING,
        SNAPSHOT_ID: inherited.snapshot_id if head[SNAPSHOT_ID] is None else head[SNAPSHOT_ID],
        SEQUENCE_NUMBER: sequence_number,
        FILE_SEQUENCE_NUMBER: _inherited(FILE_SEQUENCE_NUMBER, head, inherited.sequence_number),
    }
    return found, sequence_number


def data_sequence_number(head: Mapping[int, Any], of_manifest: int) -> int:
    """The data sequence number of an entry; raises `Malformed` if it neither has nor inherits one."""
    number = _inherited(SEQUENCE_NUMBER, head, of_manifest)
    if type(number) is not int:
        raise Malformed("an entry without a sequence number")
    return number


def _inherited(field: int, head: Mapping[int, Any], of_manifest: int) -> Any:
    """Added entries inherit the manifest's number, and so do all entries from before sequence numbers existed."""
    takes = head[STATUS] == ADDED or of_manifest == 0
    return of_manifest if head.get(field) is None and takes else head.get(field)


def _encoder(schema: Any) -> Callable[[int | None], bytes]:
    """A function that encodes a whole number, or None, for a field of this type."""
    branches: Sequence[Any] = schema if isinstance(schema, list) else ()
    if schema in _WHOLE:
        return encode_long  # type: ignore[return-value] # what is read from a required field is not None
    if len(branches) == 2 and "null" in branches and any(kind in branches for kind in _WHOLE):
        null = branches.index("null")
        return lambda value: encode_long(null) if value is None else encode_long(1 - null) + encode_long(value)
    raise Malformed("a field of an entry is not a number")


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
