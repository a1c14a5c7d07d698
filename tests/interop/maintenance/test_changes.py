"""Tables that a stream changes by key: five engines read them alike, also after others changed them in between."""

import random
from collections.abc import Mapping

import pytest

from servers.spark_sql import SparkFailed
from testkit.builders import TABLE
from tests.interop.maintenance.changing import changing
from tests.interop.maintenance.foreign import ALL, MERGE_ON_READ, SPARK_CHANGES, SPARK_MAINTAINS, TRINO, Operation
from tests.interop.maintenance.lake import Lake
from tests.interop.readers.engines import At, OfFlink

pytestmark = pytest.mark.interop
FORMS: Mapping[str, Mapping[str, str]] = {
    "copy-on-write": {},
    "merge-on-read": MERGE_ON_READ,
    "merge-on-read by partition": {**MERGE_ON_READ, "write.delete.granularity": "partition"},
}
"""How Spark writes what it changes."""


@pytest.mark.parametrize("partitioned", [False, True])
def test_five_engines_read_what_a_stream_changed(lake: Lake, of_flink: OfFlink, *, partitioned: bool) -> None:
    with changing(lake, partitioned=partitioned) as stream:
        stream.run(12)
        then, known = At(stream.stream.lake.head().snapshot_id), stream.reference.table
        stream.run(12)
        stream.assert_read(of_flink)
        stream.assert_read(of_flink, at=then, wanted=known)


def test_spark_shows_no_changelog_of_deleted_rows(lake: Lake) -> None:
    """As the page about engines says."""
    with changing(lake) as stream:
        stream.run(4)
        lake.call("create_changelog_view", TABLE, changelog_view="'changelog'")
        with pytest.raises(SparkFailed, match="Delete files are currently not supported in changelog scans"):
            lake.spark.sql("SELECT * FROM changelog")


@pytest.mark.parametrize("operation", [SPARK_CHANGES[0], SPARK_MAINTAINS[0], TRINO[0]], ids=lambda one: one.name)
def test_a_stream_goes_on_after_another_engine(lake: Lake, of_flink: OfFlink, operation: Operation) -> None:
    with changing(lake, partitioned=True, properties=MERGE_ON_READ) as stream:
        stream.run(8)
        operation.do(stream)
        stream.assert_read(of_flink)
        stream.run(4)
        stream.assert_read(of_flink)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_stream_goes_on_after_everything_that_engines_do(
    lake: Lake, of_flink: OfFlink, form: str, *, partitioned: bool
) -> None:
    """In an order of chance: each also on what others left."""
    order = random.Random(f"{form} {partitioned}").sample(ALL, len(ALL))
    with changing(lake, partitioned=partitioned, properties=FORMS[form], seed=len(form)) as stream:
        stream.run(10)
        for operation in order:
            operation.do(stream)
            stream.assert_read(of_flink)
            stream.run(4)
            stream.assert_read(of_flink)
        audit = lake.asked("audit", TABLE)
        assert audit["findings"] == []
