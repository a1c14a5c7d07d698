"""Decodes the live entries of a manifest, and of each only what locating needs. Pure.

PyIceberg drops fields that it does not know, reads doubles as floats, and decodes every statistic of every column.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from types import MappingProxyType
from typing import Any

from lakesink_catalog.manifests import entries
from lakesink_catalog.manifests.avro import each_value, parsed_schema, read_header
from lakesink_catalog.manifests.avro_skips import skipper
from lakesink_catalog.manifests.avro_values import Malformed, Read, counts, read_bytes, read_long, reader
from lakesink_catalog.manifests.encode import FILE_FORMAT, LOWER_BOUNDS, UPPER_BOUNDS
from lakesink_catalog.manifests.live import FILE_PATH_COLUMN, LiveFile
from lakesink_protocol.change import Content

_VERSIONS = (b"1", b"2")
"""A table that was upgraded to version 2 keeps the manifests of version 1, whose entries have sequence number 0."""
_REQUIRED: Mapping[int, str] = {
    entries.STATUS: "int",
    entries.FILE_PATH: "string",
    FILE_FORMAT: "string",
    entries.RECORD_COUNT: "long",
    entries.FILE_SIZE: "long",
}
_OPTIONAL = (entries.SNAPSHOT_ID, entries.SEQUENCE_NUMBER, entries.CONTENT, entries.REFERENCED_DATA_FILE)

_CONTENTS = {content.value: content for content in Content}
_BOUNDS = (LOWER_BOUNDS, UPPER_BOUNDS)
_STATUSES = (entries.EXISTING, entries.ADDED, entries.DELETED)

Bounds = Mapping[int, bytes]
_NONE: Bounds = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Origin:
    """What the manifest list says of a manifest; `deletes` is its content."""

    path: str
    spec_id: int
    sequence_number: int
    deletes: bool
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class LiveEntries:
    """The live files of one manifest.

    `derived` are the paths of delete files whose data file follows from their bounds alone: bounds may have been cut.
    Equality deletes are apart, because no position can replace them.
    """

    files: tuple[LiveFile, ...]
    derived: frozenset[str] = frozenset()
    equality: tuple[LiveFile, ...] = ()


def live_entries(data: bytes, origin: Origin, bounds_of: frozenset[int]) -> LiveEntries:
    """The live files of a manifest, with the bounds of the fields in `bounds_of`.

    Raises:
        Malformed: The manifest cannot be read exactly.
    """
    header = read_header(data)
    metadata = header.metadata
    content = b"deletes" if origin.deletes else b"data"
    if metadata.get("format-version", b"1") not in _VERSIONS or metadata.get("content", b"data") != content:
        raise Malformed("a manifest of another version or content than its list states")
    layout = _layout(header.avro_schema, frozenset({FILE_PATH_COLUMN}) if origin.deletes else bounds_of)
    files, derived, equality = [], set(), []
    for found in each_value(data, header, partial(layout.read, origin), "an entry"):
        if found is not None and found.content is Content.EQUALITY_DELETES:
            equality.append(found)
        elif found is not None:
            path = _only_path(found)
            if path:
                derived.add(found.path)
            files.append(replace(found, referenced_data_file=path) if path else found)
    return LiveEntries(tuple(files), frozenset(derived), tuple(equality))


def _only_path(file: LiveFile) -> str:
    """The data file that both bounds of a delete file name; empty if its manifest states one, or if they differ."""
    lower, upper = file.lower_bounds.get(FILE_PATH_COLUMN), file.upper_bounds.get(FILE_PATH_COLUMN)
    if file.content is Content.DATA or file.referenced_data_file or lower is None or lower != upper:
        return ""
    try:
        return lower.decode()
    except UnicodeDecodeError:
        return ""


class _Layout:
    """How a writer's schema lays out the entries of a manifest, and how the wanted fields are read."""

    def __init__(self, avro_schema: bytes, wanted: frozenset[int]) -> None:
        schema = parsed_schema(avro_schema)
        try:
            entry = {field["field-id"]: field["type"] for field in schema["fields"]}
            types = entry | {field["field-id"]: field["type"] for field in entry[entries.DATA_FILE]["fields"]}
        except (KeyError, TypeError) as error:
            raise Malformed("not the schema of a manifest") from error
        if any(types.get(number) != kind for number, kind in _REQUIRED.items()) or entries.PARTITION not in types:
            raise Malformed("not the schema of a manifest")
        # The fields of the entry's file are in its place: a record has no bytes of its own.
        both = (
            one.fields if number == entries.DATA_FILE else ((number, one),) for number, one in skipper(schema).fields
        )
        fields = list(chain.from_iterable(both))
        self._skips = [one.skip for _, one in fields]
        places = {number: place for place, (number, _) in enumerate(fields)}
        reads = {number: reader(types[number]) for number in (*_REQUIRED, *_OPTIONAL) if number in types}
        reads |= {number: _bounds(types[number], wanted) for number in _BOUNDS if number in types}
        self._reads = [(number, places[number], read) for number, read in reads.items()]
        self._partition_at = places[entries.PARTITION]
        self._partition = entries.partition_reader(schema, types[entries.PARTITION])

    def read(self, origin: Origin, block: bytes, at: int) -> tuple[LiveFile | None, int]:
        """The file of the entry that begins here, or None if it is deleted, and where the entry ends."""
        starts = []
        for skip in self._skips:
            starts.append(at)
            at = skip(block, at)
        starts.append(at)
        found = {number: read(block, starts[place])[0] for number, place, read in self._reads}
        if found[entries.STATUS] not in _STATUSES:
            raise Malformed("an unknown status")
        if found[entries.STATUS] == entries.DELETED:
            return None, at
        begin, end = starts[self._partition_at : self._partition_at + 2]
        return _file(found, self._partition(block[begin:end]), origin), at


_layout = lru_cache(maxsize=64)(_Layout)


def _file(found: Mapping[int, Any], partition: entries.Partition, origin: Origin) -> LiveFile:
    content = _CONTENTS.get(found.get(entries.CONTENT) or Content.DATA.value)
    if content is None or (content is not Content.DATA) != origin.deletes:
        raise Malformed("an entry of another content than its manifest")
    # Entries without a snapshot inherit that of the manifest.
    number = found.get(entries.SNAPSHOT_ID)
    return LiveFile(
        path=found[entries.FILE_PATH],
        content=content,
        spec_id=origin.spec_id,
        partition=partition,
        record_count=found[entries.RECORD_COUNT],
        file_size_bytes=found[entries.FILE_SIZE],
        sequence_number=entries.data_sequence_number(found, origin.sequence_number),
        lower_bounds=found.get(LOWER_BOUNDS, _NONE),
        upper_bounds=found.get(UPPER_BOUNDS, _NONE),
        referenced_data_file=found.get(entries.REFERENCED_DATA_FILE) or "",
        manifest_path=origin.path,
        file_format=found[FILE_FORMAT].upper(),
        added_by=number if type(number) is int else origin.snapshot_id,
    )


def _bounds(schema: Any, wanted: frozenset[int]) -> Read:
    """Reads the bounds of the wanted fields only: tables can have thousands of columns."""
    branches = schema if isinstance(schema, list) else [schema]
    maps = [place for place, branch in enumerate(branches) if _is_bounds(branch)]
    if len(maps) != 1 or not wanted:
        return lambda _, at: (_NONE, at)

    def read(data: bytes, at: int) -> tuple[Bounds, int]:
        if isinstance(schema, list):
            place, at = read_long(data, at)
            if place != maps[0]:
                return _NONE, at
        return _wanted(data, at, wanted)

    return read


def _wanted(data: bytes, at: int, wanted: frozenset[int]) -> tuple[Bounds, int]:
    """The values of these keys in a map; does not read on behind the last of them."""
    found: dict[int, bytes] = {}
    while len(found) < len(wanted):
        count, _, at = counts(data, at)
        if count == 0:
            break
        for _ in range(count):
            key, at = read_long(data, at)
            value, at = read_bytes(data, at)
            if key in wanted:
                found[key] = value
                if len(found) == len(wanted):
                    break
    return found or _NONE, at


def _is_bounds(schema: Any) -> bool:
    """True for a map from field ids to bytes, in the form that Iceberg has for maps whose keys are no texts."""
    match schema:
        case {"type": "array", "items": {"type": "record", "fields": [{"type": "int"}, {"type": "bytes"}]}}:
            return True
    return False
