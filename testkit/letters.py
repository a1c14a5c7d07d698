"""Loads that put rows aside, and replays of these dead letters, in the embedded catalog. No Spark."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink.rows.expectations import Expected, OnUnmet
from lakesink.settings.relations import Entry
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import stored_columns
from lakesink.sinks.iceberg.iceberg_sink import BeforeCommit, IcebergSink
from lakesink.sinks.iceberg.preflight import open_existing
from lakesink.sinks.iceberg.side.letters_table import letters_table
from lakesink.sinks.iceberg.side.replay_loop import Repaired, RepairLetters, ReplayLoop
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.connect.catalog import CatalogConfig, connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.coordinator import Write, run_batch
from lakesink_protocol.identity import Batch, SinkKey, SinkKind, transaction_batch
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Vote, Votes, receipts_of

TABLE, LETTERS, REPLAYS = "demo.people", "demo.people__dead_letters", "demo.people__dead_letters__replays"
ANY: dict[str, Any] = {"create_table": True, "verbose": False, "max_dead_letter_ratio": 1}
AGES = pa.schema([("id", pa.int64()), ("age", pa.int32())])
_VALID_AGE = Expected("valid_age", OnUnmet.QUARANTINE).mark


class Died(BaseException):
    """The driver dies."""


def append(
    rows: pa.Table,
    table: str,
    key: SinkKey,
    batch: Batch,
    settings: Settings,
    before_commit: BeforeCommit | None = None,
) -> Outcome:
    """One version of an application, written by one task."""
    found = CatalogConfig(settings.catalog, settings.catalog_properties).find()
    return append_to(found.open, rows, table, key, batch, settings, before_commit)


def append_to(
    open_catalog: Callable[[], Catalog],
    rows: pa.Table,
    table: str,
    key: SinkKey,
    batch: Batch,
    settings: Settings,
    before_commit: BeforeCommit | None = None,
) -> Outcome:
    """The same in any catalog."""
    columns = stored_columns(rows.schema, settings, case_sensitive=False)
    sink = IcebergSink(table, key, open_catalog, settings, columns, before_commit=before_commit)
    outcome = run_batch(batch, [sink], one_task(rows))[sink.name]
    sink.maintain()
    return outcome


def one_task(rows: pa.Table) -> Write:
    """The job that writes rows in one task, with a receipt for each side table."""

    def write(writers: Mapping[str, TaskWriter]) -> Votes:
        [(name, writer)] = writers.items()
        return Votes(1, [Vote(0, receipts_of(name, writer, writer.write(0, iter(rows.to_batches()))))])

    return write


def load(version: int, *people: tuple[int, int], table: str = TABLE, **options: Any) -> None:
    """Append people as a version of one application; those of an age outside 0 to 120 are put aside."""
    settings = Settings.parse({**ANY, **options}, entry=Entry.APPEND)
    found = [{"id": number, "age": age, _VALID_AGE: 0 <= age <= 120} for number, age in people]
    rows = pa.Table.from_pylist(found, AGES.append(pa.field(_VALID_AGE, pa.bool_())))
    append(rows, table, SinkKey("load", settings.branch, SinkKind.TXN), transaction_batch(version), settings)


def aged_120(wanted: Callable[[int], bool] = lambda _: True) -> RepairLetters:
    """A repair of the people with the wanted ids."""

    def repair(letters: pa.Table, _: Table) -> Repaired:
        ids = [json.loads(payload)["id"] for payload in letters["payload"].to_pylist()]
        kept = [(letter, id_) for letter, id_ in zip(letters["letter_id"].to_pylist(), ids, strict=True) if wanted(id_)]
        rows = pa.Table.from_pylist([{"id": id_, "age": 120} for _, id_ in kept], AGES)
        return Repaired([letter for letter, _ in kept], rows)

    return repair


def fix(repair: RepairLetters | None = None, table: str = TABLE, **options: Any) -> tuple[int, int, int]:
    """Replay the letters of a table: the numbers of replays and of letters, and of letters that are pending."""
    settings = Settings.parse(options, entry=Entry.REPLAY)
    found = CatalogConfig(settings.catalog, settings.catalog_properties).find()
    catalog = open_existing(found, table)
    letters = letters_table(table, settings)
    done = ReplayLoop(table, letters, settings, found.open, catalog, repair or aged_120(), append).run()
    return done.replays, done.letters, done.pending


def rows(table: str = TABLE) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load_table(connect(create=False), table).scan().to_arrow().to_pylist()
    return found


def ids(table: str = TABLE) -> list[int]:
    return sorted(row["id"] for row in rows(table))


def assigned() -> Counter[int]:
    """The number of letters of each replay."""
    found = rows(REPLAYS)
    assert len({row["letter_id"] for row in found}) == len(found)
    return Counter(row["replay"] for row in found)


def dies(monkeypatch: pytest.MonkeyPatch, repair: Callable[[], Any], *, assigned_first: bool) -> None:
    """Run a replay whose driver dies before the replay commits, with its letters assigned or not."""
    commit = FencedCommit.commit

    def to_replays_only(fence: Any, *batch: Any) -> Any:
        name = ".".join(fence.load().name())
        if name == (TABLE if assigned_first else REPLAYS):
            raise Died
        return commit(fence, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(FencedCommit, "commit", to_replays_only)
        with pytest.raises(Died):
            repair()
