"""What a batch of changes is refused for, and what its sink remembers of the table, without a table on disk."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from pyroaring import BitMap64

from lakesink.keys.data_file import DataFile
from lakesink.keys.deleted_rows import Deleted
from lakesink.keys.footers import Footer
from lakesink.keys.scan import FILE, POSITION
from lakesink.settings.option_types import Deletes, LocateIn, OnAbsent, OnLate
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.keyed_changes import ChangesByKey, Locator, check_sequence
from lakesink.sinks.iceberg.rows_on_head import WORKERS_FROM_BYTES, FilesOnHead, LocateMemory, LocateSettings
from lakesink_catalog.commit.premises import Premises
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.commit.table_change import Located
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_protocol.change import Content
from lakesink_protocol.errors import WriteError
from lakesink_protocol.identity import NO_BATCH
from lakesink_protocol.row_changes import ChangeCounts, Mode
from testkit.tasks import table_in_memory

SCHEMA = Schema(NestedField(1, "id", LongType()))
CHANGES = PreparedChanges((1,), (), (), left_out=2, mode=Mode.CHANGES)
ONE, TWO = {"t": {"0": 5}}, {"t": {"0": 5, "1": 5}}


@pytest.fixture
def table() -> Table:
    return table_in_memory(SCHEMA)


def prepared() -> PreparedBatch:
    return PreparedBatch("uuid", "main", 1, 0, Premises(SCHEMA, ()), None, "", (), (), 0, 0, 0, 0, changes=CHANGES)


ONLY_ONE, SEVERAL = "only the offsets of a stream that reads Kafka itself", "from more than one partition of Kafka"


@pytest.mark.parametrize(
    ("sequence_by", "offsets", "why"),
    [
        ((), None, ""),
        (("at",), [TWO], ""),
        (("at", "_kafka_offset"), [TWO], ""),
        (("_kafka_offset",), [ONE], ""),
        (("_kafka_offset",), [ONE, None], ""),
        (("_kafka_offset",), {"source": ONE, "none": None}, ""),
        (("_KAFKA_OFFSET",), [TWO], SEVERAL),
        (("_kafka_offset", "at"), [TWO], SEVERAL),
        (("_kafka_partition",), [TWO], SEVERAL),
        (("_kafka_offset",), [{"t": {"0": 5}, "u": {"0": 5}}], SEVERAL),
        (("_kafka_offset",), [ONE, ONE], SEVERAL),
        (("_kafka_offset",), {"source": ONE, "other": ONE}, SEVERAL),
        (("_kafka_offset",), [ONE, 7], ONLY_ONE),
        (("_kafka_offset",), [7], ONLY_ONE),
        (("_kafka_offset",), [], ONLY_ONE),
        (("_kafka_offset",), None, ONLY_ONE),
    ],
)
def test_positions_in_kafka_order_the_changes_of_one_partition_only(
    sequence_by: tuple[str, ...], offsets: Any, why: str
) -> None:
    batch = replace(NO_BATCH, offsets="" if offsets is None else json.dumps(offsets))
    if not why:
        check_sequence(Settings(sequence_by=sequence_by), batch)
    else:
        with pytest.raises(WriteError, match="LAKESINK_SEQUENCE_OF_PARTITIONS") as refused:
            check_sequence(Settings(sequence_by=sequence_by), batch)
        assert why in str(refused.value)
        assert sequence_by[0] in str(refused.value)


@pytest.mark.parametrize(
    ("options", "are_replayed", "counts", "said"),
    [
        ({}, False, {"late_upserts": 1, "late_deletes": 1, "inserted": 1}, ""),
        ({"on_late": OnLate.FAIL}, False, {"inserted": 1, "updated": 1, "deleted": 1, "absent": 1}, ""),
        ({"on_late": OnLate.FAIL}, False, {"late_upserts": 1}, "CHANGES_LATE.* 1 change "),
        ({"on_late": OnLate.FAIL}, False, {"late_upserts": 1, "late_deletes": 2}, "CHANGES_LATE.* 3 changes "),
        ({}, True, {"late_upserts": 1, "updated": 1, "deleted": 1, "absent": 1}, ""),
        ({}, True, {"inserted": 2}, "KEYS_ABSENT.* 2 changes"),
        ({"deletes": Deletes.SOFT}, True, {"inserted": 1}, ""),
        ({"on_absent": OnAbsent.INSERT}, True, {"inserted": 1}, ""),
    ],
)
def test_late_changes_and_replayed_ones_without_a_row_are_refused_where_the_settings_say_so(
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    counts: Mapping[str, int],
    said: str,
    *,
    are_replayed: bool,
) -> None:
    located = Located(5, counts=ChangeCounts(**counts))
    monkeypatch.setattr(Locator, "__call__", lambda *_: located)
    locate = ChangesByKey(Settings(**options), None, map, are_replayed).locate(prepared(), CHANGES, "s-0")
    if not said:
        assert locate(table, 5) is located
    else:
        with pytest.raises(WriteError, match=said):
            locate(table, 5)


@pytest.mark.parametrize(
    ("where", "from_bytes"),
    [(LocateIn.AUTO, WORKERS_FROM_BYTES), (LocateIn.EXECUTORS, 0), (LocateIn.DRIVER, None)],
)
@pytest.mark.parametrize("has_session", [True, False])
def test_executors_search_where_there_are_some_and_the_settings_want_it(
    table: Table, monkeypatch: pytest.MonkeyPatch, where: LocateIn, from_bytes: int | None, *, has_session: bool
) -> None:
    asked: list[LocateSettings] = []

    def call(self: Locator, *_: Any) -> Located:
        asked.append(self.settings)
        return Located(None)

    monkeypatch.setattr(Locator, "__call__", call)
    run = (lambda work, items: [work(item) for item in items]) if has_session else None
    locate = ChangesByKey(Settings(locate_in=where), run, map).locate(prepared(), CHANGES, "s-0")
    locate(table, None)
    (settings,) = asked
    assert settings.workers is (None if from_bytes is None else run)
    assert from_bytes is None or settings.workers_from_bytes == from_bytes


def test_what_was_located_is_remembered_until_the_head_is_another(table: Table) -> None:
    locator = Locator(CHANGES, lambda _: [], "s-0")
    first = locator(table, None)
    assert first == Located(None, counts=ChangeCounts(superseded=2))
    assert locator(table, None) is first
    assert locator(table, 5) == Located(5, counts=ChangeCounts(superseded=2))
    assert locator(table, 5) is locator(table, 5)


def live(path: str, number: int = 5, rows: int = 1) -> LiveFile:
    return LiveFile(path, Content.DATA, 0, (), rows, 1, number, {}, {}, "", manifest_path="")


def test_of_the_newest_head_the_footers_of_its_files_are_remembered_and_of_no_others() -> None:
    memory = LocateMemory()
    stays, again, goes = DataFile("a", 1), DataFile("a", 1, since="8"), DataFile("b", 1)
    memory.footers.update(dict.fromkeys([stays, again, goes], Footer({}, has_ids=True)))
    memory.see(LiveFiles((live("a"), live("c")), ()))
    assert [*memory.footers] == [stays, again]


@pytest.mark.parametrize(
    ("numbers", "ages"), [({}, []), ({0: 5}, [5]), ({0: 5, 2: 7}, [5, None, 7]), ({1: 9}, [None, 9])]
)
def test_the_age_of_a_file_is_at_its_number_and_unknown_if_the_head_lacks_it(
    numbers: dict[int, int], ages: list[int | None]
) -> None:
    found = FilesOnHead({one: live("a", number) for one, number in numbers.items()}, {}, Deleted())
    assert found.ages.to_pylist() == ages


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_new_delete_file_takes_the_place_of_one_with_all_positions_that_its_manifest_states(
    *, is_exact: bool
) -> None:
    """One that states more positions than it has for this data file has others, or some twice."""
    older = live("old", rows=2 if is_exact else 3)
    deleted = Deleted({"a": BitMap64([1, 2])}, {"a": {"old": BitMap64([1, 2])}})
    removed = pa.table([pa.array([1, 3, 1], pa.int32()), pa.array([7, 0, 4])], [FILE, POSITION])
    found, replaced = FilesOnHead({1: live("a"), 3: live("b")}, {"old": older}, deleted).after(removed)
    positions = BitMap64([4, 7, 1, 2] if is_exact else [4, 7])
    assert {one.data_file: one.positions for one in found} == {"a": positions, "b": BitMap64([0])}
    assert replaced == ((older,) if is_exact else ())
