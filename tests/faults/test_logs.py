"""Keys files are removed once nothing can ask for them: those that the batch before names, and no other file."""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.logs import KeysFiles, ReportedLog, UnrecordedLog
from lakesink.sinks.iceberg.sink_table import RunMemory, SinkTable
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.events import BatchRecorded, RecordKept
from lakesink_protocol.row_changes import KeysFile, Mode
from lakesink_protocol.tags import EveryBatches
from testkit.tasks import table_in_memory
from tests.protocol.views import KEY, batch

NAME, FOLDER = "demo.events@main", "file:///t/data"
UNIQUE = "01234567-89ab-cdef-0123-456789abcdef"


def path(batch_id: int = 1, task: int = 0, folder: str = FOLDER, name: str = KEY.name) -> str:
    return f"{folder}/{name}-{batch_id}-{task:05d}-{UNIQUE}.keys"


def payloads(*paths: str) -> dict[str, Any]:
    """What a record says of a batch with these keys files, of the tasks 0 and on."""
    files = tuple(KeysFile(one, task, 3, 9, "0" * 64) for task, one in enumerate(paths))
    return {NAME: {"changes": PreparedChanges((1,), (), files, 0, Mode.UPSERT).to_json()}}


@dataclass
class Storage:
    """Records of batches, and the files of a table; tells what is done to them."""

    record: dict[str, Any] | Exception | None = None
    stays: str = ""
    told: list[Any] = field(default_factory=list)
    folder: str = "records"

    def before(self) -> dict[str, Any] | None:
        if isinstance(self.record, Exception):
            raise self.record
        return self.record

    def landed(self, _: Any) -> None:
        self.told.append("landed")
        self.record = None

    def put(self, *_: Any) -> None:
        self.told.append("put")

    def delete(self, location: str) -> None:
        if location == self.stays:
            raise PermissionError("no right")
        self.told.append(location)

    @property
    def effects(self) -> Effects:
        return Effects(at_once=map, emit=LISTENERS.also(self._tell))

    def _tell(self, event: Any) -> None:
        if isinstance(event, RecordKept | BatchRecorded):
            self.told.append(event)

    @property
    def keys_files(self) -> KeysFiles:
        table: Any = table_in_memory(Schema(NestedField(1, "id", LongType(), required=True)))
        table.io = self
        return KeysFiles(table, NAME, KEY, self.effects)

    def log(self, *, by_key: bool = True) -> ReportedLog:
        records: Any = self
        return ReportedLog(records, self.effects, self.keys_files if by_key else None)


def record(*paths: str) -> dict[str, Any]:
    return {"batch": {"batch_id": 1}, "participants": payloads(*paths)}


@pytest.mark.parametrize(
    ("named", "are_own"),
    [
        ([path()], [True]),
        ([path(), path(task=1)], [True, True]),
        ([path(), path()[:-4] + "arrows"], [True, False]),
        ([path(task=1)], [False]),
        ([path(batch_id=2)], [False]),
        ([path(name="other")], [False]),
        ([path(folder="file:///t")], [False]),
        ([path(folder="file:///t/data/deeper")], [False]),
        ([path(folder="file:///u/data"), path(task=1)], [False, True]),
        (["file:///t/data/rows.parquet"], [False]),
    ],
)
def test_of_the_files_that_a_record_names_those_with_a_name_of_its_tasks_are_keys_files(
    named: list[str], are_own: list[bool]
) -> None:
    expected = [one for one, is_own in zip(named, are_own, strict=True) if is_own]
    assert Storage().keys_files.named_in(1, payloads(*named)) == expected


@pytest.mark.parametrize(
    "malformed",
    [None, {}, {NAME: None}, {NAME: {}}, {NAME: {"changes": None}}, {NAME: {"changes": {}}}, {"other": 1}, "x"],
)
def test_a_record_of_another_form_names_none(malformed: Any) -> None:
    assert list(Storage().keys_files.named_in(1, malformed)) == []


NOT_READ = RecordKept("records", "OSError")


@pytest.mark.parametrize(
    ("found", "by_key", "told"),
    [
        (record(path(), path(task=1)), True, ["landed", path(), path(task=1)]),
        (record(path(batch_id=2)), True, ["landed"]),
        (record(path()), False, ["landed"]),
        (None, True, ["landed"]),
        (OSError("down"), True, [NOT_READ, "landed"]),
        ({"batch": {}}, True, [RecordKept("records", "KeyError"), "landed"]),
    ],
)
def test_keys_files_of_the_batch_before_go_after_its_record_once_a_batch_has_landed(
    found: Any,
    by_key: bool,  # noqa: FBT001 - a case
    told: list[Any],
) -> None:
    storage = Storage(found)
    storage.log(by_key=by_key).landed(batch(2))
    assert storage.told == told


def test_a_keys_file_that_cannot_be_removed_stays_and_fails_no_batch() -> None:
    storage = Storage(record(path(), path(task=1)), stays=path())
    storage.log().landed(batch(2))
    assert storage.told == ["landed", RecordKept(path(), "PermissionError"), path(task=1)]


def test_a_record_is_told_once_it_is_durable() -> None:
    storage = Storage()
    storage.log().put(batch(1), payloads(path()))
    assert storage.told == ["put", BatchRecorded(1)]


def test_without_records_a_batch_that_has_landed_removes_its_own_keys_files() -> None:
    storage = Storage()
    log = UnrecordedLog(storage.keys_files)
    assert log.find(batch(1)) is None  # type: ignore[func-returns-value] # what the coordinator asks
    log.put(batch(1), payloads(path(), path(batch_id=2, task=1)))
    assert storage.told == []
    log.landed(batch(1))
    assert storage.told == [path()]


@pytest.mark.parametrize(("stops", "tag_every"), [(True, EveryBatches(1)), (False, EveryBatches(1)), (False, None)])
def test_where_tags_are_left_out_a_query_that_wants_them_stops_behind_a_batch_that_landed(
    *, stops: bool, tag_every: EveryBatches | None
) -> None:
    storage, memory, settings = Storage(), RunMemory(), Settings(tag_every=tag_every)
    memory.left_out.tags = stops or tag_every is None
    sink = SinkTable("demo.events", KEY, lambda: NoopCatalog("demo"), settings, Effects(), memory, ())
    log = replace(storage.log(), check=sink.check_tags)
    with pytest.raises(CatalogError, match="CATALOG_WITHOUT_TAGS") if stops else nullcontext():
        log.landed(batch(2))
    assert storage.told == ["landed"]
