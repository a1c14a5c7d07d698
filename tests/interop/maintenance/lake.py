"""The lake that streams write into while Spark SQL and Trino look after it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from click.testing import CliRunner
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink_catalog.connect.catalog import EMBEDDED_NAME, connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_tools.cli.main import main
from servers.spark_sql import SparkSQL
from servers.trino import Trino
from testkit.harness import Stream
from tests.interop.readers.engines import CATALOG, Engine

SCHEMA = pa.schema([("file", pa.int64()), ("row", pa.int64())])
SHORT_RETENTION: Mapping[str, str] = {
    f"{CATALOG}.expire_snapshots_min_retention": "0s",
    f"{CATALOG}.remove_orphan_files_min_retention": "0s",
}


@dataclass(frozen=True, slots=True)
class Lake:
    """The embedded catalog, and who has it open.

    Attributes:
        root: Folder of all that is of this run.
        home: Of the catalog.
        spark: Spark SQL.
        trino: Trino.
        readers: By whom a table is read.
    """

    root: Path
    home: Path
    spark: SparkSQL
    trino: Trino
    readers: Sequence[Engine]

    @staticmethod
    def connect(home: Path) -> Catalog:
        return connect(EMBEDDED_NAME, {"uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}/warehouse"})

    @staticmethod
    def create(home: Path, table: str, properties: Mapping[str, str] | None = None) -> None:
        home.mkdir(exist_ok=True)
        create_table(Lake.connect(home), table, SCHEMA, properties=properties)

    def stream(self, name: str, **options: Any) -> Stream:
        """A stream into ``demo.<name>``, which is made if it is not there."""
        options = {"create_table": True} | options
        return Stream(self.root / name, table=f"demo.{name}", sink_id=name, options=options, shared_home=self.home)

    def load(self, table: str) -> Table:
        return load_table(self.connect(self.home), table)

    def call(self, procedure: str, table: str, **arguments: str) -> pa.Table:
        """A procedure of Iceberg's in Spark; arguments are SQL."""
        given = "".join(f", {name} => {value}" for name, value in arguments.items())
        return self.spark.sql(f"CALL {CATALOG}.system.{procedure}(table => '{CATALOG}.{table}'{given})")

    def execute(self, procedure: str, table: str) -> None:
        """A table procedure of Trino's, with no shortest retention."""
        self.trino.sql(f"ALTER TABLE {CATALOG}.{table} EXECUTE {procedure}", SHORT_RETENTION)

    def asked(self, command: str, table: str, *arguments: str) -> dict[str, Any]:
        """What a command of lakesink says of a table."""
        call = [command, table, "--catalog", EMBEDDED_NAME, "--output", "json", *arguments]
        done = CliRunner().invoke(main, call, env={"LAKESINK_HOME": str(self.home)})
        found: dict[str, Any] = json.loads(done.stdout)
        return found | {"exit_code": done.exit_code}

    def rows(self, table: str, *more: Engine) -> Counter[tuple[int, int]]:
        """How often each row is there, as all readers agree, and those that are given."""
        loaded = self.load(table)
        schema = loaded.schema()
        readers = (*self.readers, *more)
        told = [Counter((row["file"], row["row"]) for row in reader.read(loaded, schema)) for reader in readers]
        names = [reader.name for reader in readers]
        assert all(one == told[0] for one in told), dict(zip(names, map(Counter.total, told), strict=True))
        return told[0]


def local(location: str) -> Path:
    return Path(urlsplit(location).path)
