"""lakesink's compaction of sorted tables beside other engines: all read its rows, and of two at once one gives up."""

import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from lakesink.sinks.iceberg.upkeep import maintenance
from lakesink.sinks.iceberg.upkeep.rewrite import rewrite
from lakesink_catalog.connect.catalog import EMBEDDED_NAME
from servers.spark_sql import SparkFailed
from testkit.builders import TABLE
from tests.interop.maintenance.changing import NAME, Changing, changing
from tests.interop.maintenance.foreign import MERGE_ON_READ, SPARK_MAINTAINS, TRINO, Operation
from tests.interop.maintenance.lake import Lake
from tests.interop.maintenance.others import Others
from tests.interop.maintenance.running import Feed, at_work, done_batches
from tests.interop.maintenance.test_beside_a_stream import CONFLICTS
from tests.interop.maintenance.test_changes_beside_others import FILE_BY_FILE, begun
from tests.interop.readers.engines import CATALOG, OfFlink
from tests.interop.readers.kinds import SCHEMA, arrow, partitioned_by, rows
from tests.interop.readers.known import as_read
from tests.processes.test_changelog_killed import OPTIONS, Changes, expected
from tests.readers import lake as streams
from tests.readers.engines import canonical_rows
from tests.upkeep.lake import NUMBERS
from tests.upkeep.lake import rows as numbers
from tests.upkeep.orders import check_orders
from tests.writer.random_tables import ROW

pytestmark = pytest.mark.interop
SORTS: Mapping[str, str] = {"strategy": "'sort'", "options": "map('rewrite-all', 'true')"}
MANIFESTS, OPTIMIZE = SPARK_MAINTAINS[1], TRINO[3]
SORT = Operation("Spark rewrite_data_files by sort", lambda lake: lake.call("rewrite_data_files", TABLE, **SORTS))
CHANGES: Mapping[str, str] = {
    "widen": "ALTER COLUMN c_int TYPE BIGINT",
    "add": "ADD COLUMN added STRING",
    "rename": "RENAME COLUMN c_string TO renamed",
    "partition": f"ADD PARTITION FIELD bucket(2, {ROW})",
    "order": "WRITE LOCALLY ORDERED BY added DESC NULLS LAST, c_double, truncate(2, renamed), days(c_timestamptz) DESC",
}
"""Of a table between its batches."""
PATIENCE_SECONDS = 300.0


@contextmanager
def sorted_changes(lake: Lake, *, partitioned: bool = False) -> Iterator[Changing]:
    """A stream of changes into a sorted table, which leaves its small files to others."""
    with changing(lake, partitioned=partitioned, properties=MERGE_ON_READ) as stream:
        stream.stream.options["maintenance"] = "off"
        lake.spark.sql(f"ALTER TABLE {NAME} WRITE LOCALLY ORDERED BY value DESC NULLS FIRST, bucket(4, id), amount")
        yield stream


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What happens between the rewrite of a group and its commit, one after the other."""
    todo = list[Callable[[], object]]()

    def rewrites(*given: Any) -> Any:
        done = rewrite(*given)
        if todo:
            todo.pop(0)()
        return done

    monkeypatch.setattr(maintenance, "rewrite", rewrites)
    return todo


def maintain(lake: Lake, table: str = TABLE) -> dict[str, Any]:
    """Nothing that is due stays."""
    done = lake.asked("maintain", table, "--min-input-files", "2")
    assert (done["exit_code"], done["left"]) == (0, [])
    return done


def assert_at_rest(lake: Lake, table: str, order_id: int, optimize: str = "optimize") -> None:
    """Each file has this order, and Spark sees that it states it; no engine has anything to do."""
    found = check_orders(lake.load(table))
    assert found == [order_id] * len(found)
    stated = lake.spark.sql(f"SELECT sort_order_id AS id FROM {CATALOG}.{table}.data_files")
    assert stated["id"].to_pylist() == found
    head = lake.load(table).current_snapshot()
    lake.call("rewrite_data_files", table)
    lake.call("rewrite_data_files", table, strategy="'sort'")
    lake.execute(optimize, table)
    assert maintain(lake, table)["groups"] == []
    assert lake.load(table).current_snapshot() == head


def test_five_engines_read_a_sorted_table_that_was_compacted(
    lake: Lake, of_flink: OfFlink, meanwhile: list[Callable[[], object]]
) -> None:
    """Its files are of two specs and of older columns, and rows of them were deleted before and meanwhile."""
    table, name = "demo.sorted", f"{CATALOG}.demo.sorted"
    spec, properties = partitioned_by("identity", ["c_boolean"]), {"write.delete.mode": "merge-on-read"}
    stream = streams.Lake(lake.home, EMBEDDED_NAME).new_table(SCHEMA, spec, properties, "sorted")
    lake.spark.sql(f"ALTER TABLE {name} WRITE LOCALLY ORDERED BY c_string DESC NULLS FIRST, c_double")
    told = arrow(SCHEMA, rows(0))
    for half in (told.slice(0, 6), told.slice(6)):
        stream.write([half.to_batches()], told.schema)
    lake.spark.sql(f"DELETE FROM {name} WHERE {ROW} % 5 = 1")
    for change in CHANGES.values():
        lake.spark.sql(f"ALTER TABLE {name} {change}")
    schema = stream.load().schema()
    old = [{**row, "renamed": row["c_string"], "added": None} for row in rows(0) if row[ROW] % 5 != 1]
    new = [{**row, "renamed": row["c_string"], "added": "é" * (row[ROW] % 3) or None} for row in rows(12, 24)]
    for first in (0, 12):
        more = arrow(schema, [_of(schema, row) for row in new[first : first + 12]])
        stream.write([more.to_batches()], more.schema)
    meanwhile.append(lambda: lake.trino.sql(f'DELETE FROM {name} WHERE "{ROW}" % 2 = 0'))

    done = maintain(lake, table)

    assert sum(group["carried"] for group in done["groups"]) > 0
    wanted = arrow(schema, [_of(schema, row) for row in (*old, *new) if row[ROW] % 2]).to_pylist()
    for engine in (*lake.readers, of_flink):
        found = engine.read(stream.load(), schema)
        assert canonical_rows(found, schema) == canonical_rows(as_read(engine.name, "kinds", wanted, schema), schema)
    assert_at_rest(lake, table, 2)


def _of(schema: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: row[field.name] for field in schema.fields}


@pytest.mark.parametrize("operation", [SORT, MANIFESTS, OPTIMIZE], ids=lambda one: one.name)
def test_a_compaction_by_another_engine_meanwhile_ends_the_group_and_the_next_run_goes_on(
    lake: Lake, meanwhile: list[Callable[[], object]], operation: Operation
) -> None:
    with sorted_changes(lake, partitioned=True) as stream:
        stream.run(6)
        meanwhile.append(lambda: operation.do(stream))
        replaced = [group["files"] for group in maintain(lake)["groups"]]
        assert bool(replaced) == (operation is MANIFESTS)
        stream.assert_read()
        stream.run(4)
        assert len(maintain(lake)["groups"]) == 3
        stream.assert_read()
        assert_at_rest(lake, TABLE, 1)


def test_spark_gives_up_a_sort_whose_files_lakesink_compacted_meanwhile(lake: Lake) -> None:
    with sorted_changes(lake) as stream, ThreadPoolExecutor(1) as beside:
        stream.run(12)
        sort = begun(beside, stream, strategy="'sort'", options=FILE_BY_FILE)
        assert maintain(lake)["groups"]
        with pytest.raises(SparkFailed, match="ValidationException"):
            sort.result()
        stream.assert_read()
        SORT.do(stream)
        stream.run(2)
        maintain(lake)
        stream.assert_read()
        assert_at_rest(lake, TABLE, 1)


def test_trino_and_lakesink_leave_each_others_files_if_trino_is_told_what_is_small(lake: Lake) -> None:
    """Else it merges files below 100 MB, whatever the table's target is, and lakesink divides the large one again."""
    table, target = "demo.sized", 200_000
    stream = streams.Lake(lake.home, EMBEDDED_NAME).new_table(
        NUMBERS, properties={"write.target-file-size-bytes": str(target)}, name="sized"
    )
    lake.spark.sql(f"ALTER TABLE {CATALOG}.{table} WRITE LOCALLY ORDERED BY v DESC")
    for start in range(0, 16_000, 2_000):
        texts = [random.Random(number).randbytes(16).hex() for number in range(start, start + 2_000)]
        stream.load().append(numbers(start, 2_000).set_column(2, "v", [texts]))
    [group] = maintain(lake, table)["groups"]
    assert (group["files"], group["into"]) == (8, 2)
    head = stream.load().current_snapshot()
    lake.execute(f"optimize(file_size_threshold => '{target * 3 // 4}B')", table)
    assert stream.load().current_snapshot() == head
    lake.execute("optimize", table)
    [group] = maintain(lake, table)["groups"]
    assert (group["files"], group["into"]) == (1, 2)
    assert_at_rest(lake, table, 1, f"optimize(file_size_threshold => '{target * 3 // 4}B')")


@pytest.mark.nightly
@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_a_real_stream_of_changes_goes_on_while_others_rewrite_its_sorted_files(lake: Lake, of_flink: OfFlink) -> None:
    """The stream compacts its files too; its driver is killed once."""
    table = "demo.changed"
    own = {name: value for name, value in OPTIONS.items() if name != "changelog_table"}
    options = {**own, "except_column_list": "gone", "sort_by": "text desc, bucket(4, id)"}
    stream = Changes(lake.root / "changed", options, table, "changed", shared_home=lake.home)
    by_spark = Others(
        {
            "sort": lambda: lake.call("rewrite_data_files", table, **SORTS),
            "rewrite_manifests": lambda: lake.call("rewrite_manifests", table),
        },
        pause_seconds=0.5,
    )
    by_trino = Others({"optimize": lambda: lake.execute("optimize", table)}, pause_seconds=1.0)
    others, feed = (by_spark, by_trino), Feed(replace(stream, trigger={"processingTime": "300 milliseconds"}))
    with feed.stream.driver():
        feed.until(lambda: done_batches(stream) > 0, PATIENCE_SECONDS)
        with at_work(others) as work:
            feed.until(lambda: all(one.done[kind] for one in others for kind in one.operations), PATIENCE_SECONDS, work)
    assert stream.run() == 0, stream.log()[-5000:]

    assert not [error for one in others for _, error in one.refused if not any(word in error for word in CONFLICTS)]
    loaded = lake.load(table)
    for engine in (*lake.readers, of_flink):
        found = sorted(engine.read(loaded, loaded.schema()), key=lambda row: row["id"])
        assert found == expected(feed.files), engine.name
    assert set(check_orders(loaded)) <= {0, 1}
    assert lake.asked("audit", table, "--checkpoint", str(stream.checkpoint))["findings"] == []
