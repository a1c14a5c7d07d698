"""The names of the key columns are a part of what a topic has: other names, or keys of several rows, are refused."""

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakesink.read.position import Position
from lakesink.read.steps import SinkBatches
from lakesink_protocol.errors import SettingsError
from lakesink_tools.operate.outbox.position import (
    LONGEST_KEY_BYTES,
    Outbox,
    Progress,
    check_same_key,
    check_unique,
    key_names,
)

OUTBOX = Outbox("orders-out", "shop.orders", SinkBatches("orders", "main"))
POSITION = Position("shop.orders", "uuid", "main", "orders", "query", 3, "f" * 32, "", 77, 4)


def schema(names: dict[int, str], *key: int) -> Schema:
    fields = [NestedField(number, name, LongType(), required=number in key) for number, name in names.items()]
    return Schema(*fields, identifier_field_ids=list(key))


def refusal(check: Any, *arguments: Any) -> str:
    with pytest.raises(SettingsError) as refused:
        check(*arguments)
    assert refused.value.code == "LAKESINK_OUTBOX_KEY"
    return f"{refused.value.what} {refused.value.action}"


def test_a_key_has_the_names_that_its_columns_had_in_the_batch() -> None:
    then, now = schema({1: "id", 2: "part", 3: "note"}, 1), schema({1: "ident", 2: "part", 3: "id"}, 2, 1)
    assert key_names(then, now, None) == ("id", "part")
    assert key_names(now, now, None) == ("ident", "part")
    assert key_names(then, now, ["ident", "part"]) == ("id", "part")
    assert key_names(then, now, ["id"]) == ("note",), "a present name says which column is meant"
    assert key_names(then, now, ["note"]) == ("note",), "a name that only the batch has"
    assert key_names(then, now, ["part", "part"]) == ("part",)
    assert key_names(then, schema({1: "ident", 4: "new"}, 4), None) == ("new",), "the batch has no such column"


def test_a_key_with_other_names_than_those_in_the_topic_is_refused() -> None:
    for known in (None, Progress(POSITION, ("id", "part"))):
        check_same_key(("id", "part"), known, "batch 4")
    for key in (("part", "id"), ("ident", "part"), ("id",), ()):
        assert "(id, part)" in refusal(check_same_key, key, Progress(POSITION, ("id", "part")), "batch 4")
    assert "(none)" in refusal(check_same_key, ("id",), Progress(POSITION, ()), "batch 4")


def test_names_of_a_key_that_the_ledger_has_no_room_for_are_refused() -> None:
    assert "longer" in refusal(check_same_key, ("x" * LONGEST_KEY_BYTES,), None, "batch 0")


def test_a_batch_that_deleted_rows_needs_a_key_that_each_row_has_alone() -> None:
    keyed, bare = schema({1: "id", 2: "part"}, 1), schema({1: "id", 2: "part"})
    check_unique(("id",), keyed, (), OUTBOX, 4)
    check_unique(("part", "id"), keyed, (), OUTBOX, 4)
    check_unique(("id",), bare, (1,), OUTBOX, 4)
    assert "(id)" in refusal(check_unique, ("part",), keyed, (), OUTBOX, 4)
    assert "(id, part)" in refusal(check_unique, ("id",), keyed, (1, 2), OUTBOX, 4)
    assert "--key id" in refusal(check_unique, (), keyed, (), OUTBOX, 4)
    assert "identifier fields" in refusal(check_unique, ("part",), bare, (), OUTBOX, 4)
