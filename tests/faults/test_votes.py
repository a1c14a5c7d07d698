"""A vote that is missing, doubled, malformed or cast on other premises fails the batch; the next run commits it."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, DecimalType, FixedType, LongType, NestedField, StringType

from lakesink.rows.expectations import Expected, OnUnmet
from lakesink.sinks.iceberg.checked_receipts import (
    bounds_fit,
    check_expectations,
    count_votes,
    counts_agree,
)
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink_catalog.tables.locations import all_under
from lakesink_protocol.change import ContentFile
from lakesink_protocol.errors import WriteError
from lakesink_protocol.measures import DEAD_LETTERS, RESCUED_ROWS, Tally
from lakesink_protocol.outcome import Committed
from lakesink_protocol.quality import Quality
from lakesink_protocol.receipt import LeftRows, Receipt, decode, encode
from lakesink_protocol.row_changes import DELETES, SUPERSEDED, KeysFile
from testkit.builders import Lake, Stream, counted, expected
from testkit.examples import examples

Change = Callable[[ContentFile, Lake], ContentFile]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.make(tmp_path)
    Stream(lake).run(0)
    return lake


@pytest.fixture
def sink(lake: Lake) -> IcebergSink:
    return Stream(lake).sink()


def begun(sink: IcebergSink, lake: Lake) -> tuple[IcebergTransaction, list[Receipt]]:
    """Batch 1 with the votes of two tasks."""
    stream = Stream(lake)
    transaction = sink.begin(stream.batch(1))
    assert isinstance(transaction, IcebergTransaction)
    assert transaction.writer is not None
    votes = stream.write(stream.batch(1), tasks=2)({"it": transaction.writer}).receipts("it")
    return transaction, [decode(vote) for vote in votes]


def rejected(sink: IcebergSink, transaction: IcebergTransaction, votes: list[bytes], lake: Lake) -> None:
    location = lake.table().metadata_location
    with pytest.raises(WriteError) as error:
        sink.pre_commit(transaction, votes)
    assert error.value.code == "LAKESINK_RECEIPT_REJECTED"
    assert len(str(error.value).partition("\n")[0]) < 200
    assert error.value.what.isprintable()
    assert lake.table().metadata_location == location


def test_votes_as_they_were_cast_are_committed_in_any_order(lake: Lake, sink: IcebergSink) -> None:
    transaction, votes = begun(sink, lake)
    outcome = sink.commit(transaction, sink.pre_commit(transaction, [encode(vote) for vote in reversed(votes)]))
    assert isinstance(outcome, Committed)
    assert (outcome.rows, outcome.files) == (6, 2)
    assert counted(lake) == expected(0) + expected(1, rows=6)


def _rescued(vote: Receipt, rows: int, by_reason: int, others: int = 0) -> Receipt:
    quality = Quality(Tally({RESCUED_ROWS: rows}), rescued={"new: no column": by_reason, "others": others})
    return replace(vote, quality=quality)


BAD_VOTES: dict[str, Callable[[Receipt], Receipt]] = {
    "with rows that are in no file": lambda vote: replace(vote, rows=vote.rows + 1),
    "without its files": lambda vote: replace(vote, files=()),
    "with a file twice": lambda vote: replace(vote, rows=2 * vote.rows, files=vote.files * 2),
    "of a task that is another one": lambda vote: replace(vote, task=0),
    "under a schema that the table does not have": lambda vote: replace(vote, schema_id=7),
    "under a schema or spec of another content": lambda vote: replace(vote, premises="0" * 32),
    "with rows that it left, though nobody asked": lambda vote: replace(
        vote, rows=vote.rows + 1, left=LeftRows(f"{vote.files[0].path}.arrows", 1, 1)
    ),
    "with more rescued rows than rows": lambda vote: _rescued(vote, vote.rows + 1, vote.rows + 1),
    "with malformed documents, though it does not refuse": lambda vote: replace(vote, malformed=1),
    "with rescued rows without a reason": lambda vote: _rescued(vote, 1, 0),
    "with a reason of more rows than were rescued": lambda vote: _rescued(vote, 1, 2),
    "with more reasons than any batch can have": lambda vote: _rescued(vote, 1, 1, others=2**63 - 1),
    "with deletes, though its rows were to be appended": lambda vote: replace(
        vote, rows=vote.rows + 1, changed=Tally({DELETES: 1})
    ),
    "with superseded rows, though all were to be appended": lambda vote: replace(
        vote, rows=vote.rows + 1, changed=Tally({SUPERSEDED: 1})
    ),
    "with a file of keys, though its rows were to be appended": lambda vote: replace(
        vote, keys=KeysFile(vote.files[0].path.replace(".parquet", ".keys"), vote.task, vote.rows, 9, "0" * 64)
    ),
    "under no schema": lambda vote: replace(vote, schema_id=None),
    "of a task beyond the last": lambda vote: replace(vote, task=7),
    "with more rows than can be": lambda vote: replace(
        vote, rows=2**62, files=tuple(replace(file, record_count=2**62) for file in vote.files)
    ),
}


@pytest.mark.parametrize("name", BAD_VOTES)
def test_a_vote_cast_on_other_premises_fails_the_batch(lake: Lake, sink: IcebergSink, name: str) -> None:
    transaction, votes = begun(sink, lake)
    rejected(sink, transaction, [encode(votes[0]), encode(BAD_VOTES[name](votes[1]))], lake)
    assert isinstance(Stream(lake).run(1), Committed)
    assert counted(lake) == expected(0, 1)


def test_a_vote_counted_twice_fails_the_batch(lake: Lake, sink: IcebergSink) -> None:
    transaction, votes = begun(sink, lake)
    rejected(sink, transaction, [encode(vote) for vote in (*votes, votes[1])], lake)


def test_two_tasks_that_claim_one_file_fail_the_batch(lake: Lake, sink: IcebergSink) -> None:
    transaction, votes = begun(sink, lake)
    rejected(sink, transaction, [encode(votes[0]), encode(replace(votes[0], task=1))], lake)


@pytest.mark.parametrize("task", [0, 1, 99])
def test_an_empty_receipt_of_another_task_is_no_vote(lake: Lake, sink: IcebergSink, task: int) -> None:
    transaction, votes = begun(sink, lake)
    empty = replace(votes[0], task=task, rows=0, files=())
    others = {0: [empty, empty], 1: [replace(empty, task=1), empty], 99: [replace(empty, task=0), empty]}[task]
    rejected(sink, transaction, [encode(vote) for vote in others], lake)


def test_a_vote_that_found_malformed_documents_and_does_not_refuse_is_none(lake: Lake) -> None:
    aside = Quality(Tally({DEAD_LETTERS: 1}))
    vote = encode(Receipt(0, 1, (), schema_id=0, quality=aside, malformed=1))
    with pytest.raises(WriteError, match=r"found malformed documents, and did not refuse the batch"):
        count_votes([vote], lake.table(), "events-1", 1)


@pytest.mark.parametrize(("rows", "fits"), [(2, True), (0, False), (1, False), (3, False)])
def test_the_driver_votes_for_as_many_rows_as_the_tasks_left(lake: Lake, rows: int, *, fits: bool) -> None:
    table, aside = lake.table(), Quality(Tally({DEAD_LETTERS: rows}))
    task = Receipt(0, 2, (), schema_id=0, left=LeftRows("file:///left", 2, 9))
    votes = [encode(task), encode(Receipt(1, rows, (), schema_id=0, quality=aside))]
    with nullcontext() if fits else pytest.raises(WriteError, match="another number of rows than the tasks left"):
        assert count_votes(votes, table, "events-1", 1, rest=table).rows == 2


@pytest.mark.parametrize(
    ("unmet", "said"),
    [
        ([1], "1 of 9 rows of batch 7 does not meet the expectation rule_0."),
        ([2, 3], ", and one more"),
        ([2, 3, 1], ", and 2 more expectations"),
        ([2, 3, 1, 1], ", and 3 more expectations"),
    ],
)
def test_the_expectation_that_most_rows_do_not_meet_is_named_and_the_others_are_counted(
    unmet: list[int], said: str
) -> None:
    expected = [Expected(f"rule_{at}", OnUnmet.FAIL) for at in range(5)]
    quality = Quality(unmet={one.name: count for one, count in zip(expected, [*unmet, *[0] * 5], strict=False)})
    with pytest.raises(WriteError, match="EXPECTATION_UNMET") as refused:
        check_expectations([Receipt(0, 9, (), quality=quality)], expected, 7)
    assert said in refused.value.what
    assert f"rule_{unmet.index(max(unmet))}" in refused.value.what
    assert refused.value.details == tuple(f"rule_{at}: {count} row{'s'[: count - 1]}" for at, count in enumerate(unmet))


def _at(path: str) -> Change:
    return lambda file, lake: replace(file, path=path.format(data=file.path.rpartition("/")[0], root=lake.folder))


BAD_FILES: dict[str, Change] = {
    "elsewhere": _at("file:///etc/passwd"),
    "in the metadata": _at("{data}/../metadata/x.parquet"),
    "climbing within": _at("{data}/a/../x.parquet"),
    "beside the data": _at("{data}-other/x.parquet"),
    "the folder itself": _at("{data}"),
    "another scheme": _at("s3://bucket/x.parquet"),
    "relative": _at("x.parquet"),
    "with a newline": _at("{data}/x\n.parquet"),
    "with a query": _at("{data}/x.parquet?versionId=1"),
    "under another spec": lambda file, _: replace(file, spec_id=7),
    "with partition values of no field": lambda file, _: replace(file, partition=(b"\x00",)),
    "of another batch": lambda file, _: replace(file, path=file.path.replace("/events-1-", "/events-0-")),
    "of another sink": lambda file, _: replace(file, path=file.path.replace("/events-1-", "/clicks-1-")),
    "without bytes": lambda file, _: replace(file, file_size_bytes=0),
    "of a sink whose name ends alike": lambda file, _: replace(file, path=file.path.replace("/events-", "/my-events-")),
    "of another task": lambda file, _: replace(file, path=file.path.replace("-00001-", "-00000-")),
    "of no task": lambda file, _: replace(file, path=file.path.replace("-00001-", "-")),
    "below a folder that no task makes": lambda file, _: replace(
        file, path=file.path.replace("/events-", "/a/events-")
    ),
    "climbing by percents": _at("{data}/%2e%2e/%2e%2e/x.parquet"),
    "at a path of five kibibytes": lambda file, _: replace(
        file, path=file.path.replace("/events-", f"/{'a=b/' * 1_300}events-")
    ),
    "with more NULLs than values": lambda file, _: replace(file, null_value_counts={1: 10**6}),
    "with NaNs of a column without values": lambda file, _: replace(file, nan_value_counts={99: 1}),
    "with a bound of no type": lambda file, _: replace(file, lower_bounds={1: b"\0"}),
    "with a bound of no column": lambda file, _: replace(file, upper_bounds={99: b"\0" * 8}),
    "with row groups out of order": lambda file, _: replace(file, split_offsets=(400, 4)),
    "with a row group beyond its end": lambda file, _: replace(file, split_offsets=(4, file.file_size_bytes)),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_no_task_of_this_batch_can_have_written_fails_it(lake: Lake, sink: IcebergSink, name: str) -> None:
    transaction, votes = begun(sink, lake)
    bad = replace(votes[1], files=tuple(BAD_FILES[name](file, lake) for file in votes[1].files))
    rejected(sink, transaction, [encode(votes[0]), encode(bad)], lake)


def test_a_file_without_rows_fails_the_batch(lake: Lake, sink: IcebergSink) -> None:
    transaction, votes = begun(sink, lake)
    empty = replace(votes[1], rows=0, files=tuple(replace(file, record_count=0) for file in votes[1].files))
    rejected(sink, transaction, [encode(votes[0]), encode(empty)], lake)


@examples(20)
@given(junk=st.binary(max_size=50))
def test_junk_is_no_vote(lake: Lake, sink: IcebergSink, junk: bytes) -> None:
    transaction = sink.begin(Stream(lake).batch(1))
    assert isinstance(transaction, IcebergTransaction)
    rejected(sink, transaction, [junk], lake)


MALFORMED = [b"", b"\x00", b"\x00" * 30]


@pytest.mark.parametrize("value", MALFORMED, ids=repr)
def test_a_partition_value_that_is_none_of_its_type_fails_the_batch(tmp_path: Path, value: bytes) -> None:
    by_batch = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "batch"))
    lake = Lake.make(tmp_path, spec=by_batch)
    Stream(lake).run(0)
    sink = Stream(lake).sink()
    transaction, votes = begun(sink, lake)
    bad = replace(votes[1], files=tuple(replace(file, partition=(value,)) for file in votes[1].files))
    rejected(sink, transaction, [encode(votes[0]), encode(bad)], lake)


SCHEMA = Schema(
    NestedField(1, "long", LongType()),
    NestedField(2, "text", StringType()),
    NestedField(3, "fixed", FixedType(3)),
    NestedField(4, "decimal", DecimalType(9, 2)),
    NestedField(5, "bytes", BinaryType()),
    NestedField(6, "other text", StringType()),
)
BOUND = st.sampled_from(
    [b"", b"a", b"abc", b"\0" * 8, b"\0" * 16, b"x" * 17, "é".encode(), b"\xc3", b"\xa9", b"\xff", b"\0"]
)
ALL_BOUNDS = st.dictionaries(st.integers(1, 7), BOUND, max_size=4)


def _is_possible(field_id: int, bound: bytes) -> bool:
    match field_id:
        case 1:
            return len(bound) == 8
        case 2 | 6:
            return bound.decode(errors="replace").encode() == bound
        case 3:
            return len(bound) <= 3
        case 4:
            return 1 <= len(bound) <= 16
    return field_id == 5


@pytest.mark.parametrize(("field_id", "bound", "fits"), [(1, bytes(8), True), (1, b"1", False), (2, b"\xff", False)])
def test_each_bound_is_a_value_of_its_columns_type(field_id: int, bound: bytes, *, fits: bool) -> None:
    file = ContentFile("file:///a", 0, (), 1, 1, {}, {}, {}, {}, {field_id: bound}, {field_id: bound}, ())
    assert bounds_fit([file], SCHEMA) is fits


@pytest.mark.dear
@examples(200)
@given(st.lists(st.tuples(ALL_BOUNDS, ALL_BOUNDS), max_size=5))
def test_the_bounds_of_all_files_together_are_possible_if_each_is(found: list[tuple[dict[int, bytes], ...]]) -> None:
    """Halves of a character in two files are no text, although they would be one if they were joined."""
    files = [ContentFile("file:///a", 0, (), 1, 1, {}, {}, {}, {}, lower, upper, ()) for lower, upper in found]
    each = [_is_possible(*pair) for maps in found for bounds in maps for pair in bounds.items()]
    assert bounds_fit(files, SCHEMA) == all(each)


@pytest.mark.parametrize(
    ("offsets", "within"), [((), True), ((0,), True), ((4, 9), True), ((10,), False), ((4, 4), False), ((9, 4), False)]
)
def test_the_offsets_of_row_groups_ascend_within_the_file_if_they_are_told(
    offsets: tuple[int, ...], *, within: bool
) -> None:
    file = ContentFile("file:///a", 0, (), 1, 10, {}, {}, {}, {}, {}, {}, offsets)
    assert counts_agree(file) is within


@examples(120)
@given(
    *[st.dictionaries(st.integers(1, 3), st.integers(0, 2), max_size=3)] * 3, st.lists(st.integers(0, 5), max_size=3)
)
def test_counts_agree_if_no_column_has_more_nulls_or_nans_than_values(
    values: dict[int, int], nulls: dict[int, int], nans: dict[int, int], offsets: list[int]
) -> None:
    file = ContentFile("file:///a", 0, (), 1, 5, {}, values, nulls, nans, {}, {}, tuple(offsets))
    few = all(count <= values.get(field_id, 0) for each in (nulls, nans) for field_id, count in each.items())
    within = offsets == sorted(set(offsets)) and max(offsets, default=0) < 5
    assert counts_agree(file) == (few and within)


SEGMENT = st.sampled_from(
    ["a", ".", "..", "...", "", " ", "%2e%2e", "a?b", "#", "\\", "\n", "é", "\u00a0", "\u202e", "a.b"]
)


@examples(200)
@given(st.lists(st.lists(SEGMENT, min_size=1, max_size=3).map("/".join), max_size=4))
def test_paths_are_below_a_folder_if_each_is(paths: list[str]) -> None:
    each = [
        ({".", ".."}.isdisjoint(path.split("/")) and {*"?#\\\n\u202e"}.isdisjoint(path) and path.strip("/") != "")
        for path in paths
    ]
    assert all_under([f"s3://lake/data/{path}" for path in paths], "s3://lake/data") == all(each)
