"""Which keys of documents become columns, which cannot and why, and which columns follow wider or missing values."""

from collections.abc import Mapping
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, FloatType, IntegerType, ListType, LongType, NestedField, StringType, StructType

from lakesink.decode.news import News
from lakesink.settings.option_types import Deletes, SchemaEvolution
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.document_evolution import Followed, follow_documents
from lakesink_protocol.change import SchemaChange
from lakesink_protocol.errors import WriteError
from lakesink_protocol.receipt import Receipt
from testkit.tasks import spec_of, table_in_memory

BEFORE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "Name", StringType(), required=True),
    NestedField(3, "old", IntegerType()),
    NestedField(4, "s", StructType(NestedField(8, "a", IntegerType(), required=True))),
    NestedField(5, "f", FloatType()),
    NestedField(6, "l", ListType(9, IntegerType())),
    NestedField(7, "d", DecimalType(9, 2), required=True),
    identifier_field_ids=[1],
)
CASE = "another key or column differs from it only in case"
LIMIT = "a batch can add 2 columns (max_new_columns)"
NO_STRUCT = "the table has no STRUCT for it"
LEVELS = "a column can have at most 20 levels"
TWO = {"struct": {"a": "whole", "b": "text"}}


def table() -> Table:
    """The column ``n`` was once called ``old``, and the table is partitioned by ``f``."""
    found = table_in_memory(BEFORE, spec_of("identity", source_ids=[5]))
    [first] = found.metadata.schemas
    fields = [one.model_copy(update={"name": "n"}) if one.name == "old" else one for one in first.fields]
    renamed = Schema(*fields, schema_id=1, identifier_field_ids=[1])
    found.metadata = found.metadata.model_copy(update={"schemas": [first, renamed], "current_schema_id": 1})
    return found


def followed(*news: News, evolution: SchemaEvolution = SchemaEvolution.ADD, **options: Any) -> Followed:
    receipts = [Receipt(task, 1, (), news=one.to_json()) for task, one in enumerate(news)]
    return follow_documents(receipts, table(), Settings(schema_evolution=evolution, **options))


def place(text: str) -> tuple[str, ...]:
    return tuple(text.split("."))


@pytest.mark.parametrize(
    ("keys", "added", "refused"),
    [
        ({"new": "whole"}, ["new"], {}),
        ({"new": "whole", "also": "text"}, ["also", "new"], {}),
        ({"n": "whole", "s.a": "whole"}, [], {}),
        ({"s.b": "whole"}, ["s.b"], {}),
        ({"N": "whole"}, [], {"N": CASE}),
        ({"s.A": "whole"}, [], {"s.A": CASE}),
        ({"x": "whole", "X": "text"}, [], {"x": CASE, "X": CASE}),
        ({"x": "whole", "s.X": "text"}, ["s.X", "x"], {}),
        ({"old": "whole"}, [], {"old": "the table's column n had this name before it was renamed"}),
        ({"OLD": "whole"}, [], {"OLD": "the table's column n had this name before it was renamed"}),
        ({"s.old": "whole"}, ["s.old"], {}),
        ({"_kafka_x": "whole"}, [], {"_kafka_x": "names that begin with _kafka_ are reserved"}),
        ({"_LakeSink_x": "whole"}, [], {"_LakeSink_x": "names that begin with _lakesink_ are reserved"}),
        ({"s._kafka_x": "whole", "x_kafka_": "text"}, ["s._kafka_x", "x_kafka_"], {}),
        ({"_pos": "whole"}, [], {"_pos": "has a name that Iceberg reserves"}),
        ({"s._pos": "whole"}, ["s._pos"], {}),
        ({"n.x": "whole"}, [], {"n.x": NO_STRUCT}),
        ({"none.x": "whole"}, [], {"none.x": NO_STRUCT}),
        ({"l.element": "whole"}, [], {}),
        ({"l.element.x": "whole"}, [], {"l.element.x": NO_STRUCT}),
        ({"k": "none"}, [], {"k": "no type holds all of its values"}),
        ({"k": {"struct": {"a": "whole", "b": "none"}}}, ["k"], {"k.b": "no type holds all of its values"}),
        ({"k": {"list": "waits"}, "m": "waits"}, [], {}),
        ({"K": {"list": "waits"}, "k": "whole"}, ["k"], {}),
        ({"k": {"struct": {" ": "whole"}}}, [], {"k": "column 'k' has an empty name"}),
        ({"k\n": "whole"}, [], {"k\n": "its name has characters that are not printable"}),
        ({"k": {"list": {"struct": {"a\n": "whole"}}}}, [], {"k": "its name has characters that are not printable"}),
    ],
)
def test_a_key_becomes_a_column_or_there_is_a_reason(
    keys: Mapping[str, Any], added: list[str], refused: Mapping[str, str]
) -> None:
    found = followed(News({place(key): kind for key, kind in keys.items()}))
    assert [".".join(one.column) for one in found.change.added] == added
    assert {".".join(key): why for key, why in found.refused.items()} == refused


@pytest.mark.parametrize(
    ("kinds", "added", "refused"),
    [
        (["whole", "text"], ["a", "b"], []),
        (["whole", "text", "text"], ["a", "b"], ["c"]),
        ([TWO], ["a"], []),
        ([TWO, "whole"], ["a"], ["b"]),
        (["whole", TWO, "text"], ["a", "c"], ["b"]),
        ([{"map": "whole"}], ["a"], []),
        ([{"map": TWO}, "whole"], ["b"], ["a"]),
        (["none", "whole", "whole"], ["b", "c"], []),
    ],
)
def test_a_batch_adds_so_many_leaves_in_the_order_of_the_keys(
    kinds: list[Any], added: list[str], refused: list[str]
) -> None:
    found = followed(News({(name,): kind for name, kind in zip("abc", kinds, strict=False)}), max_new_columns=2)
    assert [one.column[0] for one in found.change.added] == added
    assert [key[0] for key, why in found.refused.items() if why == LIMIT] == refused
    settings = Settings(max_new_columns=2)
    assert found.refused_for_good(settings) == [key for key in found.refused if key[0] not in refused]


@pytest.mark.parametrize(
    ("depth", "kind", "why"),
    [
        (20, "whole", NO_STRUCT),
        (21, "whole", LEVELS),
        (19, {"list": "whole"}, NO_STRUCT),
        (20, {"list": "whole"}, LEVELS),
        (18, {"struct": {"a": "whole", "b": {"list": "whole"}}}, NO_STRUCT),
        (19, {"struct": {"a": {"list": "whole"}, "b": "whole"}}, LEVELS),
    ],
)
def test_a_column_has_twenty_levels_at_most(depth: int, kind: Any, why: str) -> None:
    assert [*followed(News({("x",) * depth: kind})).refused.values()] == [why]


@pytest.mark.parametrize(
    ("key", "options", "why"),
    [
        ("_r", {"rescue_column": "_r"}, "it is the name of the rescue column"),
        ("_R", {"rescue_column": "_r"}, CASE),
        ("s._r", {"rescue_column": "_r"}, None),
        ("_r", {}, None),
        ("", {}, "its name is empty"),
        ("_is_deleted", {"deletes": Deletes.SOFT}, "deletes='soft' fills the column of this name itself"),
        ("_is_deleted", {}, None),
        ("s._is_deleted", {"deletes": Deletes.SOFT}, None),
        ("other", {"deletes": Deletes.SOFT}, None),
    ],
)
def test_columns_that_lakesink_fills_itself_come_from_no_document(
    key: str, options: dict[str, Any], why: str | None
) -> None:
    assert followed(News({place(key): "whole"}), **options).refused.get(place(key)) == why


def test_the_news_of_all_tasks_are_followed_together() -> None:
    found = followed(News({("x",): "whole", ("y",): "text"}), News(), News({("x",): "fraction", ("b",): "truth"}))
    assert [(one.column, one.type_json) for one in found.change.added] == [
        (("b",), '"boolean"'),
        (("x",), '"double"'),
        (("y",), '"string"'),
    ]


def test_more_keys_than_a_table_can_have_are_values() -> None:
    found = followed(News(has_too_many=True))
    assert found.change == SchemaChange()
    assert found.refused == {("more than 10,000 new keys",): "so many keys are rather values"}


def test_news_that_no_task_writes_are_refused() -> None:
    with pytest.raises(WriteError, match="LAKESINK_RECEIPT_REJECTED"):
        follow_documents([Receipt(0, 1, (), news="junk")], table(), Settings())


WIDER = {"n": "long", "s.a": "long", "d": "decimal(11, 2)", "l.element": "long"}
KEPT = {"f": "double", "Name": "long", "gone": "long"}
"""The source of a partition field, a column of another type, and none."""
LACKED = {"id", "Name", "n", "s.a", "d", "gone"}


@pytest.mark.parametrize("evolution", [SchemaEvolution.FAIL, SchemaEvolution.WIDEN, SchemaEvolution.ADD])
def test_columns_become_wider_and_optional_where_iceberg_can_and_the_settings_say_so(
    evolution: SchemaEvolution,
) -> None:
    news = News(widened={place(key): name for key, name in (WIDER | KEPT).items()}, optional=set(map(place, LACKED)))
    change = followed(news, evolution=evolution).change
    widened = {".".join(one.column): one.type_json for one in change.widened}
    only_adds = evolution is SchemaEvolution.ADD
    assert widened == ({} if only_adds else {key: f'"{name}"' for key, name in WIDER.items()})
    assert change.optional == (() if only_adds else (("Name",), ("d",), ("s", "a")))
    assert [one.column for one in change.widened] == sorted(one.column for one in change.widened)
