"""What a scenario of real processes is made of: drivers that run, die and stand still, and hands on their table."""

import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.snapshots import Operation, Snapshot

from proof.added_again import added_again
from proof.keyed_table import rewrite
from proof.mutants.stage import Stage
from proof.processes.evidence import local
from proof.processes.harness import PATIENCE_SECONDS, Driver
from servers.fault_proxy import FaultProxy, HttpFault, Kind
from testkit import maintenance

Step = Callable[[Stage], None]

POLL_SECONDS = 0.02
ADDED_AGAIN_BY = 2**40
NOWHERE = "http://127.0.0.1:9"
TORN_AT = 0.8
"""Part of a record that is left of it."""


def run(failpoints: str = "") -> Step:
    """A driver from its start to its end or death."""

    def step(at: Stage) -> None:
        at.code = at.stream.run(failpoints).code

    return step


def stopped(failpoints: str, *meanwhile: Step) -> Step:
    """A driver that stands still at a failpoint while other things happen, and goes on."""

    def step(at: Stage) -> None:
        with at.stream.driver(failpoints) as driver:
            assert driver.wait_until_stopped(), f"it never came to {failpoints}"
            for other in meanwhile:
                other(at)
            at.reader.look()  # what is referenced by now must not be touched
            _go_on_to_the_end(at, driver)

    return step


def two_drivers_in_one_call(batch: int) -> Step:
    """Both have prepared the batch, each for itself; one commits it and all the rest, and then the other goes on."""

    def step(at: Stage) -> None:
        call = f"before-call@{batch}=stop"
        with at.stream.driver(f"before-prepared@{batch}=stop,{call}") as first:
            assert first.wait_until_stopped()
            with at.stream.driver(call) as second:
                assert second.wait_until_stopped()
                first.signal(signal.SIGCONT)
                assert first.wait_until_stopped()
                _go_on_to_the_end(at, second)
            _go_on_to_the_end(at, first)

    return step


def foreign(at: Stage) -> None:
    """Another writer's row."""
    at.append_foreign()


def another_adds(column: str) -> Step:
    """Another writer's column."""
    return lambda at: at.add_column(column)


def put_other_rows_aside(at: Stage) -> None:
    """The query is started with another idea of which rows do not fit."""
    at.stream = replace(at.stream, content=replace(at.stream.content, aside_every=2))


def merge_early(at: Stage) -> None:
    """Two manifests are enough for a merge."""
    maintenance.set_property(at.lake, "commit.manifest.min-count-to-merge", "2")


def add_again(at: Stage) -> None:
    """All files under their old sequence numbers, as a rewrite of data files leaves them."""
    table = at.lake.table()
    maintenance.change(at.lake, *added_again(table, at.branch, ADDED_AGAIN_BY, table.metadata.last_updated_ms)[1])


def expire(at: Stage) -> None:
    """All snapshots that no branch and no tag points at."""
    maintenance.expire(at.lake)


def clean_orphans(at: Stage) -> None:
    """Data files that no snapshot refers to."""
    maintenance.sweep(at.lake)


def replace_table(at: Stage) -> None:
    """Dropped, and made again under its name."""
    at.lake.catalog.drop_table(at.stream.table)
    at.make_table()


def roll_back(batch: int) -> Step:
    """The head goes back to a batch."""

    def step(at: Stage) -> None:
        goal = next(snapshot for snapshot in at.facts().walk() if snapshot.batch_id == batch)
        maintenance.roll_back(at.lake, goal.snapshot_id, at.branch)

    return step


def rewind(batch: int) -> Step:
    """The checkpoint goes back to a batch, as the operating rule says, or as an old backup has it."""

    def step(at: Stage) -> None:
        for log in ("offsets", "commits"):
            for path in (at.stream.root / "checkpoint" / log).iterdir():
                if int(path.name) > batch:
                    path.unlink()

    return step


def lose_checkpoint(at: Stage) -> None:
    """All of it."""
    shutil.rmtree(at.stream.root / "checkpoint")


def source_cut(batches: int, rows: int) -> Step:
    """The source's rows come in other batches from here on."""

    def step(at: Stage) -> None:
        at.stream = replace(at.stream, batches=batches, rows=rows)

    return step


def tear_record(at: Stage) -> None:
    """Of the newest prepared record the beginning is left."""
    records = local(at.lake.table().location()).glob("metadata/lakesink/*/*/*.json")
    newest = max(records, key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[: int(newest.stat().st_size * TORN_AT)])


def compact(at: Stage) -> None:
    """All live rows in new files."""
    table = at.lake.table()
    rewrite(table, table.scan().to_arrow())


def compact_over(*meanwhile: Step) -> Step:
    """A compaction that begins before these and ends after them. By Iceberg's rules it asks no append."""

    def step(at: Stage) -> None:
        base = at.lake.table()
        rows, files = base.scan().to_arrow(), {file.path for file in at.facts().files}
        for other in meanwhile:
            other(at)
        table = at.lake.table()
        if any(_is_checked(one) for one in table.snapshots() if not base.snapshot_by_id(one.snapshot_id)):
            return
        new = {task.file.file_path for task in table.scan().plan_files()} - files
        parts = [rows, *(pq.read_table(local(path)) for path in sorted(new))]
        rewrite(table, pa.concat_tables([part.select(rows.column_names).cast(rows.schema) for part in parts]))

    return step


def change_partitioning(at: Stage) -> None:
    """The table is not partitioned any more."""
    table = at.lake.table()
    with table.update_spec() as update:
        update.remove_field(table.spec().fields[0].name)


def _is_checked(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation in (Operation.OVERWRITE, Operation.DELETE)


def wait(seconds: float) -> Step:
    """Time passes."""
    return lambda _: time.sleep(seconds)


def spoil(faults: dict[int, HttpFault]) -> Step:
    """Commit requests to come go wrong, by number from 1."""

    def step(at: Stage) -> None:
        for number, fault in faults.items():
            _proxy(at).arm(number, fault, lambda: None)

    return step


def catalog_gone_after(number: int) -> Step:
    """A commit is carried out, and nothing is heard of the catalog any more."""

    def step(at: Stage) -> None:
        proxy = _proxy(at)

        def gone() -> None:
            proxy.target = NOWHERE

        proxy.arm(number, HttpFault(Kind.DROP), gone)

    return step


def catalog_comes_back_after(*steps: Step) -> Step:
    """Once these are done, the catalog is where it was before them."""

    def step(at: Stage) -> None:
        proxy = _proxy(at)
        back = proxy.target
        for other in steps:
            other(at)
        proxy.target = back

    return step


def answered(commits: int) -> Step:
    """So many commit requests have come to the catalog, late ones among them."""

    def step(at: Stage) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(_proxy(at).answers) < commits:
            assert time.monotonic() < deadline
            time.sleep(POLL_SECONDS)

    return step


def _proxy(at: Stage) -> FaultProxy:
    assert at.proxy is not None
    return at.proxy


def _go_on_to_the_end(at: Stage, driver: Driver) -> None:
    """Whenever it comes to its failpoint again, it goes on again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while driver.process.exitcode is None and time.monotonic() < deadline:
        if driver.is_stopped():
            driver.signal(signal.SIGCONT)
        driver.wait(POLL_SECONDS)
    at.code = driver.code
