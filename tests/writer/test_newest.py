"""Of the changes of one key, a task keeps the newest, or refuses; however its rows were split into batches."""

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink.keys import newest
from lakesink.keys.change_order import same_rows
from lakesink.rows.changed_rows import ChangedRows
from lakesink_protocol.errors import WriteError
from lakesink_protocol.row_changes import Operation
from testkit.examples import examples
from testkit.tasks import exactly, in_batches
from tests.writer.changes import KEYS, SEQUENCES, Change, Kinds, newest_by_dictionary
from tests.writer.random_tables import ROW, Case, cases

POSITIONS = st.one_of(st.just((None, None)), st.tuples(st.integers(0, 1), st.integers(0, 3)))
LONG = KEYS["long"]
ONE_KEY = Kinds((LONG,), (LONG,))


def upsert(key: int, sequence: int | None, payload: int = 0, place: int | None = None, offset: int = 0) -> Change:
    found = () if sequence is None else (sequence,)
    return Change((key,), found, Operation.UPSERT, place, None if place is None else offset, payload)


def delete(key: int, sequence: int | None, place: int | None = None, offset: int = 0) -> Change:
    found = () if sequence is None else (sequence,)
    return Change((key,), found, Operation.DELETE, place, None if place is None else offset, None)


def made(
    key: tuple[int, ...],
    sequence: tuple[int, ...],
    operation: Operation,
    position: tuple[int | None, int | None],
    payload: int | None,
) -> Change:
    return Change(key, sequence, operation, *position, None if operation is Operation.DELETE else payload)


@st.composite
def batches_of(draw: st.DrawFn, kinds: Kinds) -> list[list[Change]]:
    """Changes of few keys, sequences and payloads, in batches."""

    def change() -> st.SearchStrategy[Change]:
        operation = st.sampled_from([Operation.UPSERT, Operation.UPSERT, Operation.DELETE, Operation.SNAPSHOT])
        key = st.tuples(*(st.integers(0, len(values) - 1) for values in kinds.keys))
        sequence = st.tuples(*(st.integers(0, len(values) - 1) for values in kinds.sequence))
        parts = st.tuples(key, sequence, operation, POSITIONS, st.sampled_from([None, 0, 1]))
        return parts.map(lambda found: made(*found))

    return draw(st.lists(st.lists(change(), max_size=8), max_size=6))


def check(kinds: Kinds, batches: Sequence[Sequence[Change]]) -> None:
    changes = [change for batch in batches for change in batch]
    expected = newest_by_dictionary(changes, has_sequence=bool(kinds.sequence))
    if isinstance(expected, str):
        with pytest.raises(WriteError) as error:
            kinds.newest(batches)
        assert error.value.code == expected
        return
    found, superseded = kinds.newest(batches)
    assert found == expected
    assert superseded == len(changes) - len(expected)


@pytest.fixture(params=[1, 2**40], ids=["compacted", "at once"])
def compaction(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "SMALLEST_COMPACTION", request.param)


@pytest.mark.usefixtures("compaction")
@pytest.mark.parametrize("name", KEYS)
@examples(12)
@given(data=st.data())
def test_keys_of_every_type_are_told_apart_as_by_a_dictionary(name: str, data: st.DataObject) -> None:
    kinds = Kinds((KEYS[name],), (LONG,))
    check(kinds, data.draw(batches_of(kinds)))


@pytest.mark.usefixtures("compaction")
@pytest.mark.parametrize("name", SEQUENCES)
@examples(12)
@given(data=st.data())
def test_sequences_of_every_type_are_compared_by_their_values(name: str, data: st.DataObject) -> None:
    kinds = Kinds((KEYS["boolean"],), (SEQUENCES[name],))
    check(kinds, data.draw(batches_of(kinds)))


@pytest.mark.usefixtures("compaction")
@examples(25)
@given(data=st.data())
def test_keys_and_sequences_of_several_columns_compare_in_order(data: st.DataObject) -> None:
    kinds = Kinds((KEYS["string"], KEYS["boolean"]), (SEQUENCES["date"], SEQUENCES["string"]))
    check(kinds, data.draw(batches_of(kinds)))


@pytest.mark.usefixtures("compaction")
@examples(30)
@given(data=st.data())
def test_without_a_sequence_only_offsets_of_one_place_order_changes(data: st.DataObject) -> None:
    kinds = Kinds((KEYS["boolean"],), ())
    check(kinds, data.draw(batches_of(kinds)))


@examples(25)
@given(data=st.data(), size=st.integers(1, 5), smallest=st.sampled_from([1, 200, 2**40]))
def test_how_rows_are_split_into_batches_changes_nothing(
    data: st.DataObject, size: int, smallest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = data.draw(batches_of(ONE_KEY))
    changes = [change for batch in batches for change in batch]
    monkeypatch.setattr(newest, "SMALLEST_COMPACTION", smallest)
    check(ONE_KEY, [changes[at : at + size] for at in range(0, len(changes), size)])
    check(ONE_KEY, [changes])
    check(ONE_KEY, [[change] for change in reversed(changes)])


def test_many_keys_are_told_apart() -> None:
    keys = pa.array([number * 7_919 % 1_000_003 for number in range(200_000)], pa.int64())
    kinds = Kinds((keys,), (LONG,))
    changes = [upsert(number % 150_000, number // 150_000) for number in range(200_000)]
    found, superseded = kinds.newest([changes[at : at + 10_000] for at in range(0, 200_000, 10_000)])
    assert found == {*changes[50_000:150_000], *changes[150_000:]}
    assert superseded == 50_000


def test_a_tie_below_a_greater_sequence_is_none() -> None:
    kept = upsert(0, 3)
    assert ONE_KEY.newest([[upsert(0, 2, 1)], [upsert(0, 2, 2), kept], [delete(0, 2)]]) == ({kept}, 3)


@pytest.mark.parametrize("other", [upsert(0, 2, 2), delete(0, 2)], ids=["rows", "operations"])
def test_a_tie_names_its_columns_and_counts_keys_but_shows_no_value(other: Change) -> None:
    with pytest.raises(WriteError) as error:
        ONE_KEY.newest([[upsert(0, 2, 1), upsert(1, 2, 77_777)], [other, upsert(1, 2, 88_888), upsert(2, 0)]])
    assert error.value.code == "LAKESINK_SEQUENCE_TIED"
    assert "2 keys" in error.value.what
    assert "sequence (s0)" in error.value.what
    assert "8888" not in str(error.value)
    assert "7777" not in str(error.value)


def test_equal_rows_of_one_sequence_are_one_change() -> None:
    assert ONE_KEY.newest([[upsert(0, 2, 1)], [upsert(0, 2, 1)], [upsert(0, 2, 1)]]) == ({upsert(0, 2, 1)}, 2)
    assert ONE_KEY.newest([[delete(0, 2)], [delete(0, 2)]]) == ({delete(0, 2)}, 1)


def test_equal_rows_are_a_repeated_key_if_nothing_orders_them() -> None:
    kinds = Kinds((LONG,), ())
    with pytest.raises(WriteError) as error:
        kinds.newest([[upsert(0, None, 1)], [upsert(0, None, 1)]])
    assert error.value.code == "LAKESINK_KEY_TWICE"
    assert "1 key (k0) came more than once" in error.value.what
    assert "also of equal rows" in str(error.value)


@pytest.mark.parametrize("more", [[], [upsert(1, None)]], ids=["alone", "beside one of an unknown place"])
def test_an_undecided_pair_of_partitions_is_named_by_its_offset(more: list[Change]) -> None:
    kinds = Kinds((LONG,), ())
    with pytest.raises(WriteError) as error:
        kinds.newest([[upsert(0, None, 1, 3, 17), *more], [upsert(0, None, 1, 4, 20), *more]])
    assert error.value.code == "LAKESINK_KEY_TWICE"
    assert "One of them is at partition 3, offset 17." in error.value.what


def test_memory_grows_with_the_keys_and_not_with_the_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "SMALLEST_COMPACTION", 100_000)
    held = newest.NewestChanges(ONE_KEY.columns)
    before = pa.total_allocated_bytes()
    sequence = pa.array(range(1_000_000), pa.int64())
    for start in range(0, 1_000_000, 10_000):
        rows = pa.RecordBatch.from_arrays(
            [pa.array([number % 100 for number in range(10_000)], pa.int64()), sequence.slice(start, 10_000)],
            names=["k0", "s0"],
        )
        unknown = pa.nulls(10_000, pa.int64())
        held.store(ChangedRows(rows, pa.repeat(pa.scalar(0, pa.int8()), 10_000), unknown, unknown))
        assert pa.total_allocated_bytes() - before < 8_000_000 + 2_000_000
    [stored], [] = held.taken()
    assert stored.rows.column("s0").to_pylist() == list(range(999_900, 1_000_000))
    assert held.left_out == 999_900


def test_what_is_kept_is_joined_to_batches_that_reach_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = Kinds((pa.arange(0, 56),), (LONG,))
    batches = [[upsert(key, 1) for key in range(start, start + 8)] for start in range(0, 56, 8)]
    held = [kinds.changed_rows(batch, payload=True) for batch in batches]
    monkeypatch.setattr(newest, "_JOINED_BYTES", 2 * held[0].nbytes + 1)
    kept = newest._filtered(held, pa.repeat(pa.scalar(value=True), 56))  # noqa: SLF001
    assert [changes.rows.column("k0").to_pylist() for changes in kept] == [
        list(range(24)),
        list(range(24, 48)),
        list(range(48, 56)),
    ]


@examples(30)
@given(case=cases(partitioned=False), seed=st.randoms(use_true_random=False))
def test_rows_are_the_same_if_every_value_has_the_same_bits(case: Case, seed: random.Random) -> None:
    """Rows of every type, nested, beside others of the same batch: some columns are equal and some are not."""
    rows = in_batches(case.arrow, 1_000)[0].drop_columns([ROW])
    order = pa.array([seed.randrange(rows.num_rows) for _ in range(rows.num_rows)], pa.int64())
    others = rows.take(order)
    expected = [
        exactly(list(one.values())) == exactly(list(other.values()))
        for one, other in zip(rows.to_pylist(), others.to_pylist(), strict=True)
    ]
    for some, counterparts in ((rows, others), (others, rows)):
        assert same_rows(some.columns, counterparts.columns).to_pylist() == expected
    assert same_rows(rows.slice(1).columns, others.slice(1).columns).to_pylist() == expected[1:]


@pytest.mark.parametrize(
    ("kind", "some", "others"),
    [
        (pa.float64(), [0.0, math.nan, None, 1.0, math.inf], [-0.0, math.nan, None, None, math.inf]),
        (pa.list_(pa.int64()), [[], None, [1], [1, None], [1, 2]], [None, None, [1], [1, None], [2, 1]]),
        (pa.string(), ["a", "a\0", "", None, "é"], ["a", "a", None, None, "e\u0301"]),
        (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal(0)], [Decimal("9" * 37 + "8"), Decimal(0)]),
        (pa.struct([("a", pa.int64())]), [{"a": None}, None, {"a": 1}], [None, None, {"a": 1}]),
        (
            pa.map_(pa.string(), pa.float32()),
            [[("a", 0.0)], [], [("a", math.nan)]],
            [[("a", -0.0)], None, [("a", math.nan)]],
        ),
    ],
    ids=["double", "list", "string", "decimal", "struct", "map"],
)
def test_values_that_are_almost_equal_are_not_the_same(kind: pa.DataType, some: list[Any], others: list[Any]) -> None:
    found = same_rows([pa.array(some, kind)], [pa.array(others, kind)]).to_pylist()
    assert found == [exactly(one) == exactly(other) for one, other in zip(some, others, strict=True)]
    assert {True, False} == set(found)
