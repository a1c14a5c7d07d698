from typing import Any

import pytest

from lakesink.spark.rows.arrow_limits import (
    BATCH_BYTES,
    HEADROOM,
    LEAST_MESSAGE_RECORDS,
    MAX_BYTES,
    MAX_RECORDS,
    MESSAGE_BYTES,
    MOST_RECORDS,
    MOST_UNBOUNDED_RECORDS,
    NO_BYTE_CHECK,
    UNMEASURED_RECORDS,
    ArrowBatchLimits,
    bounded_row_bytes,
    leaf_columns,
    limit_settings,
    records_per_batch,
    records_per_message,
)


def _schema(*types: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": f"c{i}", "type": type_} for i, type_ in enumerate(types)]}


NARROW = _schema("long", "double")
TEXT = _schema("long", "string")


@pytest.mark.parametrize(
    ("schema", "bounded"),
    [
        (NARROW, True),
        (_schema("decimal(38,2)", "date", "timestamp", "timestamp_ntz", "boolean", "interval day to second"), True),
        (_schema(_schema("long", "integer")), True),
        (TEXT, False),
        (_schema("binary"), False),
        (_schema("variant"), False),
        (_schema(_schema("long", "string")), False),
        (_schema({"type": "array", "elementType": "long", "containsNull": True}), False),
        (_schema({"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": True}), False),
    ],
)
def test_rows_have_a_widest_size_only_if_every_column_has(schema: dict[str, Any], bounded: bool) -> None:  # noqa: FBT001
    assert (bounded_row_bytes(schema) is not None) == bounded


@pytest.mark.parametrize(
    ("row_bytes", "widest", "expected"),
    [
        (32, 0, MOST_RECORDS),
        (16 * 1000, 0, BATCH_BYTES // 16_000),
        (2 * BATCH_BYTES, 0, 1),
        (None, 0, UNMEASURED_RECORDS),
        (None, 100, MOST_UNBOUNDED_RECORDS),
        (None, 10_000, BATCH_BYTES // (10_000 * HEADROOM)),
        (None, BATCH_BYTES, 1),
    ],
)
def test_records_a_batch_follow_the_width_of_the_rows(row_bytes: int | None, widest: int, expected: int) -> None:
    assert records_per_batch(row_bytes, widest) == expected


@pytest.mark.parametrize("widest", [1, 500, 5_000, 50_000, 1_000_000])
def test_rows_that_suddenly_widen_sixteenfold_still_fit(widest: int) -> None:
    assert records_per_batch(None, widest) * widest * HEADROOM <= max(BATCH_BYTES, widest * HEADROOM)


def test_the_columns_of_a_batch_are_those_with_values() -> None:
    lists = {"type": "array", "elementType": _schema("long", "string"), "containsNull": True}
    maps = {"type": "map", "keyType": "string", "valueType": lists, "valueContainsNull": True}
    assert [leaf_columns(_schema(*kinds)) for kinds in (("long", "string"), (lists,), (maps, "long"))] == [2, 2, 4]


@pytest.mark.parametrize(
    ("records", "columns", "row_bytes", "expected"),
    [
        (8192, 13, 150, MESSAGE_BYTES // 150),
        (8192, 13, 0, 8192),
        (20, 13, 150, 20),
        (8192, 1, 1_000_000, LEAST_MESSAGE_RECORDS),
        (8192, 100, 800, 8192),
    ],
    ids=["narrow", "not measured", "as few as are safe", "one wide row was measured", "many columns"],
)
def test_a_message_from_a_plan_stays_small_for_the_heap(
    records: int, columns: int, row_bytes: int, expected: int
) -> None:
    assert records_per_message(records, columns, row_bytes) == expected


@pytest.mark.parametrize(
    ("user_bytes", "user_records", "expected"),
    [
        (None, None, {MAX_BYTES: NO_BYTE_CHECK, MAX_RECORDS: "500"}),
        ("1m", None, {}),
        ("1m", "5", {}),
        (None, "500", {MAX_BYTES: NO_BYTE_CHECK}),
        (None, "501", {}),
        (None, "0", {}),
        (None, "-1", {}),
    ],
)
def test_what_the_user_set_is_never_overridden(
    user_bytes: str | None, user_records: str | None, expected: dict[str, str]
) -> None:
    assert limit_settings(user_bytes, user_records, 500) == expected


class Conf:
    """The session's configuration as a dictionary that counts."""

    def __init__(self, **values: str) -> None:
        self.values = dict(values)
        self.changes = 0

    def get(self, key: str, default: str | None) -> str | None:
        return self.values.get(key, default)

    def set(self, key: str, value: str) -> None:
        self.values[key] = value
        self.changes += 1

    def unset(self, key: str) -> None:
        del self.values[key]


def test_settings_are_changed_only_when_the_rows_have_changed() -> None:
    conf = Conf()
    limits = ArrowBatchLimits(conf, TEXT)
    for widest in (100, 120, 90):
        limits.apply()
        limits.record_width(widest)
    assert conf.values == {MAX_BYTES: NO_BYTE_CHECK, MAX_RECORDS: str(MOST_UNBOUNDED_RECORDS)}
    assert conf.changes == 3  # both at first, then the records once the width was known


def test_restoring_leaves_the_session_as_it_was() -> None:
    conf = Conf(**{MAX_RECORDS: "10"})
    limits = ArrowBatchLimits(conf, NARROW)
    limits.apply()
    assert conf.values == {MAX_RECORDS: "10", MAX_BYTES: NO_BYTE_CHECK}
    limits.restore()
    assert conf.values == {MAX_RECORDS: "10"}


def test_functions_of_the_streams_own_keep_the_users_settings() -> None:
    conf = Conf()
    limits = ArrowBatchLimits(conf, NARROW, with_functions=True)
    limits.apply()
    assert conf.changes == 0


def test_only_the_number_of_rows_is_bounded_for_a_plan_and_only_meanwhile() -> None:
    conf = Conf(**{MAX_RECORDS: "100000"})
    limits = ArrowBatchLimits(conf, TEXT)
    assert not limits.can_limit_by_rows  # the user wants more rows than are safe: Spark is to look at the bytes
    conf = Conf()
    limits = ArrowBatchLimits(conf, TEXT)
    with limits.limit_records():
        assert conf.values == {MAX_RECORDS: str(UNMEASURED_RECORDS)}
    limits.record_width(100)
    with limits.limit_records():
        assert conf.values == {MAX_RECORDS: str(MESSAGE_BYTES // 100)}
    assert conf.values == {}
