"""Every engine reads every row as the stream was given it: of every type, under every partitioning, at every batch."""

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet
from pyiceberg.schema import Schema

from tests.interop.readers.conftest import ENGINES
from tests.interop.readers.engines import At, Engine, Rows
from tests.interop.readers.kinds import BY_ITSELF, TRANSFORMS
from tests.interop.readers.known import REFUSED, as_read
from tests.interop.readers.tables import Batch, Told
from tests.readers.engines import canonical_rows

pytestmark = pytest.mark.interop

BY_TRANSFORM = tuple(f"by_{name.partition('[')[0]}" for name in TRANSFORMS)
TABLES = ("kinds", "times", "evolved", "followed", "documents", *BY_ITSELF, *BY_TRANSFORM)
SLOW = {"flink": ("kinds", "evolved", "documents")}
"""Where a query takes seconds, these stand for all tables. Not "followed": Flink cannot read a snapshot from before a
column became wider that partitions by identity."""

AT_ONCE = ("kinds", "followed", "documents")
"""The tables of every type, and of rows that changed the schema, are read at every landing; the others at night."""

REFUSALS = sorted(REFUSED)
READ = [(engine, table) for engine in ENGINES for table in TABLES if (engine, table) not in REFUSED]


def in_the_night(pairs: Iterable[tuple[str, str]]) -> list[ParameterSet]:
    return [pytest.param(*pair, marks=() if pair[1] in AT_ONCE else pytest.mark.nightly) for pair in pairs]


@pytest.mark.parametrize(("engine", "table"), in_the_night(READ), indirect=["engine"])
def test_the_table_is_read_row_by_row(engine: Engine, table: str, tables: dict[str, Told]) -> None:
    told = tables[table]
    check(engine, table, engine.read(told.load(), told.head.schema), told.head, told.head.schema)


@pytest.mark.parametrize(
    ("engine", "table"),
    in_the_night((engine, table) for engine, table in READ if table in SLOW.get(engine, TABLES)),
    indirect=["engine"],
)
def test_every_batch_is_read_by_its_snapshot_and_by_its_tag(
    engine: Engine, table: str, tables: dict[str, Told]
) -> None:
    told = tables[table]
    loaded = told.load()
    ways = [At(snapshot_id=batch.snapshot_id) for batch in told.batches], [At(tag=batch.tag) for batch in told.batches]
    for at, batch in [pair for way in ways for pair in zip(way, told.batches, strict=True)]:
        if engine.name == "duckdb" and at.tag is not None:
            continue  # it takes snapshots only
        # Flink reads what a snapshot holds under the table's present schema, the others under the snapshot's own.
        schema = told.head.schema if engine.name == "flink" else batch.schema
        check(engine, table, engine.read(loaded, schema, at), batch, schema, told)


def check(engine: Engine, table: str, found: Rows, batch: Batch, schema: Schema, told: Told | None = None) -> None:
    wanted = batch.rows if told is None or schema is batch.schema else told.head.rows[: len(batch.rows)]
    assert canonical_rows(found, schema) == canonical_rows(as_read(engine.name, table, wanted, schema), schema)


@pytest.mark.nightly
@pytest.mark.parametrize(("engine", "table"), REFUSALS, indirect=["engine"])
def test_what_an_engine_is_known_to_refuse_it_still_does(engine: Engine, table: str, tables: dict[str, Told]) -> None:
    told = tables[table]
    with pytest.raises(engine.failure, match=REFUSED[engine.name, table]):
        engine.read(told.load(), told.head.schema)
