"""Prepared records: what was put is found by exactly its batch while it is whole and young, and nothing else is."""

import hashlib
import json
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField

from lakesink_catalog.commit.premises import Premises
from lakesink_catalog.commit.prepared import PreparedBatch, TableLog
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.commit.record import RECORD_VERSION
from lakesink_catalog.commit.recovered import matches_manifests, parse_prepared
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.manifests.write import ManifestRecord, write_batch_manifests
from lakesink_protocol.change import Content, ContentFile
from lakesink_protocol.identity import Batch, SinkKey, SinkKind
from lakesink_protocol.quality import Quality
from lakesink_protocol.row_changes import KeysFile, Mode
from testkit.builders import Lake
from testkit.examples import examples
from tests.protocol.views import KEY, UUID, batch, entry

HOUR_MS = 3_600_000
MAX_AGE_MS = 20 * HOUR_MS
BATCH = batch(4)
SCHEMA = Schema(NestedField(1, "batch", LongType()), NestedField(2, "price", DoubleType()), schema_id=0)
BY_BATCH = PartitionSpec(
    PartitionField(1, 1000, IdentityTransform(), "batch"),
    PartitionField(2, 1001, IdentityTransform(), "price"),
    spec_id=0,
)
PREPARED = PreparedBatch(
    table_uuid=UUID,
    branch="main",
    snapshot_id=2**40,
    schema_id=0,
    premises=Premises(SCHEMA, (BY_BATCH,)),
    follows=entry(batch(3), 4),
    accepted="",
    manifests=(
        ManifestRecord(
            path="file:///t/metadata/m0.avro",
            length_bytes=500,
            spec_id=0,
            snapshot_id=2**40,
            files=1,
            rows=3,
            partitions=(
                PartitionFieldSummary(*(True, False, b"\x00", b"\xff")),
                PartitionFieldSummary(*(False, True, None, None)),
            ),
        ),
    ),
    files=(("file:///t/data/a.parquet", 100),),
    rows=3,
    partitions=1,
    begun_ms=1_900_000_000_000,
    without_inputs=0,
)
CHANGES = PreparedChanges(
    key_ids=(1,),
    sequence_ids=(2,),
    keys_files=(
        KeysFile("file:///t/data/a-00000.keys", task=0, rows=3, size_bytes=80, sha256="0f" * 32),
        KeysFile("file:///t/data/a-00002.keys", task=2, rows=2, size_bytes=70, sha256="1e" * 32),
    ),
    left_out=4,
    mode=Mode.CHANGES,
)
CHANGING = replace(PREPARED, changes=CHANGES, follows=entry(batch(3), 4, keys=(1,)))
PAYLOADS = {"demo.events@main": PREPARED.payload}
ANYWHERE = examples(25)


@dataclass
class Records:
    folder: Path
    io: FileIO = field(default_factory=lambda: load_file_io({}, "file:///"))
    now_ms: int = 10**12

    def log(self, key: SinkKey = KEY) -> TableLog:
        folder = f"file://{self.folder}/{key.record_folder}"
        return TableLog(self.io, folder, key, MAX_AGE_MS, lambda: self.now_ms)

    def path(self, of: Batch = BATCH, key: SinkKey = KEY) -> Path:
        return self.folder / key.record_folder / f"{of.batch_id}-{of.fingerprint}.json"

    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def forge(self, body: bytes, of: Batch = BATCH) -> None:
        """A record that digests itself as it should, whatever it says."""
        self.path(of).parent.mkdir(parents=True, exist_ok=True)
        self.path(of).write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)

    def document(self) -> dict[str, Any]:
        self.log().put(BATCH, PAYLOADS)
        document: dict[str, Any] = json.loads(self.path().read_bytes().partition(b"\n")[2])
        return document


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path)


def test_a_record_is_found_by_another_process_as_it_was_put(records: Records) -> None:
    records.log().put(BATCH, PAYLOADS)
    found = records.log().find(BATCH)
    assert found == json.loads(json.dumps(PAYLOADS))
    assert found is not None
    assert parse_prepared(found["demo.events@main"]) == replace(PREPARED, recovered=True)


def test_a_record_lies_where_the_protocol_says(records: Records) -> None:
    records.log().put(BATCH, PAYLOADS)
    assert records.files() == [records.folder / "lakesink/events/main" / f"4-{BATCH.fingerprint}.json"]


def test_without_a_record_nothing_is_found(records: Records) -> None:
    assert records.log().find(BATCH) is None


def test_a_second_record_of_the_batch_takes_the_place_of_the_first(records: Records) -> None:
    records.log().put(BATCH, PAYLOADS)
    records.log().put(BATCH, {"other": {}})
    assert records.log().find(BATCH) == {"other": {}}
    assert len(records.files()) == 1


OTHER_KEYS = [SinkKey("clicks"), SinkKey("events", "audit"), SinkKey("events", kind=SinkKind.TXN)]
OTHERS: dict[str, tuple[SinkKey, Batch]] = {
    "batch": (KEY, replace(BATCH, batch_id=5)),
    "fingerprint": (KEY, replace(BATCH, fingerprint="0" * 32)),
    "query": (KEY, replace(BATCH, query_id="q2")),
    **{f"sink {number}": (key, BATCH) for number, key in enumerate(OTHER_KEYS)},
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_record_is_not_found_by_another_batch_or_sink_even_under_its_name(records: Records, other: str) -> None:
    key, of = OTHERS[other]
    records.log().put(BATCH, PAYLOADS)
    assert records.log(key).find(of) is None
    copy = records.path(of, key)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(records.path().read_bytes())
    assert records.log(key).find(of) is None


@pytest.mark.parametrize(
    ("age_ms", "found"),
    [(0, True), (MAX_AGE_MS, True), (MAX_AGE_MS + 1, False), (100 * MAX_AGE_MS, False), (-1, False), (-HOUR_MS, False)],
)
def test_a_record_is_used_while_it_is_young_and_never_if_it_comes_from_the_future(
    records: Records,
    age_ms: int,
    found: bool,  # noqa: FBT001 - a table of cases
) -> None:
    records.log().put(BATCH, PAYLOADS)
    records.now_ms += age_ms
    assert (records.log().find(BATCH) is not None) == found


@ANYWHERE
@given(data=st.data())
def test_a_torn_record_reads_as_absent(records: Records, data: st.DataObject) -> None:
    records.log().put(BATCH, PAYLOADS)
    whole = records.path().read_bytes()
    records.path().write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert records.log().find(BATCH) is None


@ANYWHERE
@given(data=st.data())
def test_a_record_with_a_flipped_bit_reads_as_absent(records: Records, data: st.DataObject) -> None:
    records.log().put(BATCH, PAYLOADS)
    spoilt = bytearray(records.path().read_bytes())
    spoilt[data.draw(st.integers(0, len(spoilt) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    records.path().write_bytes(spoilt)
    assert records.log().find(BATCH) is None


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@ANYWHERE
@given(body=st.binary(max_size=100) | JUNK.map(lambda value: json.dumps(value).encode()) | st.just(b"[" * 100_000))
def test_whatever_digests_itself_is_not_yet_a_record(records: Records, body: bytes) -> None:
    records.forge(body)
    assert records.log().find(BATCH) is None


@ANYWHERE
@given(name=st.sampled_from(["version", "batch", "created_ms", "participants"]), junk=JUNK)
def test_a_record_with_a_wrong_field_is_absent_or_names_participants(records: Records, name: str, junk: Any) -> None:
    records.forge(json.dumps(records.document() | {name: junk}).encode())
    found = records.log().find(BATCH)
    assert found is None or all(isinstance(payload, dict) for payload in found.values())


@pytest.mark.parametrize("name", ["version", "batch", "created_ms", "participants"])
def test_a_record_that_lacks_a_field_reads_as_absent(records: Records, name: str) -> None:
    records.forge(json.dumps({key: value for key, value in records.document().items() if key != name}).encode())
    assert records.log().find(BATCH) is None


PATHS: list[tuple[str | int, ...]] = [
    *((name,) for name in PREPARED.payload),
    *(("premises", name) for name in ("schema", "specs")),
    ("premises", "schema", "fields", 0, "type"),
    ("premises", "specs", 0, "fields", 0, "transform"),
    *(("follows", name) for name in entry(batch(3), 4, keys=(1,)).document),
    *(("changes", name) for name in CHANGES.to_json()),
    *(("changes", "files", 0, place) for place in range(5)),
    *(("changes", name, 0) for name in ("keys", "sequence", "files")),
    ("changes",),
    *(("manifests", 0, name) for name in PREPARED.manifests[0].to_json()),
    *(("manifests", 0, "partitions", 0, place) for place in range(4)),
    *(("files", 0, place) for place in range(2)),
    *(("manifests", 0), ("manifests", 0, "partitions", 0), ("files", 0)),
]


@given(place=st.sampled_from(PATHS), junk=JUNK)
def test_a_payload_with_a_wrong_value_is_malformed_or_of_the_right_types(
    place: tuple[str | int, ...], junk: Any
) -> None:
    payload = json.loads(json.dumps(CHANGING.payload))
    inner: Any = payload
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = junk
    parsed = parse_prepared(payload)
    assert parsed is None or parse_prepared(json.loads(json.dumps(parsed.payload))) == parsed
    assert parsed is None or 2**31 <= parsed.snapshot_id < 2**63


def test_a_batch_of_changes_comes_back_from_its_record() -> None:
    payload = json.loads(json.dumps(CHANGING.payload))
    assert parse_prepared(payload) == replace(CHANGING, recovered=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keys", []),
        ("keys", [1, 1]),
        ("mode", "append"),
        ("mode", "merge"),
        ("files", [["a", 0, 3, 80, "0f" * 32], ["a", 1, 3, 80, "0f" * 32]]),
        ("files", [["a", 0, 3, 80, "0f" * 32], ["b", 0, 3, 80, "0f" * 32]]),
        ("files", [["a", 0, 3, 80, "0F" * 32]]),
        ("files", [["a", 0, 0, 80, "0f" * 32]]),
        ("files", [["a", 0, 2, 80, "0f" * 32]]),
        ("files", []),
        ("superseded", 2**53),
    ],
)
def test_changes_that_no_batch_has_are_malformed(name: str, value: Any) -> None:
    payload = json.loads(json.dumps(CHANGING.payload))
    payload["changes"][name] = value
    assert parse_prepared(payload) is None


MANIFEST = PREPARED.manifests[0].to_json()
FILES = PREPARED.payload["files"]


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": 2},
        {"rows": 4},
        {"manifests": [MANIFEST | {"rows": 2}]},
        {"manifests": [MANIFEST | {"files": 2}]},
        {"files": [*FILES, ["file:///t/data/b.parquet", 100]]},
        {"files": FILES * 2, "manifests": [MANIFEST | {"files": 2}]},
        {"manifests": [MANIFEST, MANIFEST | {"files": 0, "rows": 0}]},
        {"manifests": [MANIFEST | {"spec": 1}]},
        {"schema_id": 1},
        {"partitions": 2},
    ],
    ids=str,
)
def test_a_record_whose_parts_disagree_is_malformed(changed: dict[str, Any]) -> None:
    assert parse_prepared(PREPARED.payload) is not None
    assert parse_prepared(PREPARED.payload | changed) is None


def test_every_row_of_a_batch_of_changes_may_be_an_upsert() -> None:
    whole = replace(CHANGES, keys_files=CHANGES.keys_files[:1])
    assert whole.rows == PREPARED.rows
    assert parse_prepared(replace(CHANGING, changes=whole).payload) == replace(CHANGING, changes=whole, recovered=True)


@given(JUNK)
def test_junk_is_no_payload(junk: Any) -> None:
    assert parse_prepared(junk) is None


@pytest.mark.parametrize("counts", [{"rescued_rows": -1}, {"unmet_rows": "1"}, {"unmet_rows": 10**6}])
def test_a_record_with_an_impossible_count_of_rows_is_malformed(counts: dict[str, Any]) -> None:
    assert parse_prepared(PREPARED.payload | {"quality": Quality().to_json() | counts}) is None


@pytest.mark.parametrize("name", PREPARED.payload)
def test_a_payload_that_lacks_a_field_is_malformed(name: str) -> None:
    assert parse_prepared({key: value for key, value in PREPARED.payload.items() if key != name}) is None


@pytest.mark.parametrize("version", [None, "4", *(RECORD_VERSION + step for step in (-3, -2, -1, 1))])
def test_a_record_of_another_version_reads_as_absent(records: Records, version: Any) -> None:
    records.forge(json.dumps(records.document() | {"version": version}).encode())
    assert records.log().find(BATCH) is None


@pytest.mark.parametrize("snapshot_id", [-1, 0, 1, 2**31 - 1, 2**63, True, "7", 2.0**40])
def test_a_snapshot_id_that_lakesink_never_gives_is_malformed(snapshot_id: Any) -> None:
    assert parse_prepared(PREPARED.payload | {"snapshot_id": snapshot_id}) is None


def test_a_landed_batch_takes_the_record_before_it_along_and_nothing_else(records: Records) -> None:
    log = records.log()
    for number in (3, 4, 5):
        log.put(batch(number), PAYLOADS)
    (records.folder / "bystander.json").touch()
    log.landed(batch(3))
    assert len(records.files()) == 4
    log.landed(batch(4))
    log.landed(batch(4))
    left = {path.name for path in records.files()}
    assert left == {records.path(batch(4)).name, records.path(batch(5)).name, "bystander.json"}


def test_a_new_log_takes_the_record_along_that_an_earlier_run_left(records: Records) -> None:
    for number in (3, 4, 5):
        log = records.log()
        if number > 3:
            log.follow(number - 1, batch(number - 1).fingerprint)
        log.put(batch(number), PAYLOADS)
        log.landed(batch(number))
    assert records.files() == [records.path(batch(5))]


@pytest.mark.parametrize("forged", ["", "../3-" + 32 * "a", "a/../../x", "..", "a.b", "a" * 65])
def test_a_forged_fingerprint_leads_to_no_file(records: Records, forged: str) -> None:
    removed: list[str] = []
    records.io.delete = removed.append  # type: ignore[method-assign, assignment] # what would be removed
    log = records.log()
    log.follow(0, forged)
    log.put(batch(3), PAYLOADS)
    log.landed(batch(3))
    assert removed == []


@pytest.mark.parametrize("error", [OSError("denied"), RuntimeError("a store's own error"), ValueError("odd")])
def test_a_record_that_cannot_be_removed_does_not_fail_a_batch_that_landed(
    records: Records, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete(_: str) -> None:
        raise error

    log = records.log()
    log.put(batch(3), PAYLOADS)
    log.landed(batch(3))
    monkeypatch.setattr(records.io, "delete", delete)
    log.landed(batch(4))
    assert records.files() == [records.path(batch(3))]


DATA_FILE = ContentFile(
    path="file:///t/data/a.parquet",
    spec_id=0,
    partition=(struct.pack("<q", 4), None),
    record_count=3,
    file_size_bytes=100,
    column_sizes={},
    value_counts={},
    null_value_counts={},
    nan_value_counts={},
    lower_bounds={},
    upper_bounds={},
    split_offsets=(),
)


@pytest.fixture
def partitioned(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path, schema=SCHEMA, spec=BY_BATCH)


def written(lake: Lake, *files: ContentFile) -> PreparedBatch:
    """The record of a batch of these files, with its manifests."""
    table = lake.table()
    manifests = write_batch_manifests(table, files, schema=table.schema(), snapshot_id=PREPARED.snapshot_id)
    return replace(
        PREPARED,
        premises=Premises(table.schema(), (table.spec(),)),
        manifests=manifests,
        files=tuple((file.path, file.file_size_bytes) for file in files),
        rows=sum(file.record_count for file in files),
    )


def test_a_record_is_believed_if_its_manifests_say_all_of_it(partitioned: Lake) -> None:
    io, own = partitioned.table().io, written(partitioned, DATA_FILE)
    assert matches_manifests(own, io)
    [manifest], [spec], schema = own.manifests, own.premises.specs, own.premises.schema
    another_spec = PartitionSpec(spec.fields[0].model_copy(update={"name": "other"}), spec.fields[1], spec_id=0)
    another_schema = Schema(*schema.fields[:1], NestedField(2, "cost", DoubleType()), schema_id=0)
    lies = (
        replace(own, snapshot_id=own.snapshot_id + 1),
        replace(own, files=((DATA_FILE.path, 101),)),
        replace(own, files=(*own.files, ("file:///t/data/b.parquet", 100))),
        replace(own, manifests=(replace(manifest, rows=4),)),
        replace(own, manifests=(replace(manifest, partitions=manifest.partitions[::-1]),)),
        replace(own, premises=Premises(schema, (another_spec,))),
        replace(own, premises=Premises(another_schema, (spec,))),
    )
    assert [lie for lie in lies if matches_manifests(lie, io)] == []


@pytest.mark.parametrize("other", [{"record_count": 0}, {"content": Content.POSITION_DELETES}], ids=str)
def test_a_manifest_with_another_file_than_one_with_rows_is_not_believed(partitioned: Lake, other: Any) -> None:
    own = written(partitioned, replace(DATA_FILE, **other))
    assert not matches_manifests(own, partitioned.table().io)


def test_manifests_that_are_gone_or_torn_are_not_believed_and_an_outage_says_nothing(
    partitioned: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    io, own = partitioned.table().io, written(partitioned, DATA_FILE)
    path = Path(own.manifests[0].path.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-20])
    assert not matches_manifests(own, io)
    path.unlink()
    assert not matches_manifests(own, io)

    def away(_: str) -> Any:
        raise OSError("no route to the storage")

    monkeypatch.setattr(io, "new_input", away)
    with pytest.raises(OSError, match="no route"):
        matches_manifests(own, io)


def test_a_total_that_the_parent_does_not_state_stays_unknown() -> None:
    change = Change("main", 1, 2, {}, PREPARED)
    found = change.counts({"total-records": "5", "total-data-files": "x"})
    assert {name: count for name, count in found.items() if name.startswith("total-")} == {"total-records": "8"}
    first = change.counts(None)
    assert (first["total-records"], first["total-data-files"], first["total-files-size"]) == ("3", "1", "100")
    assert first["changed-partition-count"] == "1"


def test_the_number_of_partitions_is_left_out_of_a_batch_that_adds_rows_and_removes_others() -> None:
    """The record does not name the partitions of its rows."""
    delete = replace(DATA_FILE, path="file:///t/data/d.parquet", content=Content.POSITION_DELETES, record_count=1)
    without_rows = replace(CHANGING, files=(), rows=0, partitions=0)
    deletes = delete, replace(delete, partition=(None, None))
    found = [
        Change("main", 1, 2, {}, prepared, deletes=located).counts(None).get("changed-partition-count")
        for prepared, located in ((CHANGING, deletes), (without_rows, deletes), (CHANGING, ()))
    ]
    assert found == [None, "2", "1"]
