"""What documents bring: the kinds of new keys, and wider types, whatever the order and the split of the documents."""

import json
import math
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink.decode.json_values import JsonReader
from lakesink.decode.news import MOST_KEYS, News, NewsFinder, all_news, news_from
from lakesink.decode.value_kinds import (
    DEEPEST,
    MOST_MEMBERS,
    NONE,
    WAITS,
    arrow_of,
    check_kind,
    kind_of,
    leaves_of,
    merged,
)
from lakesink.rows.plan import NewsPlan
from lakesink.rows.schema import Field, ListOf, Primitive, Struct, Type

READER = JsonReader()
NUMBERS = st.one_of(
    st.integers(-(2**65), 2**65),
    st.sampled_from([2**53, -(2**53), 2**53 + 1, 2**63 - 1, -(2**63), 2**63]),
    st.floats(allow_nan=False, allow_infinity=False),
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.lists(st.dictionaries(st.sampled_from(["id", "k", "l", "K"]), VALUES, max_size=4), max_size=6)
KNOWN = Struct((Field(1, "id", required=True, type=Primitive("int")),))


def news(documents: list[Any], struct: Struct = KNOWN, *, widens: bool = True) -> News:
    found = News()
    for document in documents:
        of_document = NewsFinder(struct, NewsPlan(widens)).of(json.dumps(document))
        if of_document:  # others are not left
            found.include(of_document)
    return found


@given(DOCUMENTS, st.randoms(use_true_random=False), st.integers(1, 4))
def test_the_news_do_not_depend_on_the_order_or_the_split_of_the_documents(
    documents: list[Any], chance: Any, parts: int
) -> None:
    shuffled = chance.sample(documents, len(documents))
    cuts = [0, *sorted(chance.choices(range(len(documents) + 1), k=parts - 1)), len(documents)]
    of_tasks = [news(shuffled[begin:end]).to_json() for begin, end in pairwise(cuts)]
    assert all_news(of_tasks).to_json() == news(documents).to_json()


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_a_column_of_the_kind_of_all_values_holds_each_of_them_exactly(values: list[Any]) -> None:
    kind: Any = WAITS
    for value in values:
        kind = merged(kind, kind_of(json.dumps(value)))
    arrow = arrow_of(kind)
    if arrow is None or not complete(kind):
        return
    struct = Struct((Field(1, "c", required=False, type=type_of(arrow)),))
    texts = [json.dumps({"c": value}) for value in values]
    parsed = READER.documents(pa.array(texts, pa.string()).cast(pa.binary()), struct)
    assert parsed.misfits is None
    found = [row["c"] for row in parsed.values.to_pylist()]
    assert [same_shape(value, arrow) for value in values] == found


def complete(kind: Any) -> bool:
    """No part of the values waits for a type, or has none."""
    if isinstance(kind, str):
        return kind not in (NONE, WAITS)
    if "list" in kind:
        return complete(kind["list"])
    return bool(kind["struct"]) and all(map(complete, kind["struct"].values()))


def same_shape(value: Any, kind: pa.DataType) -> Any:
    """The value as Arrow returns it: missing members are NULL, and numbers of doubles are doubles."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: same_shape(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [same_shape(item, kind.value_type) for item in value]
    if kind == pa.float64():
        assert float(value) == value  # no whole number lost digits
        return float(value)
    return value


def type_of(kind: pa.DataType) -> Type:
    if pa.types.is_struct(kind):
        return Struct(tuple(Field(9, field.name, required=False, type=type_of(field.type)) for field in kind))
    if pa.types.is_list(kind):
        return ListOf(Field(9, "element", required=False, type=type_of(kind.value_type)))
    return Primitive({pa.int64(): "long", pa.float64(): "double", pa.bool_(): "boolean", pa.string(): "string"}[kind])


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "2.5"], pa.float64()),
        (["9007199254740992", "0.5"], pa.float64()),
        (["9007199254740993", "0.5"], None),
        (["9223372036854775807", "-9223372036854775808"], pa.int64()),
        (["9223372036854775808"], None),
        (["1" + "0" * 5000], None),
        (["1e400"], None),
        (["NaN"], None),
        (["true", "1"], None),
        (['"1"', "1"], None),
        (['"2026-01-01"'], pa.string()),
        (["null", "[]", "{}"], None),
        (["null", "1"], pa.int64()),
        (["[]", "[1]", "[null]"], pa.list_(pa.int64())),
        (['{"a": 1}', '{"b": "x"}'], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        (['{"a": 1, "b": 1}', '{"b": "x"}'], pa.struct([("a", pa.int64())])),
        (['{"a": 1, "a": "x"}'], pa.struct([("a", pa.int64())])),
        (['{"a": 1}', "[1]"], None),
        (["[]", '"x"'], None),
        (["[[], 1]"], None),
        (["{}", '{"a": []}'], None),
        (["[" * (DEEPEST + 1) + "1" + "]" * (DEEPEST + 1)], None),
        ([json.dumps(dict.fromkeys(map(str, range(MOST_MEMBERS + 1)), 1))], None),
    ],
)
def test_kinds_of_values_follow_the_written_rule(texts: list[str], kind: pa.DataType | None) -> None:
    found: Any = WAITS
    for text in texts:
        found = merged(found, kind_of(text))
    assert arrow_of(found) == kind
    assert check_kind(json.loads(json.dumps(found))) == found


def test_a_batch_with_very_many_new_keys_has_too_many_in_any_split() -> None:
    many = [{"id": 1, f"k{number}": number} for number in range(MOST_KEYS + 1)]
    assert not news(many[:-1]).has_too_many
    whole, parts = news(many), all_news([news(many[:7]).to_json(), news(many[7:]).to_json()])
    assert whole.has_too_many
    assert whole.to_json() == parts.to_json() == all_news([whole.to_json()]).to_json()
    assert leaves_of(kind_of('{"a": 1, "b": [{"c": 1}]}')) == 2


def test_keys_that_are_null_take_no_place_from_others() -> None:
    nulls = {f"a{number:03d}": None for number in range(200)}
    found = news([{"id": 1, "z": 0.5}, {"id": 2, **nulls, "z": 2**53 + 1}])
    assert found.added == {("z",): NONE}


INT, FLOAT, DECIMAL = Primitive("int"), Primitive("float"), Primitive("decimal(5, 2)")


@pytest.mark.parametrize(
    ("kind", "text", "wide"),
    [
        (INT, "2147483648", "long"),
        (INT, "2147483647", ""),
        (INT, "9223372036854775808", ""),
        (INT, "1.5", ""),
        (INT, '"2147483648"', ""),
        (FLOAT, "3.5e38", "double"),
        (FLOAT, "3.4028235e38", ""),
        (FLOAT, "1e999", ""),
        (DECIMAL, "1234.5", "decimal(6, 2)"),
        (DECIMAL, "-123456.78", "decimal(8, 2)"),
        (DECIMAL, "999.99", ""),
        (DECIMAL, "1.234", ""),
        (DECIMAL, "1" * 37, ""),
        (DECIMAL, "1" * 36, "decimal(38, 2)"),
    ],
)
def test_a_number_widens_its_column_only_if_the_column_does_not_hold_it(kind: Primitive, text: str, wide: str) -> None:
    struct = Struct((Field(1, "c", required=False, type=kind),))
    document = f'{{"c": {text}}}'
    assert NewsFinder(struct, NewsPlan(widens=True)).of(document).widened == ({("c",): wide} if wide else {})
    assert not NewsFinder(struct, NewsPlan(widens=False)).of(document)
    misfit = READER.documents(pa.array([document.encode()]), struct).misfits
    assert not wide or misfit is not None
    if wide:
        wider = Struct((Field(1, "c", required=False, type=Primitive(wide)),))
        parsed = READER.documents(pa.array([document.encode()]), wider)
        assert parsed.misfits is None
        found = parsed.values[0].as_py()["c"]
        assert math.isclose(found, float(text)) if wide == "double" else found == Decimal(text)


def test_a_required_column_that_a_document_lacks_can_become_optional() -> None:
    inner = Struct((Field(2, "x", required=True, type=INT),))
    struct = Struct((*KNOWN.fields, Field(3, "s", required=False, type=inner)))
    assert news([{"id": None, "s": {}}, {"id": 1}], struct).optional == {("id",), ("s", "x")}
    assert not news([{"s": {}}], struct, widens=False)


def test_keys_within_lists_and_maps_have_iceberg_s_places() -> None:
    inner = Struct((Field(2, "x", required=False, type=INT),))
    struct = Struct((Field(3, "l", required=False, type=ListOf(Field(4, "element", required=False, type=inner))),))
    assert news([{"l": [{"x": 1, "y": 2}, None, 5]}], struct).added == {("l", "element", "y"): "whole"}


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"added": []}',
        '{"added": [[["a"], "integer"]], "widened": [], "optional": [], "has_too_many": false}',
        '{"added": [["a", "whole"]], "widened": [], "optional": [], "has_too_many": false}',
        '{"added": [[[], "whole"]], "widened": [], "optional": [], "has_too_many": false}',
        '{"added": [[[1], "whole"]], "widened": [], "optional": [], "has_too_many": false}',
        '{"added": [[["a"], {"list": "whole", "more": 1}]], "widened": [], "optional": [], "has_too_many": false}',
        '{"added": [1], "widened": [], "optional": [], "has_too_many": false}',
        '{"added": [], "widened": [[["a"], "string"]], "optional": [], "has_too_many": false}',
        '{"added": [], "widened": [[["a"], 1]], "optional": [], "has_too_many": false}',
        '{"added": [], "widened": [], "optional": ["a"], "has_too_many": false}',
        '{"added": [[["\\ud800"], "whole"]], "widened": [], "optional": [], "has_too_many": false}',
        '{"added": [[["a"], {"struct": {"\\ud800": "whole"}}]], "widened": [], "optional": [], "has_too_many": false}',
        '{"added": [], "widened": [[["a"], "decimal(99, 99)"]], "optional": [], "has_too_many": false}',
        '{"added": [[["a"], '
        + '{"list": ' * 6
        + '"whole"'
        + "}" * 6
        + ']], "widened": [], "optional": [], "has_too_many": false}',
        '{"added": [[["a"], '
        + '{"list": ' * 9000
        + '"whole"'
        + "}" * 9000
        + ']], "widened": [], "optional": [], "has_too_many": false}',
    ],
)
def test_news_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not the|another|cannot|Expecting|name|surrogates"):
        news_from(text)
