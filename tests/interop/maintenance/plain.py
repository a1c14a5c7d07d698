"""A stream whose driver is not Spark, for cases that need a crash at a certain step more than they need Spark."""

import itertools
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.schema import Schema

from lakesink_catalog.connect.catalog import EMBEDDED_NAME
from testkit import builders
from testkit.builders import SCHEMA, TABLE, Chance, FaultyCatalog, Stream
from tests.interop.maintenance.lake import Lake


@contextmanager
def plain_stream(lake: Lake, schema: Schema = SCHEMA, **options: Any) -> Iterator[Stream]:
    """A stream into a new table in the lake, of which others see the same; it goes with the block."""
    uri, warehouse = f"sqlite:///{lake.home}/catalog.db", f"file://{lake.home}/warehouse"
    beside = builders.Lake(lake.home, FaultyCatalog(EMBEDDED_NAME, uri=uri, warehouse=warehouse))
    beside.create(schema)
    a_minute_ago = time.time_ns() // 1_000_000 - 60_000  # a second passes with each look: others come after it
    try:
        yield Stream(beside, options=options, chance=Chance(itertools.count(a_minute_ago, 100)))
    finally:
        beside.catalog.drop_table(TABLE)
        shutil.rmtree(lake.home / "warehouse" / TABLE.replace(".", "/"))
