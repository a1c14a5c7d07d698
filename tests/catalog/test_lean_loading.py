"""Tables that are loaded to be read show what PyIceberg shows, or are PyIceberg's own."""

import copy
import gzip
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationError as MetadataError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from sqlalchemy import text

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import sinks
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_protocol.errors import CatalogError
from lakesink_tools.past.as_of import at_snapshot
from lakesink_tools.past.lean import LeanIO, lean_loading, load_to_read, storage_of
from lakesink_tools.past.lean_json import LeanSnapshot, NotLean, SetApart, set_apart
from lakesink_tools.past.records import history
from testkit.batches import Writer
from testkit.rest_catalog import rest_catalog

FIRST = 3_000_000_000_000_000_001
METADATA: dict[str, Any] = {
    "format-version": 2,
    "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
    "location": "file:///w/é",
    "last-updated-ms": 1_700_000_000_000,
    "last-column-id": 1,
    "last-sequence-number": 2,
    "schemas": [
        {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
    ],
    "current-schema-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "default-spec-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "default-sort-order-id": 0,
    "properties": {"snapshots": "[]"},
    "current-snapshot-id": FIRST + 1,
    "refs": {"main": {"snapshot-id": FIRST + 1, "type": "branch"}, "t": {"snapshot-id": FIRST, "type": "tag"}},
    "snapshots": [
        {
            "snapshot-id": FIRST,
            "sequence-number": 1,
            "timestamp-ms": 1_699_999_999_000,
            "manifest-list": "file:///w/1.avro",
            "summary": {"operation": "append", "added-records": "1", "lakesink.offsets": '[{"a":"\\u00e9"}]'},
            "schema-id": 0,
        },
        {
            "snapshot-id": FIRST + 1,
            "parent-snapshot-id": FIRST,
            "sequence-number": 2,
            "timestamp-ms": 1_700_000_000_000,
            "manifest-list": "file:///w/2.avro",
            "summary": {"operation": "overwrite", "total-records": "é", "x": ""},
        },
    ],
    "snapshot-log": [{"snapshot-id": FIRST + number, "timestamp-ms": number} for number in range(2)],
    "metadata-log": [],
}


def apart(document: str, size: int = 64, inside: str = "") -> SetApart:
    return set_apart(iter([document[at : at + size] for at in range(0, len(document), size)]), inside=inside)


def assert_same(found: SetApart, metadata: TableMetadata) -> None:
    """Every attribute that readers of history use, in the order of the text."""
    snapshots, log = (found.lists.get(name, []) for name in ("snapshots", "snapshot_log"))
    assert [one.whole() for one in snapshots] == metadata.snapshots
    for lean, own in zip(snapshots, metadata.snapshots, strict=True):
        names = ("snapshot_id", "parent_snapshot_id", "sequence_number", "timestamp_ms", "manifest_list", "schema_id")
        assert [getattr(lean, name) for name in names] == [getattr(own, name) for name in names]
        assert (lean.summary is None) == (own.summary is None)
        if lean.summary is not None and own.summary is not None:
            assert lean.summary.operation is own.summary.operation
            texts = {key: value for key, value in lean.summary.items() if key != "operation"}
            assert texts == own.summary.additional_properties
            assert lean.summary["not there"] is None
    assert [tuple(one) for one in log] == [(one.snapshot_id, one.timestamp_ms) for one in metadata.snapshot_log]
    rest = TableMetadataUtil.parse_raw(found.rest)
    assert rest == metadata.model_copy(update={"snapshots": [], "snapshot_log": []})


def edited(edit: Callable[[dict[str, Any]], object]) -> str:
    document = copy.deepcopy(METADATA)
    edit(document)
    return json.dumps(document)


def first(document: dict[str, Any]) -> dict[str, Any]:
    snapshot: dict[str, Any] = document["snapshots"][0]
    return snapshot


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100_000])
@pytest.mark.parametrize("indent", [None, 2])
def test_pieces_of_any_size_give_the_same(size: int, indent: int | None) -> None:
    document = json.dumps(METADATA, indent=indent, ensure_ascii=indent is None)
    assert_same(apart(document, size), TableMetadataUtil.parse_raw(document))


def test_what_other_writers_leave_out_or_add_is_read_like_pyiceberg_reads_it() -> None:
    def edit(document: dict[str, Any]) -> None:
        first(document).pop("sequence-number")
        first(document).pop("summary")
        first(document).update({"key-id": "k", "first-row-id": 5, "added-rows": None, "parent-snapshot-id": None})
        document["snapshots"][1]["sequence-number"] = None
        document |= {"format-version": 3, "next-row-id": 7, "unknown": {"deep": [1, {"snapshots": []}]}}

    document = edited(edit)
    assert_same(apart(document), TableMetadataUtil.parse_raw(document))


def test_a_large_value_is_decoded_a_few_times_in_however_many_pieces_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    class Counted(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            tried.append(idx)
            return super().raw_decode(s, idx)

    monkeypatch.setattr("lakesink_tools.past.lean_json.json.JSONDecoder", Counted)
    document = edited(lambda document: document["properties"].update({str(key): "x" for key in range(10_000)}))
    assert_same(apart(document, size=10), TableMetadataUtil.parse_raw(document))
    assert len(tried) < len(METADATA) * 20


@pytest.mark.parametrize("key", ["snapshots", "snapshot-log"])
def test_a_table_without_snapshots_is_read(key: str) -> None:
    for document in (edited(lambda document: document.pop(key)), edited(lambda document: document[key].clear())):
        assert_same(apart(document), TableMetadataUtil.parse_raw(document))


def test_an_answer_of_a_service_is_read_around_the_metadata() -> None:
    answer = {"metadata-location": "file:///m", "metadata": METADATA, "config": {"metadata": "snapshots"}}
    found = apart(json.dumps(answer), inside="metadata")
    rest = json.loads(found.rest)
    assert rest == answer | {"metadata": METADATA | {"snapshots": [], "snapshot-log": []}}
    assert [one.snapshot_id for one in found.lists["snapshots"]] == [FIRST, FIRST + 1]


PLAIN = json.dumps(METADATA)
UNUSUAL = {
    "cut": PLAIN[:-1],
    "cut in a snapshot": PLAIN[: PLAIN.index("manifest-list")],
    "a mark of the byte order": f"\ufeff{PLAIN}",
    "more behind": f"{PLAIN}1",
    "snapshots twice": PLAIN.replace('"snapshots": [{', '"snapshots": [], "snapshots": [{', 1),
    "no list": edited(lambda document: document.update(snapshots={})),
    "null": edited(lambda document: document.update(snapshots=None)),
    "the log in another spelling": edited(lambda document: document.update(snapshot_log=[])),
    "a log with a text": edited(lambda document: document["snapshot-log"][0].update({"snapshot-id": "1"})),
    "an id that is a text": edited(lambda document: first(document).update({"snapshot-id": str(FIRST)})),
    "an id that is true": edited(lambda document: first(document).update({"snapshot-id": True})),
    "an id that is a fraction": edited(lambda document: first(document).update({"snapshot-id": 1.0})),
    "no id": edited(lambda document: first(document).pop("snapshot-id")),
    "no time": edited(lambda document: first(document).pop("timestamp-ms")),
    "no manifest list": edited(lambda document: first(document).pop("manifest-list")),
    "a parent that is a text": edited(lambda document: first(document).update({"parent-snapshot-id": "1"})),
    "another spelling": edited(lambda document: first(document).update(parent_snapshot_id=5)),
    "an unknown structure": edited(lambda document: first(document).update(x=[])),
    "not a number": PLAIN.replace('"schema-id": 0}', '"schema-id": 0, "x": NaN}', 1),
    "a number of many digits": PLAIN.replace('"schema-id": 0}', f'"schema-id": 0, "x": {"9" * 5000}}}', 1),
    "nested deeply": PLAIN.replace('"schema-id": 0}', f'"schema-id": 0, "x": {"[" * 9**5}{"]" * 9**5}}}', 1),
    "half a character": PLAIN.replace('"added-records": "1"', '"added-records": "\\ud83d"', 1),
    "a character between texts": PLAIN.replace('"added-records": "1"', '"added-records": "\\u0000"', 1),
    "a control character": PLAIN.replace('"added-records": "1"', '"added-records": "\n"', 1),
    "a summary with a number": edited(lambda document: first(document)["summary"].update(x=1)),
    "a summary with a list for operation": edited(lambda document: first(document)["summary"].update(operation=[])),
    "a summary without an operation": edited(lambda document: first(document)["summary"].pop("operation")),
    "a summary with an unknown operation": edited(lambda document: first(document)["summary"].update(operation="x")),
    "a summary with a second operation": edited(lambda document: first(document)["summary"].update(Operation="x")),
    "a summary that is a list": edited(lambda document: first(document).update(summary=[])),
    "a summary with the name of an argument": edited(lambda document: first(document)["summary"].update(self="x")),
}


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.parametrize("size", [500, 100_000])
def test_what_is_unusual_is_left_to_pyiceberg(name: str, size: int) -> None:
    with pytest.raises(NotLean):
        apart(UNUSUAL[name], size)


SCALARS = st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
)
KEYS = st.sampled_from(
    ["snapshot-id", "parent-snapshot-id", "sequence-number", "timestamp-ms", "manifest-list", "summary", "schema-id",
     "first-row-id", "added-rows", "key-id", "snapshot_id", "sequence_number", "x"]
)  # fmt: skip
NAMES = st.sampled_from(["operation", "Operation", "OPERATION", "self", "added-records", "x", "model_config", "_a"])


@given(
    snapshot=st.dictionaries(KEYS, VALUES, max_size=3),
    dropped=st.sets(KEYS, max_size=1),
    summary=st.dictionaries(NAMES, VALUES | st.sampled_from(["append", "replace"]), max_size=2),
    entry=st.dictionaries(st.sampled_from(["snapshot-id", "timestamp-ms", "x"]), VALUES, max_size=1),
    plain=st.booleans(),
    size=st.integers(1, 2000),
)
@example(snapshot={"x": "\x00"}, dropped=set(), summary={}, entry={}, plain=True, size=9)
@example(snapshot={}, dropped=set(), summary={"x": "\ud800"}, entry={}, plain=True, size=9)
def test_whatever_is_accepted_is_what_pyiceberg_reads(  # one argument for each place
    snapshot: dict[str, Any],
    dropped: set[str],
    summary: dict[str, Any],
    entry: dict[str, Any],
    plain: bool,  # noqa: FBT001 # Hypothesis passes it
    size: int,
) -> None:
    changed = copy.deepcopy(METADATA)
    first(changed)["summary"] |= summary
    first(changed).update(snapshot)
    for key in dropped:
        first(changed).pop(key, None)
    changed["snapshot-log"][0] |= entry
    document = json.dumps(changed, ensure_ascii=plain)
    try:
        found = apart(document, size)
    except NotLean:
        return
    try:
        metadata = TableMetadataUtil.parse_raw(document)
    except (MetadataError, ValidationError, TypeError) as error:
        pytest.fail(f"accepted, but PyIceberg refuses it: {error}")
    assert_same(found, metadata)


@pytest.fixture(params=["sqlite", "rest"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    backing = connect("test", {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"})
    create_table(backing, "demo.events", pa.schema([("id", pa.int64())]))
    if request.param == "sqlite":
        yield backing
    else:
        with rest_catalog(backing) as (uri, _):
            yield connect("test", {"type": "rest", "uri": uri})


def facts(table: Table) -> tuple[Any, ...]:
    return history(table), sinks(table), table.metadata.refs, table.metadata.current_snapshot_id, table.name()


def test_a_table_loaded_to_be_read_shows_the_same_history(catalog: Catalog) -> None:
    for number in range(4):
        Writer(catalog).commit(number)
    load_table(catalog, "demo.events").manage_snapshots().create_tag(
        load_table(catalog, "demo.events").metadata.snapshots[1].snapshot_id, "kept"
    ).commit()
    fresh = connect("test", catalog.properties)
    lean, own = load_to_read(fresh, "demo.events"), load_table(fresh, "demo.events")
    assert all(isinstance(snapshot, LeanSnapshot) for snapshot in lean.metadata.snapshots)
    assert facts(lean) == facts(own)
    assert lean.metadata_location == own.metadata_location
    assert type(storage_of(lean)) is type(own.io)
    assert storage_of(lean).properties.keys() == own.io.properties.keys()


def test_a_commit_after_a_table_was_loaded_to_be_read_keeps_every_snapshot(catalog: Catalog) -> None:
    Writer(catalog).commit(0)
    fresh = connect("test", catalog.properties)
    load_to_read(fresh, "demo.events")
    Writer(fresh).commit(1)
    load_to_read(fresh, "demo.events")
    Writer(fresh).commit(2)
    assert [record.batch_id for record in history(load_table(connect("test", catalog.properties), "demo.events"))] == [
        0,
        1,
        2,
    ]


def test_one_snapshot_can_be_scanned(catalog: Catalog) -> None:
    for number in range(2):
        load_table(catalog, "demo.events").append(pa.table({"id": pa.array([number], pa.int64())}))
    table = load_to_read(connect("test", catalog.properties), "demo.events")
    oldest = table.metadata.snapshots[0].snapshot_id
    assert at_snapshot(table, oldest).scan(snapshot_id=oldest).to_arrow().to_pylist() == [{"id": 0}]


@pytest.mark.parametrize("damage", ["cut", "a summary with a number", "a summary that is a list", "no version"])
@pytest.mark.parametrize("packed", [False, True])
def test_damaged_metadata_gives_the_same_error(tmp_path: Path, damage: str, packed: bool) -> None:  # noqa: FBT001
    catalog: Any = connect("test", {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"})
    create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
    document = UNUSUAL[damage] if damage in UNUSUAL else edited(lambda document: document.pop("format-version"))
    file = tmp_path / f"1-{uuid.uuid4()}{'.gz' if packed else ''}.metadata.json"
    file.write_bytes(gzip.compress(document.encode())[:-9] if packed else document.encode())
    with catalog.engine.begin() as connection:
        connection.execute(text("UPDATE iceberg_tables SET metadata_location = :new"), {"new": f"file://{file}"})

    def outcome(load: Callable[[Catalog, str], Table]) -> Any:
        try:
            return facts(load(catalog, "demo.events"))
        except CatalogError as error:
            return error.code, error.what, error.action

    assert outcome(load_to_read) == outcome(load_table)


def test_a_missing_table_gives_the_same_error(catalog: Catalog) -> None:
    assert error_of(load_to_read, catalog, "demo.event") == error_of(load_table, catalog, "demo.event")


def test_a_missing_table_is_looked_for_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []

    def counted(catalog: Catalog, name: str) -> Table:
        looked.append(name)
        return load_table(catalog, name)

    monkeypatch.setattr("lakesink_tools.past.lean.load_table", counted)
    error_of(load_to_read, catalog, "demo.event")
    assert looked == ["demo.event"]


@pytest.mark.parametrize("catalog", ["sqlite"], indirect=True)
def test_a_missing_metadata_file_gives_the_same_error(tmp_path: Path, catalog: Catalog) -> None:
    for file in tmp_path.rglob("*.metadata.json"):
        file.unlink()
    assert error_of(load_to_read, catalog, "demo.events") == error_of(load_table, catalog, "demo.events")


def error_of(load: Callable[[Catalog, str], Table], catalog: Catalog, name: str) -> tuple[str, str, str]:
    with pytest.raises(CatalogError) as caught:
        load(connect("test", catalog.properties), name)
    return caught.value.code, caught.value.what, caught.value.action


def test_catalogs_that_read_by_their_storage_get_the_rest(tmp_path: Path) -> None:
    """The way of PyIceberg's Hive and Glue catalogs."""
    file = tmp_path / "1.gz.metadata.json"
    file.write_bytes(gzip.compress(PLAIN.encode()))
    catalog: Any = connect("test", {"type": "in-memory", "warehouse": f"file://{tmp_path}/w"})
    with lean_loading() as loading:
        io = catalog._load_file_io(location=f"file://{file}")  # noqa: SLF001 - as they call it
        metadata = FromInputFile.table_metadata(io.new_input(f"file://{file}"))
    assert isinstance(io, LeanIO)
    assert not metadata.snapshots
    table = loading.complete(Table(("demo", "events"), metadata, f"file://{file}", io, catalog))
    assert [one.snapshot_id for one in table.metadata.snapshots] == [FIRST, FIRST + 1]
    with table.io.new_input(f"file://{file}").open() as stream:
        assert stream.read() == file.read_bytes()
    assert "inner" not in vars(io), "PyIceberg's storage takes 50 MiB, and nothing has needed it"


@pytest.mark.parametrize("name", ["a file", "missing", "a folder"])
def test_a_local_file_is_read_as_pyiceberg_reads_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a file").write_bytes(b"some bytes")
    location = f"file://{tmp_path}/{name}"

    def seen(io: FileIO) -> list[Any]:
        def contents() -> bytes:
            with io.new_input(location).open() as stream:
                return stream.read()

        file = io.new_input(location)
        return [_result_or_error(what) for what in (contents, lambda: len(file), file.exists)] + [file.location]

    assert seen(LeanIO({}, PyArrowFileIO)) == seen(PyArrowFileIO())


def _result_or_error(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except (OSError, TypeError):
        return OSError


@pytest.mark.parametrize(
    "between",
    ["", ",", ",,", ", ,", ',{"snapshot-id": 1},', ',"', "]", '],"other":[', ",1,", ', {"snapshot-id"'],
)
def test_items_that_begin_alike_are_one_list_only_with_commas_between_them(between: str) -> None:
    entry = '{"snapshot-id": 7, "timestamp-ms": 8}'
    text = f'{{"snapshot-log": [{entry}, {entry}{between}{entry}, {entry}]}}'
    try:
        expected = [(one["snapshot-id"], one["timestamp-ms"]) for one in json.loads(text)["snapshot-log"]]
    except (ValueError, KeyError, TypeError):
        expected = None
    for size in (1, 50, len(text)):
        pieces = (text[at : at + size] for at in range(0, len(text), size))
        if expected is None:
            with pytest.raises(NotLean):
                set_apart(pieces)
        else:
            assert set_apart(pieces).lists["snapshot_log"] == expected


def test_a_list_that_cannot_be_read_at_once_is_not_tried_for_each_item() -> None:
    item = json.dumps({"snapshot-id": 7, "timestamp-ms": 8})
    after = ", ".join(['{"snapshot-id": 1}'] * 500)
    text = f'{{"snapshot-log": [{", ".join([item] * 3000)}], "other": [{after}]}}'
    decoded = []

    class Counting(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            decoded.append(len(s) - idx if s.startswith("[") else 0)
            return super().raw_decode(s, idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json, "JSONDecoder", Counting)
        assert len(set_apart(iter([text])).lists["snapshot_log"]) == 3000
    assert sum(decoded) < 3 * len(text)
