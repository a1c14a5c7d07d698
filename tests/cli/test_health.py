"""``health`` is one word and an exit code for a probe; ``watch`` tells what is new in a table."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog

from lakesink.observe.metrics import CONSUMED, DURATION, LAST_BATCH, LAST_COMMIT, LAST_LOOK, ROWS, Numbers
from lakesink.read.position import Position
from lakesink_catalog.tables.tables import create_table
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.quality import REPLAY
from lakesink_tools.cli.main import main
from lakesink_tools.cli.run import watch as watching
from lakesink_tools.cli.run.outbox import Done
from lakesink_tools.cli.run.watch import Watched
from lakesink_tools.cli.sink_health import Health, health_in, worst
from servers.ports import free_port
from testkit.batches import Writer
from testkit.builders import Lake, Stream
from tests.adapter.test_progressed import BEGINNING, BEHIND
from tests.cli.test_status import HOUR_MS, catalog, set_times, writer
from tests.faults.test_prepared_records import Crashed
from tests.read.consumer import Consumer
from tests.read.test_hold import hold_unread

if TYPE_CHECKING:
    from lakesink_tools.operate.outbox.produce import Producing

__all__ = ["catalog"]
Run = Callable[..., Result]


@pytest.fixture
def run(home: Path) -> Run:
    assert home is not None  # the command finds the embedded catalog there
    return lambda *arguments: CliRunner().invoke(main, ["health", "shop.orders", *arguments], catch_exceptions=False)


def word(result: Result, exit_code: int = 0) -> str:
    assert result.exit_code == exit_code, result.output
    return result.stdout.splitlines()[0].removeprefix("shop.orders: ")


def test_a_table_whose_sinks_go_on_is_ok(run: Run, catalog: Catalog) -> None:
    writer(catalog, "shop.orders")
    assert word(run()) == "ok"
    assert word(run("--max-age", "30 min")) == "ok"


def test_a_silent_sink_is_stale_and_a_problem_only_with_an_age_of_the_user(run: Run, catalog: Catalog) -> None:
    writer(catalog, "shop.orders", ended_ms_ago=HOUR_MS, batches=8)
    assert word(run()) == "stale"
    assert word(run("--max-age", "30 min"), 1) == "stale"
    assert word(run("--max-age", "2 hours")) == "ok"


def test_a_replay_of_dead_letters_is_not_stale_because_none_is_due(run: Run, catalog: Catalog) -> None:
    written = writer(catalog, "shop.orders", batches=1)
    Writer(catalog, "shop.orders", sink=f"{REPLAY}0123456789abcdef", kind=SinkKind.TXN).commit(1)
    written.commit(1)
    now_ms = time.time_ns() // 1_000_000
    set_times(written, [now_ms - 3 * HOUR_MS, now_ms - 2 * HOUR_MS, now_ms])
    assert word(run("--max-age", "30 min")) == "ok"


def test_a_sink_whose_next_batch_would_be_refused_is_refused(run: Run, catalog: Catalog) -> None:
    written = writer(catalog, "shop.orders")
    table = written.load()
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit()
    assert word(run(), 1) == "refused"


def test_a_sink_without_the_proof_of_its_last_batch_is_degraded(run: Run, catalog: Catalog) -> None:
    written = writer(catalog, "shop.orders")
    other = written.__class__(catalog, "shop.orders", sink="other", query="q2", clock=written.clock)
    other.commit(0)
    table = written.load()
    last = [one.snapshot_id for one in table.metadata.snapshots][-2]
    refs = [name for name, ref in table.metadata.refs.items() if ref.snapshot_id == last and name != "main"]
    for name in refs:
        table.manage_snapshots().remove_tag(name).commit()
    written.load().maintenance.expire_snapshots().by_id(last).commit()
    assert word(run()) == "degraded"


def test_a_sink_with_a_batch_that_is_written_and_not_committed_is_behind_and_well(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path)
    [(_, standing, found)] = health_in(crashed.lake.table(), None, datetime.now(UTC))
    assert (found, standing.is_well) == (Health.BEHIND, True)
    crashed.stream.run(1)
    [(_, _, found)] = health_in(crashed.lake.table(), None, datetime.now(UTC))
    assert found is Health.OK


def test_a_table_that_no_stream_has_written_is_a_problem(run: Run, catalog: Catalog) -> None:
    create_table(catalog, "shop.orders", pa.schema([("id", pa.int64())]))
    assert word(run(), 1) == "stale"
    assert "No sink has committed to it." in run().stdout


def test_a_sink_can_be_asked_for_alone(run: Run, catalog: Catalog) -> None:
    written = writer(catalog, "shop.orders", batches=2)
    written.commit(2)
    Writer(catalog, "shop.orders", sink="nightly", kind=SinkKind.TXN).commit(1)
    now_ms = time.time_ns() // 1_000_000
    set_times(written, [now_ms - 3 * HOUR_MS] * 3 + [now_ms])
    asked = "--max-age", "30 min", "--sink"
    assert word(run(*asked[:2]), 1) == "stale"
    assert word(run(*asked, "nightly")) == "ok"
    assert word(run(*asked, "events"), 1) == "stale"
    assert (
        "Sink events has not committed for longer than --max-age. Next: check its query."
        in run(*asked, "events").stdout
    )
    assert "It has no sink evnts. Its sinks: events, nightly." in run(*asked, "evnts").stdout


def test_a_table_that_is_not_there_could_not_be_checked(run: Run, catalog: Catalog) -> None:
    writer(catalog, "shop.others")
    assert run().exit_code == 2
    assert json.loads(run("--output", "json").stdout)["error"]["code"] == "LAKESINK_TABLE_MISSING"


def test_a_catalog_that_is_away_could_not_be_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"http://me:geheim@127.0.0.1:{free_port()}")
    result = run("--catalog", "prod", "--output", "json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] == "LAKESINK_CATALOG_UNREACHABLE"
    assert "geheim" not in result.output


def test_a_sink_of_a_branch_counts_as_those_of_main_do(run: Run, catalog: Catalog) -> None:
    written = writer(catalog, "shop.orders")
    head = written.load().metadata.snapshots[-1].snapshot_id
    written.load().manage_snapshots().create_branch(head, "audit").commit()
    Writer(catalog, "shop.orders", sink="late", branch="audit", query="q2", clock=written.clock).commit(0)
    document = json.loads(run("--output", "json").stdout)
    assert [(sink["sink"], sink["branch"], sink["health"]) for sink in document["sinks"]] == [
        ("events", "main", "ok"),
        ("late", "audit", "ok"),
    ]
    assert word(run()) == "ok"
    written.load().manage_snapshots().remove_branch("audit").commit()
    assert word(run(), 1) == "refused"


def test_json_has_the_word_of_the_table_and_of_each_sink(run: Run, catalog: Catalog) -> None:
    writer(catalog, "shop.orders")
    document: dict[str, Any] = json.loads(run("--output", "json").stdout)
    assert (document["table"], document["health"]) == ("shop.orders", "ok")
    [sink] = document["sinks"]
    assert (sink["sink"], sink["branch"], sink["batch_id"], sink["health"]) == ("events", "main", 2, "ok")


def test_the_worst_sink_gives_the_table_its_word() -> None:
    assert worst(iter([Health.OK, Health.REFUSED, Health.STALE])) is Health.REFUSED
    assert worst(iter([Health.OK, Health.DEGRADED])) is Health.DEGRADED


def test_watch_tells_the_last_batches_and_then_each_new_one(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    written = writer(catalog, "shop.orders", batches=5)
    watched = Watched("shop.orders", None, Numbers())
    watched.look(written.load())
    assert re.findall(r"batch (\d)", capsys.readouterr().err) == ["2", "3", "4"]
    watched.look(written.load())
    assert capsys.readouterr().err == ""
    written.commit(5, rows=7)
    watched.look(written.load())
    assert re.search(r"events  batch 5  7 rows  committed", capsys.readouterr().err)
    assert watched.batches == 1


def test_watch_tells_when_the_health_changes(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    written = writer(catalog, "shop.orders")
    watched = Watched("shop.orders", timedelta(minutes=30), Numbers())
    watched.look(written.load())
    table = written.load()
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit()
    watched.look(written.load())
    said = [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines() if "shop.orders: " in line]
    assert said == ["ok", "refused"]


def test_watch_tells_once_that_a_table_cannot_be_read_and_when_it_can_be_again(
    catalog: Catalog, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, numbers, looks = writer(catalog, "shop.orders").load(), Numbers(), iter(range(5))

    class Stopped:
        """At the fifth look."""

        def wait(self, _: float) -> bool:
            return next(looks) == 4

    def load(*_: object) -> Any:
        told.append(next(iter(dict(numbers.read(LAST_LOOK)).values()), 0))
        if len(told) in (2, 3):
            raise CatalogError.of("TABLE_MISSING", table="shop.orders", catalog="lakehouse", near="")
        return table

    told = list[float]()
    monkeypatch.setattr(watching, "stopped_by_signals", Stopped)
    monkeypatch.setattr(watching, "served", lambda _: numbers)
    monkeypatch.setattr(watching, "load_to_read", load)
    watching.watch("shop.orders", None, None, 1.0, None)
    said = [line.partition(" ")[2].partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert [line[:25] for line in said[3:]] == ["shop.orders: ok", "[LAKESINK_TABLE_MISSING] ", "shop.orders: ok"]
    assert told[1] == told[2] == told[3] < told[4], "the time of a look tells Prometheus that there was none"


def test_watch_counts_for_prometheus_what_other_processes_commit(catalog: Catalog) -> None:
    numbers = Numbers()
    written = writer(catalog, "shop.orders")
    watched = Watched("shop.orders", None, numbers)
    watched.look(written.load())
    assert dict(numbers.read(ROWS)) == {("shop.orders", "events", "main"): 0}
    assert dict(numbers.read(LAST_BATCH)) == {("shop.orders", "events", "main"): 2}
    written.commit(3, rows=7)
    watched.look(written.load())
    assert dict(numbers.read(ROWS)) == {("shop.orders", "events", "main"): 7}
    [committed] = dict(numbers.read(LAST_COMMIT)).values()
    assert committed * 1000 == written.load().metadata.snapshots[-1].timestamp_ms
    assert dict(numbers.read(DURATION)) == {}  # a table does not tell it
    replace(written, kind=SinkKind.TXN).commit(20260101, rows=4)
    watched.look(written.load())
    assert dict(numbers.read(LAST_BATCH)) == {
        ("shop.orders", "events", "main"): 3,
        ("shop.orders", "events (txn)", "main"): 20260101,
    }


def test_watch_ends_with_a_report_when_it_is_stopped(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    writer(catalog, "shop.orders")
    stopped = threading.Event()
    stopped.set()
    monkeypatch.setattr(watching, "stopped_by_signals", lambda: stopped)
    result = CliRunner().invoke(main, ["watch", "shop.orders", "--output", "json"], catch_exceptions=False)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"table": "shop.orders", "health": "ok", "batches": 0}


def test_watch_tells_prometheus_how_far_a_reader_is(lake: Lake) -> None:
    stream, consumer, numbers = Stream(lake), Consumer(lake), Numbers()
    for batch in (0, 1):
        stream.run(batch)
    consumer.poll()
    stream.run(2)
    hold_unread(lake, consumer)
    Watched("shop.orders", None, numbers).look(lake.table())
    assert dict(numbers.read(CONSUMED)) == {("shop.orders", "events", "main", "silver"): 1}


@pytest.mark.parametrize("position", [None, BEGINNING, BEHIND])
def test_an_outbox_tells_prometheus_its_position_as_soon_as_there_is_one(position: Position | None) -> None:
    numbers = Numbers()
    producing = SimpleNamespace(position=position, outbox=SimpleNamespace(table="shop.orders", name="out"))
    Done(numbers).tell(cast("Producing", producing))
    told = {("shop.orders", "orders", "main", "out"): 7}
    assert dict(numbers.read(CONSUMED)) == (told if position is BEHIND else {})


@pytest.mark.parametrize("place", ["otel", "prometheus", "host", "99999", "0"])
def test_a_command_serves_prometheus_at_a_port_and_nowhere_else(place: str) -> None:
    result = CliRunner().invoke(main, ["watch", "shop.orders", "--metrics", place])
    assert result.exit_code == 2
    assert "'0.0.0.0:9464'" in result.output


def test_a_port_that_is_taken_ends_the_command_before_it_begins(catalog: Catalog) -> None:
    writer(catalog, "shop.orders")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(main, ["watch", "shop.orders", "--metrics", str(taken.getsockname()[1])])
    assert result.exit_code == 2
    assert "cannot be opened (OSError: [Errno 98]" in result.stderr
