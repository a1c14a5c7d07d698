"""What the entries of a manifest become in another one, byte by byte, and which schemas have no such entries."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from lakesink_catalog.manifests.avro import container, read_header
from lakesink_catalog.manifests.avro_values import Malformed, encode_bytes, encode_long
from lakesink_catalog.manifests.entries import (
    DELETES,
    Inherited,
    NewEntry,
    carry_over,
    check_version,
    layout_digest,
    partition_kinds,
    single_values,
)
from lakesink_catalog.manifests.live_entries import Origin, live_entries
from lakesink_catalog.manifests.partitions import Kind

Document = dict[str, Any]
EXISTING, ADDED, DELETED = 0, 1, 2
OPTIONAL = ["null", "long"]
FILE: Document = {
    "type": "record",
    "name": "file",
    "fields": [
        {"name": "path", "field-id": 100, "type": "string"},
        {
            "name": "partition",
            "field-id": 102,
            "type": {
                "type": "record",
                "name": "part",
                "fields": [{"name": "p", "field-id": 1000, "type": ["null", "int"]}],
            },
        },
        {"name": "rows", "field-id": 103, "type": "long"},
        {"name": "size", "field-id": 104, "type": "long"},
        {"name": "format", "field-id": 101, "type": "string"},
    ],
}
SCHEMA: Document = {
    "type": "record",
    "name": "entry",
    "fields": [
        {"name": "status", "field-id": 0, "type": "int"},
        {"name": "snapshot", "field-id": 1, "type": OPTIONAL},
        {"name": "sequence", "field-id": 3, "type": OPTIONAL},
        {"name": "file", "field-id": 2, "type": FILE},
        {"name": "of file", "field-id": 4, "type": OPTIONAL},
    ],
}
METADATA = {"format-version": b"2", "avro.schema": json.dumps(SCHEMA).encode(), "partition-spec": b"[]"}


def optional(value: int | None) -> bytes:
    return encode_long(0) if value is None else encode_long(1) + encode_long(value)


def entry(
    status: int, snapshot: int | None, sequence: int | None, of_file: int | None, path: str = "a", part: int | None = 7
) -> bytes:
    file = encode_bytes(path.encode()) + optional(part) + encode_long(300) + encode_long(90) + encode_bytes(b"PARQUET")
    return encode_long(status) + optional(snapshot) + optional(sequence) + file + optional(of_file)


def carried(
    *entries: bytes, of_manifest: int = 9, removed: tuple[str, ...] = (), schema: Document = SCHEMA
) -> list[NewEntry | None]:
    data = container({"avro.schema": json.dumps(schema).encode()}, "null", [entries])
    return list(carry_over(data, read_header(data), Inherited(5, of_manifest), removed, 77 if removed else None))


SEVEN = (7).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("before", "of_manifest", "after", "sequence"),
    [
        (entry(ADDED, None, None, None), 9, entry(EXISTING, 5, 9, 9), 9),
        (entry(ADDED, 4, None, None), 9, entry(EXISTING, 4, 9, 9), 9),
        (entry(ADDED, 4, 3, None), 9, entry(EXISTING, 4, 3, 9), 3),
        (entry(EXISTING, 4, 3, 2), 9, entry(EXISTING, 4, 3, 2), 3),
        (entry(EXISTING, None, 3, None), 9, entry(EXISTING, 5, 3, None), 3),
        (entry(EXISTING, 4, None, None), 0, entry(EXISTING, 4, 0, 0), 0),
    ],
)
def test_an_entry_that_stays_has_its_inherited_numbers_written_out(
    before: bytes, of_manifest: int, after: bytes, sequence: int
) -> None:
    assert carried(before, of_manifest=of_manifest) == [NewEntry(EXISTING, after, 300, (SEVEN,), sequence)]


def test_a_file_that_ends_is_deleted_by_the_snapshot_and_keeps_its_numbers() -> None:
    found = carried(entry(ADDED, None, None, None), entry(EXISTING, 4, 3, 2, path="b", part=None), removed=("b", "c"))
    assert found == [
        NewEntry(EXISTING, entry(EXISTING, 5, 9, 9), 300, (SEVEN,), 9),
        NewEntry(DELETED, entry(DELETED, 77, 3, 2, path="b", part=None), 300, (None,), 3, "b"),
    ]


def test_a_file_that_was_deleted_before_has_no_entry_more() -> None:
    assert carried(entry(DELETED, 4, 3, 2), entry(DELETED, 4, 3, 2, path="b"), removed=("b",)) == [None, None]


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        (entry(3, 4, 3, 2), "an unknown status"),
        (entry(-1, 4, 3, 2), "an unknown status"),
        (entry(EXISTING, 4, None, 2), "an entry without a sequence number"),
        (entry(EXISTING, 4, 3, 2)[:-1], "an entry is cut"),
        (entry(EXISTING, 4, 3, 2) + b"\0", "longer or shorter"),
    ],
)
def test_an_entry_that_no_writer_makes_is_malformed(spoilt: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        carried(spoilt)


def edited(edit: Callable[[list[Document], list[Document]], Any]) -> Document:
    """The schema after an edit of the fields of an entry and of its file."""
    found = copy.deepcopy(SCHEMA)
    edit(found["fields"], found["fields"][3]["type"]["fields"])
    return found


NO_SCHEMA = "not the schema of a manifest"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (edited(lambda entry, _: entry.append({"name": "x", "field-id": 9, "type": "int"})), "has unknown fields"),
        (edited(lambda entry, _: entry.append({"name": "x", "field-id": 1, "type": OPTIONAL})), "has unknown fields"),
        (edited(lambda entry, _: entry.pop()), "has unknown fields"),
        (edited(lambda entry, _: entry[0].pop("field-id")), NO_SCHEMA),
        (edited(lambda _, file: file.pop(0)), NO_SCHEMA),
        (edited(lambda _, file: file.pop(2)), NO_SCHEMA),
        (edited(lambda _, file: file[2].update(type="int")), "the number of rows is not a long"),
        (edited(lambda entry, _: entry[1].update(type=["null", "string"])), "a field of an entry is not a number"),
        (edited(lambda entry, _: entry[1].update(type=["int", "long"])), "a field of an entry is not a number"),
        (edited(lambda entry, _: entry[1].update(type=["null", "int", "long"])), "a field of an entry is not a number"),
        (edited(lambda entry, _: entry[1].update(type="string")), "a field of an entry is not a number"),
    ],
)
def test_a_schema_without_the_fields_of_entries_is_malformed(schema: Document, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        carried(entry(EXISTING, 4, 3, 2), schema=schema)


def test_a_number_may_be_null_in_either_order_and_a_field_may_be_required() -> None:
    schema = edited(lambda entry, _: (entry[1].update(type=["long", "null"]), entry[2].update(type="long")))
    file = entry(EXISTING, 4, 3, 2)[5:]
    known = encode_long(EXISTING) + encode_long(0) + encode_long(4) + encode_long(3) + file
    unknown = encode_long(EXISTING) + encode_long(1) + encode_long(3) + file
    inherits = encode_long(EXISTING) + encode_long(0) + encode_long(5) + encode_long(3) + file
    found = [one.encoded for one in carried(known, unknown, schema=schema) if one]
    assert found == [known, inherits]


@pytest.mark.parametrize(
    ("avro", "kind"),
    [
        *((kind.value, kind) for kind in Kind if kind not in (Kind.FIXED, Kind.DECIMAL)),
        (["null", "int"], Kind.INT),
        (["string", "null"], Kind.STRING),
        (["null"], Kind.NULL),
        ({"type": "long", "logicalType": "timestamp-micros"}, Kind.LONG),
        ({"type": "fixed", "size": 3, "name": "f"}, Kind.FIXED),
        (["null", {"type": "fixed", "size": 3, "name": "f", "logicalType": "decimal"}], Kind.DECIMAL),
        ({"type": "bytes", "logicalType": "decimal"}, Kind.DECIMAL),
        ("record", None),
        (["int", "long"], None),
        ({"size": 3}, None),
    ],
)
def test_the_values_of_a_partition_are_of_a_known_kind(avro: Any, kind: Kind | None) -> None:
    schema = edited(lambda _, file: file[1]["type"]["fields"][0].update(type=avro))
    if kind is not None:
        assert partition_kinds(schema) == (kind,)
    else:
        with pytest.raises(Malformed):
            partition_kinds(schema)


def test_a_partition_has_a_value_of_each_kind() -> None:
    assert single_values((Kind.INT, Kind.STRING), {1000: 7, 1001: None}) == (SEVEN, None)
    wrong: list[dict[int | str, Any]] = [{1000: 7}, {1000: 7, 1001: "a", 1002: "b"}, {1000: 2**31, 1001: "a"}]
    for values in wrong:
        with pytest.raises(Malformed, match="a partition value does not match its type"):
            single_values((Kind.INT, Kind.STRING), values)


def digest(schema: Document, spec: bytes = b"[]") -> str:
    return layout_digest({**METADATA, "avro.schema": json.dumps(schema).encode(), "partition-spec": spec})


def test_entries_fit_into_one_file_if_spec_and_schema_are_equal_but_for_their_documentation() -> None:
    assert digest(edited(lambda entry, file: (entry[0].update(doc="x"), file[0].update(doc="y")))) == digest(SCHEMA)
    assert digest(SCHEMA, b"[ ]") == digest(SCHEMA)
    assert digest(edited(lambda _, file: file[3].update(type="int"))) != digest(SCHEMA)
    assert digest(edited(lambda _, file: file[3].update(name="other"))) != digest(SCHEMA)
    assert digest(SCHEMA, b"[1]") != digest(SCHEMA)


@pytest.mark.parametrize("spoilt", [{"avro.schema": None}, {"partition-spec": None}, {"partition-spec": b"["}])
def test_a_manifest_without_spec_or_schema_has_no_layout(spoilt: dict[str, bytes | None]) -> None:
    metadata = {name: text for name, text in (METADATA | spoilt).items() if text is not None}
    with pytest.raises(Malformed, match="an incomplete header"):
        layout_digest(metadata)


@pytest.mark.parametrize(
    ("metadata", "content", "fits"),
    [
        ({"format-version": b"2"}, b"data", True),
        ({"format-version": b"2", "content": b"data"}, b"data", True),
        ({"format-version": b"2", "content": b"deletes"}, DELETES, True),
        ({"format-version": b"2", "content": b"deletes"}, b"data", False),
        ({"format-version": b"2"}, DELETES, False),
        ({"format-version": b"1"}, b"data", False),
        ({}, b"data", False),
    ],
)
def test_a_manifest_is_of_version_2_and_of_one_content(
    metadata: dict[str, bytes], content: bytes, *, fits: bool
) -> None:
    if fits:
        check_version(metadata, content)
    else:
        said = "data files" if content == b"data" else "delete files"
        with pytest.raises(Malformed, match=f"not a manifest of {said} of version 2"):
            check_version(metadata, content)


@pytest.mark.parametrize(("status", "paths"), [(EXISTING, ["a"]), (ADDED, ["a"]), (DELETED, []), (3, None), (-1, None)])
def test_a_file_is_live_unless_its_entry_is_deleted(status: int, paths: list[str] | None) -> None:
    data = container(METADATA, "null", [[entry(status, 4, 3, 2)]])
    origin = Origin("m", 0, 9, deletes=False)
    if paths is None:
        with pytest.raises(Malformed, match="an unknown status"):
            live_entries(data, origin, frozenset())
    else:
        assert [file.path for file in live_entries(data, origin, frozenset()).files] == paths


def test_a_schema_without_a_file_has_no_live_entries() -> None:
    spoilt = json.dumps(edited(lambda entry, _: entry.pop(3))).encode()
    data = container({**METADATA, "avro.schema": spoilt}, "null", [])
    with pytest.raises(Malformed, match=NO_SCHEMA):
        live_entries(data, Origin("m", 0, 9, deletes=False), frozenset())
