"""A large batch of changes for a large table, and the memory of a process that locates it.

The measured batch is the second one, so the older deletes of all data files are read as well.
"""

import json
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, PrimitiveType, StringType

from lakesink.keys.data_file import DataFile
from lakesink.keys.key_cache import KeyCache
from lakesink.keys.key_columns import key_columns
from lakesink.keys.keys_file import changes_schema
from lakesink.keys.work import RemoteSearch, groups_of
from lakesink.sinks.iceberg.keyed_changes import Locator
from lakesink.sinks.iceberg.rows_on_head import LocateSettings
from lakesink_catalog.commit.prepared_changes import PreparedChanges
from lakesink_catalog.manifests.live_reading import LiveMemory, live_files
from lakesink_protocol.row_changes import Mode, Operation
from testkit.tasks import plan_for, write
from tests.locate.builders import write_keys
from tests.locate.store import Store

KEYS: Mapping[str, tuple[PrimitiveType, ...]] = {
    "numbers": (LongType(),),
    "texts": (StringType(),),
    "both": (LongType(), StringType()),
}
"""The key columns by their kind; a text has 36 characters."""
TEXT_LENGTH = 36
ROWS, FILES, CHANGES, TASKS = 2_000_000, 20, 1_000_000, 2
_NAME = "demo.large"
_SPREAD = 1_234_577
"""Prime to `ROWS`: multiples of it are spread over all data files."""


@dataclass(frozen=True, slots=True)
class Used:
    """MiB that a process had at its highest above those at the start, and of these, those of libraries' files."""

    most_mib: int
    shared_mib: int
    located: int


def schema_of(kind: str) -> Schema:
    """Key columns, and a version."""
    keys = [NestedField(place, f"key{place}", each, required=True) for place, each in enumerate(KEYS[kind], 1)]
    return Schema(*keys, NestedField(len(keys) + 1, "version", LongType(), required=True))


def make(folder: Path, kind: str) -> None:
    """A table, of which a first batch has changed many rows, and a second batch."""
    with _catalog(folder) as catalog:
        catalog.create_namespace("demo")
        store = Store(catalog.create_table(_NAME, schema_of(kind), properties={"format-version": "2"}), folder)
        plan = plan_for(store.table.schema(), f"{store.table.location()}/data")
        files = (_rows(number, kind) for number in range(FILES))
        store.publish([file for rows in files for file in write(plan, rows.to_batches()).files])
        first = _batch(folder, kind, first=0)
        store.publish(_locator(first, folder)(store.table, store.head).deletes)
        (folder / "batch").write_bytes(pickle.dumps(_batch(folder, kind, first=CHANGES // 2)))


def driver(folder: Path) -> Used:
    """Locate the second batch."""
    with _catalog(folder) as catalog:
        table, batch = catalog.load_table(_NAME), _second(folder)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        counts = []
        return _used(
            lambda: counts.append(_locator(batch, folder)(table, snapshot.snapshot_id).counts),
            lambda: counts[0].updated + counts[0].deleted,
        )


def worker(folder: Path) -> Used:
    """Search all data files for the second batch."""
    with _catalog(folder) as catalog:
        table, batch = catalog.load_table(_NAME), _second(folder)
        columns = key_columns(table.schema().model_dump_json(), batch.key_ids, batch.sequence_ids)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        live = live_files(table, snapshot.snapshot_id, LiveMemory())
        [group] = groups_of([DataFile(file.path, file.record_count) for file in live.data])
        search = RemoteSearch(columns, batch.keys_files, (), None, KeyCache(str(folder / "cache")))
        found: list[bytes] = []
        return _used(lambda: found.append(search(group)), lambda: pa.ipc.open_stream(found[0]).read_all().num_rows)


def _used(work: Callable[[], None], located: Callable[[], int]) -> Used:
    Path("/proc/self/clear_refs").write_text("5")  # the highest memory so far is that of now
    before = _mib()
    work()
    after = _mib()
    return Used(after["VmHWM"] - before["VmRSS"], after["RssFile"] - before["RssFile"], located())


def _mib() -> dict[str, int]:
    found = re.findall(r"(\w+):\s*(\d+) kB", Path("/proc/self/status").read_text())
    return {name: int(kibibytes) // 1024 for name, kibibytes in found}


@contextmanager
def _catalog(folder: Path) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog("large", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    try:
        yield catalog
    finally:
        catalog.close()


def _second(folder: Path) -> PreparedChanges:
    batch: PreparedChanges = pickle.loads((folder / "batch").read_bytes())  # noqa: S301 - its own
    return batch


def _locator(batch: PreparedChanges, folder: Path) -> Locator:
    return Locator(batch, lambda _: [], "s-0", settings=LocateSettings(folder=str(folder / "cache")))


def _rows(file: int, kind: str) -> pa.Table:
    ids = pa.arange(file * ROWS // FILES, (file + 1) * ROWS // FILES)
    schema = schema_of(kind).as_arrow()
    return pa.table([*_keys(ids, kind), pa.repeat(pa.scalar(1, pa.int64()), len(ids))], schema.names).cast(schema)


def _batch(folder: Path, kind: str, first: int) -> PreparedChanges:
    """Changes of so many keys all over the table; every tenth is a delete, and no key comes twice."""
    every = pc.multiply(pa.arange(first, first + CHANGES), _SPREAD)
    ids = pc.subtract(every, pc.multiply(pc.divide(every, ROWS), ROWS))
    parts = [ids[task * CHANGES // TASKS : (task + 1) * CHANGES // TASKS] for task in range(TASKS)]
    files = tuple(write_keys(folder, _changes(part, kind), task) for task, part in enumerate(parts))
    return PreparedChanges(*_ids(kind), files, 0, Mode.CHANGES)


def _changes(ids: pa.Array, kind: str) -> pa.Table:
    count, number = len(ids), pa.arange(0, len(ids))
    tenth = pc.equal(number, pc.multiply(pc.divide(number, 10), 10))
    operations = pc.if_else(tenth, int(Operation.DELETE), int(Operation.UPSERT)).cast(pa.int8())
    columns = key_columns(schema_of(kind).model_dump_json(), *_ids(kind))
    sequences, places = pa.repeat(pa.scalar(2, pa.int64()), count), pa.repeat(pa.scalar(0, pa.int64()), count)
    schema = changes_schema(columns)
    return pa.table([*_keys(ids, kind), sequences, operations, places, number], schema.names).cast(schema)


def _ids(kind: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Field ids of the keys, and of the version."""
    keys = len(KEYS[kind])
    return tuple(range(1, keys + 1)), (keys + 1,)


def _keys(ids: pa.Array, kind: str) -> list[pa.Array]:
    texts = pc.utf8_lpad(ids.cast(pa.string()), TEXT_LENGTH, padding="k")
    return [ids if isinstance(each, LongType) else texts for each in KEYS[kind]]


if __name__ == "__main__":
    used = {"driver": driver, "worker": worker}[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps([used.most_mib, used.shared_mib, used.located]))
