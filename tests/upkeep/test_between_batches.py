"""When a sink maintains its tables between batches, its limits, and the warnings that come once in a run."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.upkeep.health import Health
from lakesink.sinks.iceberg.upkeep.maintenance import Maintenance
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink.sinks.iceberg.upkeep.reports import NOTHING_DUE, Report
from lakesink.spark.spark_errors import QueryStopped
from lakesink_protocol import events
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import Lake, Stream
from testkit.change_table import Change, ChangeStream, upsert_lake
from testkit.letters import load
from testkit.tasks import local

UNHEALTHY = Health(files=2_000, small_files=2_000, rows=10)


@dataclass(slots=True)
class Ran:
    """The maintenances that would have run, and what they find.

    Attributes:
        batches: The batch before each, for failpoints; -1 at the end of a query.
        healths: The health after each, from the front; then all is well.
    """

    policies: list[Policy] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    healths: list[Health] = field(default_factory=list)
    trouble: Exception | None = None

    def run(self, maintenance: Maintenance) -> Report:
        self.policies.append(maintenance.policy)
        self.tables.append(".".join(maintenance.load().name()))
        self.batches.append(maintenance.batch_id)
        if self.trouble:
            raise self.trouble
        health = self.healths.pop(0) if self.healths else Health()
        return Report(health, health, (), (), NOTHING_DUE)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    found = Ran()

    def run(self: Maintenance) -> Report:
        return found.run(self)

    monkeypatch.setattr(Maintenance, "run", run)
    return found


def changes(tmp_path: Path, **options: Any) -> ChangeStream:
    return ChangeStream(upsert_lake(tmp_path), options=options)


def run_changes(stream: ChangeStream, *, sink: IcebergSink, batches: range) -> list[events.Event]:
    """Batches of one run of a query; returns what was told."""
    told: list[events.Event] = []
    sink.effects = replace(sink.effects, emit=sink.effects.emit.also(told.append))
    sink.target.effects = sink.effects
    for number in batches:
        assert isinstance(stream.run_with(sink, number), Committed)
    return told


@pytest.mark.parametrize(
    ("options", "policies"),
    [
        ({}, []),
        ({"maintenance": "off"}, []),
        ({"maintenance": "on"}, [Policy(budget=timedelta(seconds=2))]),
        ({"maintenance": {"min_input_files": 3}}, [Policy(min_input_files=3, budget=timedelta(seconds=2))]),
        ({"maintenance": {"budget": "1 minute", "gate": True}}, [Policy(budget=timedelta(minutes=1), gate=True)]),
    ],
    ids=["not asked for", "off", "on", "two seconds", "a minute"],
)
def test_appends_are_maintained_if_the_option_asks_for_it(
    lake: Lake, ran: Ran, options: dict[str, Any], policies: list[Policy]
) -> None:
    Stream(lake, options=options).run(0)
    assert ran.policies == policies


@pytest.mark.parametrize(("options", "count"), [({}, 1), ({"maintenance": "off"}, 0)])
def test_changes_are_maintained_unless_the_option_turns_it_off(
    tmp_path: Path, ran: Ran, options: dict[str, Any], count: int
) -> None:
    changes(tmp_path, **options).run(0)
    assert ran.policies == [Policy(budget=timedelta(seconds=2))] * count


@pytest.mark.parametrize(("waited", "budget"), [(0, 500), (1_200, 1_200), (60_000, 2_000)])
def test_maintenance_takes_no_longer_than_the_query_waits_for_its_batches(
    tmp_path: Path, ran: Ran, waited: int, budget: int
) -> None:
    stream, now = changes(tmp_path), 0
    sink = stream.sink()
    sink.effects = sink.target.effects = replace(sink.effects, monotonic_ms=lambda: now)
    for number in range(3):
        stream.run_with(sink, number)
        now += waited
    assert [policy.budget for policy in ran.policies] == [
        timedelta(milliseconds=one) for one in (2_000, budget, budget)
    ]


def test_no_maintenance_follows_a_batch_that_was_in_the_table_before(tmp_path: Path, ran: Ran) -> None:
    stream = changes(tmp_path)
    stream.run(0)
    assert isinstance(stream.run(0), AlreadyCommitted)
    assert len(ran.policies) == 1


def test_at_the_end_of_a_query_there_is_neither_a_budget_nor_a_batch(tmp_path: Path, ran: Ran) -> None:
    stream = changes(tmp_path, maintenance={"budget": "1 s", "where": "part = 'a'"})
    sink = stream.sink()
    stream.run_with(sink, 0)
    sink.maintain(at_end=True)
    assert ran.policies[1:] == [Policy(where="part = 'a'")]
    assert ran.batches == [0, -1]


def test_a_changelog_with_rows_of_the_batch_is_maintained_in_what_is_left_of_the_budget(
    tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = changes(tmp_path, changelog_table="demo.log", maintenance={"where": "part = 'a'", "budget": "10 s"})
    sink = stream.sink()

    def run(self: Maintenance) -> Report:
        stream.chance.ticking += 4_000
        return ran.run(self)

    monkeypatch.setattr(Maintenance, "run", run)
    change = Change(1, 1, "a", "v", Decimal(1))
    stream.run_with(sink, 0, job=stream.job_of([[change]]))
    assert list(zip(ran.tables, ran.policies, strict=True)) == [
        ("demo.events", Policy(where="part = 'a'", budget=timedelta(seconds=10))),
        ("demo.log", Policy(budget=timedelta(seconds=6))),
    ]
    stream.run_with(sink, 1, job=stream.job_of([[]]))
    assert ran.tables[2:] == ["demo.events"]
    sink.maintain(at_end=True)
    assert ran.tables[3:] == ["demo.events", "demo.log"]
    assert ran.policies[-1] == Policy()


@pytest.mark.usefixtures("home")
def test_dead_letters_are_maintained_beside_their_table(ran: Ran) -> None:
    load(0, (1, 30), maintenance="on", on_malformed="quarantine")
    load(1, (2, 130), maintenance="on", on_malformed="quarantine")
    assert ran.tables == ["demo.people", "demo.people", "demo.people__dead_letters"]


@pytest.mark.parametrize(
    ("gate", "budgets"), [(True, [2, None, 2]), (False, [2, 2])], ids=["with the gate", "without it"]
)
def test_with_the_gate_a_table_past_a_bound_is_maintained_before_the_next_batch_without_a_budget(
    tmp_path: Path, ran: Ran, budgets: list[int | None], *, gate: bool
) -> None:
    stream = changes(tmp_path, maintenance={"gate": gate, "budget": "2 s"})
    ran.healths = [UNHEALTHY]
    told = run_changes(stream, sink=stream.sink(), batches=range(2))
    seconds = [policy.budget and policy.budget.total_seconds() for policy in ran.policies]
    assert seconds == budgets
    assert len([event for event in told if isinstance(event, events.TableUnhealthy)]) == (not gate)


def test_a_run_is_warned_once_of_a_table_past_its_bounds_by_their_names(tmp_path: Path, ran: Ran) -> None:
    stream = changes(tmp_path)
    ran.healths = [UNHEALTHY] * 3
    told = run_changes(stream, sink=stream.sink(), batches=range(3))
    assert [event for event in told if isinstance(event, events.TableUnhealthy)] == [
        events.TableUnhealthy("demo.events", "2,000 small files")
    ]


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (Health(small_files=1_000, rows=10, deleted_rows=3, manifests=1_000, metadata_bytes=2**30), ()),
        (Health(small_files=1_001), ("1,001 small files",)),
        (Health(rows=100_000, deleted_rows=31_000), ("31% deleted rows",)),
        (Health(rows=100, deleted_rows=100), ()),
        (Health(manifests=1_001), ("1,001 manifests",)),
        (Health(metadata_bytes=3 * 2**29), ("1.5 GiB of metadata",)),
    ],
)
def test_each_figure_of_the_health_has_a_bound(health: Health, words: tuple[str, ...]) -> None:
    assert health.past == words


def test_a_table_that_a_service_maintains_is_left_alone_and_said_so_once(tmp_path: Path, ran: Ran) -> None:
    stream = changes(tmp_path)
    stream.lake.catalog.properties["warehouse"] = "arn:aws:s3tables:eu-west-1:123456789012:bucket/lake"
    told = run_changes(stream, sink=stream.sink(), batches=range(2))
    assert ran.policies == []
    assert [event for event in told if isinstance(event, events.TableMaintainedElsewhere)] == [
        events.TableMaintainedElsewhere("demo.events", "Amazon S3 Tables", "the catalog's property warehouse")
    ]


def test_a_maintenance_that_fails_fails_no_batch_and_is_tried_again(tmp_path: Path, ran: Ran) -> None:
    stream = changes(tmp_path)
    ran.trouble = OSError("no space")
    told = run_changes(stream, sink=stream.sink(), batches=range(2))
    failed = events.MaintenanceFailed("demo.events", "OSError: no space")
    assert [event for event in told if isinstance(event, events.MaintenanceFailed)] == [failed, failed]


def test_a_query_that_is_stopped_during_maintenance_ends_without_a_warning(tmp_path: Path, ran: Ran) -> None:
    stream = changes(tmp_path, changelog_table="demo.log")
    sink, told = stream.sink(), list[events.Event]()
    stream.run_with(sink, 0)
    sink.target.effects = replace(sink.effects, emit=sink.effects.emit.also(told.append))
    ran.tables, ran.trouble = [], QueryStopped()
    with pytest.raises(QueryStopped):
        sink.maintain(at_end=True)
    assert (ran.tables, told) == (["demo.events"], [])


def test_files_are_written_as_the_options_of_the_stream_say(lake: Lake) -> None:
    options = {"compression_codec": "gzip", "maintenance": {"min_input_files": 2}}
    stream = Stream(lake, options=options)
    sink = stream.sink()
    for number in range(3):
        stream.run_with(sink, number)
    [file] = lake.table().inspect.data_files().to_pylist()
    assert "maintenance" in file["file_path"]
    assert pq.ParquetFile(local(file["file_path"])).metadata.row_group(0).column(0).compression == "GZIP"


@pytest.mark.usefixtures("ran")
def test_a_merge_of_manifests_goes_on_from_batches_to_their_maintenance(tmp_path: Path) -> None:
    stream = changes(tmp_path)
    sink = stream.sink()
    stream.run_with(sink, 0)
    assert sink.memory.upkeep[""].merges is sink.memory.merges
