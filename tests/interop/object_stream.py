"""A stream whose table, prepared records and checkpoint are all on S3; only the catalog is a local database."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from servers.jars import HADOOP_AWS, fetched
from servers.s3 import S3
from testkit.harness import CONF, Stream, kill_all, rows_of, wait_for

BUCKET = "lake"
LONGEST_SECONDS = 240


@dataclass(frozen=True)
class ObjectStream(Stream):
    """Numbered files of this machine, streamed into a table on S3; every row is (file, row).

    Attributes:
        server: Where the bucket is; the tests read its objects as the files that they are.
        bucket: Of table and checkpoint.
    """

    server: S3 = field(default_factory=lambda: S3(Path()))
    bucket: str = BUCKET

    @property
    def properties(self) -> dict[str, Any]:
        """Of the catalog; without keys."""
        uri = f"sqlite:///{self.root}/catalog.db"
        return {"uri": uri, "warehouse": f"s3://{self.bucket}/warehouse", **self.server.properties}

    def config(self) -> dict[str, Any]:
        return {**super().config(), "checkpoint": f"s3a://{self.bucket}/{self.checkpoint_name}"}

    def load(self) -> Table:
        return load_table(self._catalog(), self.table)

    def make_table(self, properties: Mapping[str, str]) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        columns = pa.schema([("file", pa.int64()), ("row", pa.int64())])
        create_table(self._catalog(), self.table, columns, properties=properties)

    def _catalog(self) -> Catalog:
        keys = {"s3.access-key-id": self.server.access_key, "s3.secret-access-key": self.server.secret_key}
        return connect("lake", {**self.properties, **keys})

    def rows(self, branch: str = "main") -> Counter[tuple[int, int]]:
        """See `rows_of`: objects are files."""
        buckets = self.server.folder / "buckets"
        return rows_of(self.load(), branch, lambda location: str(buckets / location.removeprefix("s3://")))

    def prepared_paths(self, batch: int) -> set[str]:
        """Data files that the prepared record of a batch names."""
        [found] = (self.server.folder / "buckets").rglob(f"lakesink/{self.sink_id}/*/{batch}-*.json")
        record = json.loads(found.read_bytes().partition(b"\n")[2])
        [payload] = record["participants"].values()
        return {path for path, _ in payload["files"]}

    @contextmanager
    def held(self, failpoint: str, batch: int) -> Iterator["Held"]:
        """A driver that has come to a point and waits there; nothing of it outlives the block."""
        window = self.root / "held-here"
        with self.driver(f"{failpoint}@{batch}=pause:{window}") as driver:
            wait_for(window, driver)
            yield Held(window, driver)
        window.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Held:
    """See `ObjectStream.held`."""

    window: Path
    process: "subprocess.Popen[str]"

    def kill(self) -> None:
        kill_all(self.process)

    def goes_on(self) -> int:
        """Let it go on, to its end, and return its exit code."""
        self.window.unlink()
        return self.process.wait(LONGEST_SECONDS)


def object_stream(root: Path, server: S3, environment: Mapping[str, str] | None = None, **chosen: Any) -> ObjectStream:
    """A stream as a user would configure it: PyIceberg's and AWS's variables, and Hadoop's settings.

    Args:
        root: Source, catalog and log.
        server: Runs.
        environment: Above what the server tells.
        chosen: Other fields.
    """
    jars = ",".join(map(str, fetched(HADOOP_AWS)))
    bare = ObjectStream(root, server=server, **chosen)
    catalog = {f"PYICEBERG_CATALOG__LAKE__{_variable(key)}": value for key, value in bare.properties.items()}
    return ObjectStream(
        root,
        {"catalog": "lake", "create_table": True},
        conf={**CONF, **server.hadoop, "spark.jars": jars},
        environment={**server.environment, **catalog, **(environment or {})},
        server=server,
        **chosen,
    )


def _variable(key: str) -> str:
    return key.upper().replace("-", "_").replace(".", "__")
