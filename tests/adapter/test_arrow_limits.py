from typing import Any

import pytest

from lakesink.spark.rows.arrow_limits import (
    BATCH_BYTES,
    LEAST_CHUNK_BYTES,
    MAX_BYTES,
    MAX_RECORDS,
    MESSAGE_BYTES,
    MOST_RECORDS,
    NO_BYTE_CHECK,
    ArrowBatchLimits,
    bounded_row_bytes,
    leaf_columns,
    limit_settings,
    message_bytes,
    message_records,
    records_per_batch,
)


def _schema(*types: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": f"c{i}", "type": type_} for i, type_ in enumerate(types)]}


NARROW = _schema("long", "double")
TEXT = _schema("long", "string")
ROW = BATCH_BYTES // 500


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
    ("row_bytes", "expected"), [(32, MOST_RECORDS), (16 * 1000, BATCH_BYTES // 16_000), (2 * BATCH_BYTES, 1)]
)
def test_records_a_batch_follow_the_width_of_the_rows(row_bytes: int, expected: int) -> None:
    assert records_per_batch(row_bytes) == expected


def test_the_columns_of_a_batch_are_those_with_values() -> None:
    lists = {"type": "array", "elementType": _schema("long", "string"), "containsNull": True}
    maps = {"type": "map", "keyType": "string", "valueType": lists, "valueContainsNull": True}
    assert [leaf_columns(_schema(*kinds)) for kinds in (("long", "string"), (lists,), (maps, "long"))] == [2, 2, 4]


@pytest.mark.parametrize(
    ("columns", "most", "expected"),
    [(13, BATCH_BYTES, MESSAGE_BYTES), (100, BATCH_BYTES, 100 * LEAST_CHUNK_BYTES), (100, 5000, 5000)],
    ids=["usual", "many columns", "the user's bound"],
)
def test_a_message_from_a_plan_stays_small_for_the_heap(columns: int, most: int, expected: int) -> None:
    assert message_bytes(_schema(*["long"] * columns), most) == expected


@pytest.mark.parametrize(("most", "expected"), [(10_000, 1677), (5, 5), (0, 1677), (-1, 1677)])
def test_rows_of_null_structs_are_counted_because_they_have_no_bytes(most: int, expected: int) -> None:
    assert message_records(_schema(_schema(*["string"] * 2500)), most) == expected


@pytest.mark.parametrize(
    ("user_bytes", "user_records", "row_bytes", "expected"),
    [
        (None, None, ROW, {MAX_BYTES: NO_BYTE_CHECK, MAX_RECORDS: "500"}),
        (None, None, None, {}),
        ("1m", None, ROW, {}),
        ("1m", "5", ROW, {}),
        (None, "500", ROW, {MAX_BYTES: NO_BYTE_CHECK}),
        (None, "5", None, {}),
        (None, "501", ROW, {}),
        (None, "0", ROW, {}),
        (None, "-1", ROW, {}),
    ],
)
def test_the_bound_on_bytes_is_replaced_only_where_rows_bound_them_and_the_user_set_nothing(
    user_bytes: str | None, user_records: str | None, row_bytes: int | None, expected: dict[str, str]
) -> None:
    assert limit_settings(user_bytes, user_records, row_bytes) == expected


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


def test_settings_are_changed_once() -> None:
    conf = Conf()
    limits = ArrowBatchLimits(conf, NARROW)
    limits.apply()
    limits.apply()
    assert conf.values == {MAX_BYTES: NO_BYTE_CHECK, MAX_RECORDS: str(MOST_RECORDS)}
    assert conf.changes == 2


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
