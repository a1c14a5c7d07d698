"""Others delete and change rows of a stream: these stay as they were left, also when their batch comes again."""

from collections import Counter

import pytest

from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import TABLE, expected
from tests.interop.maintenance.lake import Lake
from tests.interop.maintenance.plain import plain_stream
from tests.interop.readers.engines import CATALOG

pytestmark = pytest.mark.interop


def test_rows_stay_as_others_left_them(lake: Lake) -> None:
    name = f"{CATALOG}.{TABLE}"
    with plain_stream(lake) as stream:
        stream.run(0)
        stream.run(1)
        lake.spark.sql(f"DELETE FROM {name} WHERE batch = 0 AND position = 0")
        lake.trino.sql(f"DELETE FROM {name} WHERE batch = 1 AND position = 1")
        lake.spark.sql(f"UPDATE {name} SET position = 10 WHERE batch = 0 AND position = 1")
        lake.trino.sql(f"UPDATE {name} SET position = 12 WHERE batch = 1 AND position = 2")
        assert isinstance(stream.run(1), AlreadyCommitted)
        assert isinstance(stream.run(2), Committed)

        wanted = Counter([(0, 10), (0, 2), (1, 0), (1, 12)]) + expected(2)
        by_trino = lake.trino.sql(f"SELECT batch, position FROM {name}").rows
        by_spark = lake.spark.sql(f"SELECT batch, position FROM {name}").to_pylist()
        assert Counter((batch, position) for batch, position in by_trino) == wanted
        assert Counter((row["batch"], row["position"]) for row in by_spark) == wanted
        assert lake.asked("audit", TABLE)["findings"] == []
