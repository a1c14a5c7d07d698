"""Tables of format version 1 that Iceberg's Java library made and upgraded take batches like any other."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakesink_catalog.connect.catalog import EMBEDDED_NAME
from lakesink_protocol.outcome import Committed
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Votes
from lakesink_tools.audit.audit import audit
from servers.jars import ICEBERG_SPARK, fetched
from servers.spark_sql import SparkSQL, spark_sql
from testkit import builders
from testkit.builders import FaultyCatalog, Stream
from testkit.change_table import ROWS, Change, ChangeStream, Reference, rows_of
from tests.interop.maintenance.lake import Lake
from tests.interop.readers.engines import CATALOG
from tests.interop.readers.places import EMBEDDED
from tests.interop.readers.printed import printed

pytestmark = pytest.mark.interop
OLD = [Change(key, 0, "abc"[key % 3], f"old {key}", Decimal(key)) for key in range(20)]
TABLES = {
    "unpartitioned": ("", ""),
    "partitioned": ("PARTITIONED BY (part)", ""),
    "with a dropped partition field": ("PARTITIONED BY (part)", "DROP PARTITION FIELD part"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("upgraded")
    Lake.create(home, "demo.numbers")
    return home


@pytest.fixture(scope="module")
def spark(home: Path) -> Iterator[SparkSQL]:
    conf = printed(home, "spark", EMBEDDED, "demo.numbers").settings
    del conf["spark.jars.packages"]
    with spark_sql(home / "spark", {**conf, "spark.jars": ",".join(map(str, fetched(ICEBERG_SPARK)))}) as session:
        yield session


_NUMBERS = itertools.count()


@pytest.fixture(params=TABLES)
def lake(request: pytest.FixtureRequest, home: Path, spark: SparkSQL) -> builders.Lake:
    """A table of two inserts in version 1, which Spark then upgrades: that makes no snapshot."""
    partitioned, changed = TABLES[request.param]
    table = f"demo.upgraded_{next(_NUMBERS)}"
    columns = "id BIGINT NOT NULL, version BIGINT NOT NULL, part STRING, value STRING, amount DECIMAL(38, 2)"
    spark.sql(
        f"CREATE TABLE {CATALOG}.{table} ({columns}) USING iceberg {partitioned} TBLPROPERTIES ('format-version' = '1')"
    )
    insert(spark, table, OLD[:10])
    if changed:
        spark.sql(f"ALTER TABLE {CATALOG}.{table} {changed}")
    insert(spark, table, OLD[10:])
    spark.sql(f"ALTER TABLE {CATALOG}.{table} SET TBLPROPERTIES ('format-version' = '2')")
    spark.sql(f"ALTER TABLE {CATALOG}.{table} SET IDENTIFIER FIELDS id")
    uri, warehouse = f"sqlite:///{home}/catalog.db", f"file://{home}/warehouse"
    return builders.Lake(home, FaultyCatalog(EMBEDDED_NAME, uri=uri, warehouse=warehouse), table)


def insert(spark: SparkSQL, table: str, changes: list[Change]) -> None:
    rows = ", ".join(f"({one.key}, {one.version}, '{one.part}', '{one.value}', {one.amount})" for one in changes)
    spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES {rows}")


def seen_by(spark: SparkSQL, lake: builders.Lake) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spark.sql(f"SELECT * FROM {CATALOG}.{lake.name} ORDER BY id").to_pylist()
    return found


def test_rows_are_appended_beside_those_of_before_the_upgrade(lake: builders.Lake, spark: SparkSQL) -> None:
    new = [Change(key, 1, "abd"[key % 3], "new", Decimal(key)) for key in range(100, 109)]
    stream = Stream(lake)
    rows = pa.RecordBatch.from_pylist([one.row for one in new], schema=ROWS)

    def job(writers: Mapping[str, TaskWriter]) -> Votes:
        return Votes.in_order({name: [writer.write(0, iter([rows]))] for name, writer in writers.items()})

    assert isinstance(stream.run_with(replace(stream.sink(), schema=ROWS), 0, job=job), Committed)
    assert stream.chance.waited_ms == []
    wanted = [one.row for one in [*OLD, *new]]
    assert (rows_of(lake), seen_by(spark, lake)) == (wanted, wanted)
    assert audit(lake.table()).findings == ()


def test_rows_of_before_the_upgrade_are_changed_by_key(lake: builders.Lake, spark: SparkSQL) -> None:
    stream, reference = ChangeStream(lake), Reference()
    reference.apply(OLD)
    for number in range(3):
        outcome = stream.run(number)
        assert isinstance(outcome, Committed)
        assert outcome.changes == reference.apply(stream.changes(number))
    assert (rows_of(lake), seen_by(spark, lake)) == (reference.table, reference.table)
    assert audit(lake.table()).findings == ()
