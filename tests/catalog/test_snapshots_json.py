"""Metadata that another process wrote is read as PyIceberg reads it, and old snapshots are not parsed again."""

import json
import operator
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.types import StringType

from lakesink_catalog.connect.caching_sql import PIECE_BYTES, CachingSqlCatalog, ListJson, grown
from testkit.builders import Lake, Stream
from tests.catalog.test_caching_sql import empty_metadata

ROWS = pa.table({"id": [1, 2]})
NAME = "a.b"


def a_snapshot(number: int) -> Snapshot:
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=number - 1,
        sequence_number=number,
        timestamp_ms=4_000_000_000_000 + number,
        manifest_list=f"file:///{number}.avro",
        summary=Summary(Operation.APPEND, rows=f'"snapshots":[{number}'),
        schema_id=0,
    )


@pytest.fixture
def catalogs(tmp_path: Path) -> Iterator[list[SqlCatalog]]:
    """Two processes with lakesink's catalog, and one with PyIceberg's."""
    properties = {"uri": f"sqlite:///{tmp_path / 'catalog.db'}", "warehouse": f"file://{tmp_path}"}
    found: list[SqlCatalog] = [
        kind("lake", **properties) for kind in (CachingSqlCatalog, CachingSqlCatalog, SqlCatalog)
    ]
    found[0].create_namespace("a")
    found[0].create_table(NAME, ROWS.schema)
    yield found
    for catalog in found:
        catalog.close()


def as_pyiceberg_reads(catalogs: list[SqlCatalog]) -> TableMetadata:
    return SqlCatalog("lake", **catalogs[0].properties).load_table(NAME).metadata


def change(table: Table, chance: random.Random) -> None:
    """Anything that changes the history."""
    ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    match chance.choice(["append"] * 6 + ["tag", "properties", "expire", "roll back", "schema"]):
        case "tag" if ids:
            table.manage_snapshots().create_tag(chance.choice(ids), f"t{len(table.metadata.refs)}").commit()
        case "properties":
            table.transaction().set_properties({"odd": '"snapshots":[' * chance.randrange(2)}).commit_transaction()
        case "expire" if len(ids) > 2:
            kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
            table.maintenance.expire_snapshots().by_ids([one for one in ids[:2] if one not in kept]).commit()
        case "roll back" if ids:
            table.manage_snapshots().set_current_snapshot(chance.choice(ids)).commit()
        case "schema":
            with table.update_schema() as update:
                update.add_column(f"c{len(table.metadata.schemas)}", StringType())
        case _:
            table.append(ROWS)


@pytest.mark.parametrize("seed", range(6))
def test_every_process_reads_what_is_in_the_file(catalogs: list[SqlCatalog], seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        change(chance.choice(catalogs).load_table(NAME), chance)
        expected = as_pyiceberg_reads(catalogs)
        for catalog in catalogs[:2]:
            found = catalog.load_table(NAME).metadata
            assert found == expected
            assert found.model_dump_json() == expected.model_dump_json()


def test_a_process_in_a_crowd_parses_only_new_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    real = TableMetadataUtil.parse_raw

    def counting(data: str) -> TableMetadata:
        parsed.append(len(json.loads(data)["snapshots"]))
        return real(data)

    lake = Lake.make(tmp_path)
    properties = lake.catalog.properties
    processes = [CachingSqlCatalog(lake.catalog.name, **properties) for _ in range(3)]
    streams = [Stream(lake, sink_id=f"s{number}") for number in range(3)]
    monkeypatch.setattr(TableMetadataUtil, "parse_raw", staticmethod(counting))
    for batch_id in range(12):
        for stream, process in zip(streams, processes, strict=True):
            sink = replace(stream.sink(), open_catalog=partial(_itself, process))
            stream.run_with(sink, batch_id)
    assert len(parsed) > 30
    assert max(parsed[6:]) <= len(streams)
    [found] = {one.load_table(lake.table().name()).metadata.model_dump_json() for one in processes}
    assert len(json.loads(found)["snapshots"]) == 36


def _itself(catalog: CachingSqlCatalog) -> CachingSqlCatalog:
    return catalog


def document(*snapshots: Snapshot, last: str = "") -> bytes:
    """A metadata file with these snapshots as JSON, and this text after the last."""
    text = ",".join(one.model_dump_json(exclude_none=True) for one in snapshots) + last
    return empty_metadata().model_dump_json().replace('"snapshots":[]', f'"snapshots":[{text}]').encode()


FIRST, SECOND, THIRD = map(a_snapshot, (1, 2, 3))


def known(*snapshots: Snapshot) -> ListJson:
    return ListJson().extended_to(snapshots, exclude_none=True)


@pytest.mark.parametrize("of_file", [(FIRST, SECOND), (FIRST, SECOND, THIRD)])
def test_known_snapshots_are_taken_over_as_the_same_objects(of_file: tuple[Snapshot, ...]) -> None:
    data = document(*of_file)
    before = empty_metadata().model_copy(update={"snapshots": [FIRST, SECOND, a_snapshot(9)]})
    found = grown(data, before, known(FIRST, SECOND))
    assert found is not None
    assert found == TableMetadataUtil.parse_raw(data.decode())
    assert all(map(operator.is_, found.snapshots, (FIRST, SECOND)))


@pytest.mark.parametrize(
    "data",
    [
        document(FIRST),
        document(SECOND, THIRD),
        document(FIRST, THIRD),
        document(a_snapshot(4), SECOND),
        document(FIRST, SECOND, last=","),
        document(FIRST, SECOND, last=" "),
        document(FIRST, SECOND, last=",,"),
        document(FIRST, SECOND).replace(b'"snapshots":', b'"snapshots": '),
        document(FIRST, SECOND)[:-1] + b',"snapshots":[]}',
        document(FIRST, SECOND).replace(b'"location"', b'"snapshots":[],"location"'),
        document(FIRST, SECOND).replace(b'"snapshots"', b'"snapshot"'),
        document(FIRST, SECOND).partition(b"]}")[0],
        b"",
    ],
    ids=[
        "one expired",
        "first expired",
        "another second",
        "another first",
        "comma",
        "space",
        "commas",
        "other writer",
        "twice",
        "twice before",
        "no snapshots",
        "torn",
        "empty",
    ],
)
def test_any_other_text_is_left_to_pyiceberg(data: bytes) -> None:
    before = empty_metadata().model_copy(update={"snapshots": [FIRST, SECOND]})
    assert grown(data, before, known(FIRST, SECOND)) is None


def test_an_error_behind_known_snapshots_is_pyicebergs(catalogs: list[SqlCatalog]) -> None:
    ours, others = catalogs[:2]
    for catalog in (ours, others):
        catalog.load_table(NAME).append(ROWS)
    ours.load_table(NAME).append(ROWS)
    written = others.load_table(NAME)
    written.append(ROWS)
    path = Path(written.metadata_location.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValidationError, match=path.name):
        ours.load_table(NAME)


def test_pieces_are_shared_from_commit_to_commit_and_none_is_much_larger_than_another() -> None:
    snapshots = [a_snapshot(number) for number in range(1, 9000)]
    before = ListJson().extended_to(snapshots[:6000], exclude_none=True)
    after = before.extended_to(snapshots, exclude_none=True)
    whole = ",".join(one.model_dump_json(exclude_none=True) for one in snapshots).encode()
    assert b",".join(after.pieces) == whole
    assert len(after.pieces) > len(before.pieces) > 2
    assert all(map(operator.is_, before.pieces[:-1], after.pieces))
    assert max(map(len, after.pieces)) < 2 * PIECE_BYTES
