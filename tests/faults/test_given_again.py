"""Ids that are given again: a spec, a schema or a column name of another content between the vote and the commit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DoubleType

from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink_protocol.errors import WriteError
from lakesink_protocol.outcome import Committed
from testkit.answers import first
from testkit.builders import Fault, Lake, Stream, counted, expected
from testkit.maintenance import edit_metadata
from tests.faults.test_evolution import WHEN, Evolve, evolves_then_conflicts
from tests.faults.test_prepared_records import Crashed

BY_BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "batch_bucket"))
When = Callable[[Lake, Stream, Evolve], bool]


def give_spec_again(lake: Lake) -> None:
    """The spec is removed as unused, and its id goes to a new one, whose fields have ids of their own."""

    def edit(metadata: dict[str, Any]) -> None:
        [spec] = [spec for spec in metadata["partition-specs"] if spec["spec-id"] == 1]
        field_id = metadata["last-partition-id"] + 1
        spec["fields"] = [{"source-id": 1, "field-id": field_id, "transform": "bucket[8]", "name": "batch_bucket"}]
        metadata["last-partition-id"] = field_id

    edit_metadata(lake, edit)


def give_schema_again(lake: Lake) -> None:
    """As if the schema had been removed and another one had got its id, in which the last column is a new one."""

    def edit(metadata: dict[str, Any]) -> None:
        [schema] = metadata["schemas"]
        field_id = metadata["last-column-id"] + 1
        schema["fields"][-1]["id"] = field_id
        metadata["last-column-id"] = field_id

    edit_metadata(lake, edit)


def drop_and_add(lake: Lake) -> None:
    with lake.table().update_schema() as update:
        update.delete_column("written")
    with lake.table().update_schema() as update:
        update.add_column("written", lake.table().schemas()[0].find_type("written"))


def drop_and_add_in_capitals(lake: Lake) -> None:
    """Spark finds columns whatever their case."""
    with lake.table().update_schema() as update:
        update.delete_column("written")
    with lake.table().update_schema() as update:
        update.add_column("WRITTEN", lake.table().schemas()[0].find_type("written"))


def drop_and_add_as_double(lake: Lake) -> None:
    with lake.table().update_schema() as update:
        update.delete_column("written")
    with lake.table().update_schema() as update:
        update.add_column("written", DoubleType())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.make(tmp_path, properties={"commit.retry.num-retries": "1"})
    Stream(lake).run(0)
    return lake


@pytest.fixture
def bucketed(lake: Lake) -> Lake:
    """Batch 0 is of the empty spec 0; what comes is of spec 1."""
    with lake.table().update_spec() as update:
        update.add_field("batch", BucketTransform(4), "batch_bucket")
    return lake


@pytest.mark.parametrize("when", WHEN)
def test_a_batch_is_written_again_if_the_id_of_its_spec_means_another_spec(bucketed: Lake, when: When) -> None:
    assert when(bucketed, Stream(bucketed), give_spec_again)
    assert counted(bucketed) == expected(0, 1)
    found = bucketed.table().scan(row_filter="batch = 1").to_arrow()
    assert found["position"].to_pylist() == [0, 1, 2]
    head = bucketed.head()
    [own] = [one for one in head.manifests(bucketed.table().io) if one.added_snapshot_id == head.snapshot_id]
    [entry] = own.fetch_manifest_entry(bucketed.table().io)
    assert entry.data_file.partition[0] == BucketTransform(8).transform(bucketed.table().schema().find_type(1))(1)


@pytest.mark.parametrize("when", [when for when in WHEN if when.__name__ != "between_look_and_request"])
def test_a_batch_is_written_again_if_the_id_of_its_schema_means_another_schema(lake: Lake, when: When) -> None:
    assert when(lake, Stream(lake), give_schema_again)
    assert lake.table().scan(row_filter="batch = 1").to_arrow()["written"].null_count == 0


AGAIN = [*((drop_and_add, when) for when in WHEN), *((drop_and_add_in_capitals, when) for when in WHEN[:2])]


@pytest.mark.parametrize(("drop", "when"), AGAIN)
def test_a_batch_is_written_again_if_a_column_was_dropped_and_added_again(lake: Lake, drop: Evolve, when: When) -> None:
    """Under its name, but with another id: readers would find no value in the files."""
    assert when(lake, Stream(lake), drop)
    rows = lake.table().scan(row_filter="batch = 1").to_arrow()
    assert rows.column(rows.column_names[-1]).null_count == 0
    assert counted(lake) == expected(0, 1)


@pytest.mark.parametrize("between", [evolves_then_conflicts, first])
def test_a_batch_is_refused_by_column_if_that_was_added_again_with_a_type_that_its_values_do_not_fit(
    lake: Lake, between: Callable[[Callable[[], object]], Fault]
) -> None:
    lake.catalog.faults = [between(lambda: drop_and_add_as_double(lake))]
    with pytest.raises(WriteError, match=r"SCHEMA_MISMATCH.*'written'"):
        Stream(lake).run(1)
    assert counted(lake) == expected(0)


@pytest.mark.parametrize("again", [give_spec_again, give_schema_again])
def test_votes_are_rejected_if_an_id_was_given_again_before_another_process_counts_them(
    bucketed: Lake, again: Evolve
) -> None:
    planner, committer = Stream(bucketed), Stream(bucketed)
    planned = planner.sink().begin(planner.batch(1))
    assert isinstance(planned, IcebergTransaction)
    assert planned.writer is not None
    votes = planner.write(planner.batch(1))({"it": planned.writer}).receipts("it")
    again(bucketed)
    sink = committer.sink()
    counting = sink.begin(committer.batch(1))
    assert isinstance(counting, IcebergTransaction)
    with pytest.raises(WriteError, match="RECEIPT_REJECTED"):
        sink.pre_commit(counting, votes)
    assert isinstance(committer.run(1), Committed)
    assert counted(bucketed) == expected(0, 1)


def test_a_record_whose_premises_are_of_other_ids_is_malformed(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path)
    premises = crashed.prepared["premises"]
    crashed.rewrite(premises=premises | {"schema": premises["schema"] | {"schema-id": 7}})
    outcome = crashed.stream.run(1)
    assert isinstance(outcome, Committed)
    assert not outcome.recovered
    assert counted(crashed.lake) == expected(0, 1)
