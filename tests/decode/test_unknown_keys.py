"""Keys that a table has no column for are counted in the documents that are looked at, whatever these hold."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink.decode.json_values import JsonReader
from lakesink.decode.misfits import UnknownKeys
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type


def optional(name: str, kind: Type) -> Field:
    return Field(1, name, required=False, type=kind)


INNER = Struct((optional("a", Primitive("string")), optional("b:", Primitive("long"))))
TABLE = Struct(
    (
        optional("id", Primitive("string")),
        optional("at", Primitive("timestamptz")),
        optional("inner", INNER),
        optional("lines", ListOf(optional("element", INNER))),
        optional("tags", MapOf(Field(1, "key", required=True, type=Primitive("string")), optional("value", INNER))),
    )
)
TEXT = st.text(st.sampled_from(':nul"\\{},aé \u0000\u003a/~'), max_size=6) | st.sampled_from(
    [":null", ": null", "a:null"]
)
NAME = st.sampled_from(["id", "a", "b:", "new", "", "x/y", "x~1", "null", "a:b"]) | TEXT
SCALAR = st.none() | st.booleans() | st.integers(-5, 5) | TEXT
ANY = st.recursive(
    SCALAR, lambda below: st.lists(below, max_size=2) | st.dictionaries(NAME, below, max_size=3), max_leaves=6
)
OBJECT = st.dictionaries(NAME, ANY, max_size=3)
DOCUMENT = st.builds(
    lambda more, inner, lines, tags, at: more | {"inner": inner, "lines": lines, "tags": tags, "at": at},
    st.dictionaries(NAME, ANY, max_size=4),
    st.none() | OBJECT,
    st.none() | st.lists(st.none() | OBJECT, max_size=2),
    st.none() | st.dictionaries(NAME, st.none() | OBJECT, max_size=2),
    st.sampled_from([None, "2024-02-29T12:00:00Z"]),
)
STYLE = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"separators": (", ", ": ")},
        {"separators": (" ,", " :  ")},
        {"ensure_ascii": False},
        {"indent": 1},
    ]
)


def expected(value: Any, kind: Type) -> int:
    """Members with another value than null that no field takes, by Python's own reader."""
    if value is None:
        return 0
    match kind:
        case Struct(fields):
            known = {field.name: field.type for field in fields}
            here = sum(each is not None for name, each in value.items() if name not in known)
            return here + sum(expected(value.get(name), below) for name, below in known.items())
        case ListOf(element):
            return sum(expected(each, element.type) for each in value)
        case MapOf(_, item):
            return sum(expected(each, item.type) for each in value.values())
        case _:
            return 0


def counted(*chunks: list[str]) -> UnknownKeys:
    unknown = UnknownKeys()
    reader = JsonReader(unknown)
    for texts in chunks:
        reader.documents(pa.array([text.encode() for text in texts], pa.binary()), TABLE)
    return unknown


@given(st.lists(st.tuples(DOCUMENT, STYLE), min_size=1, max_size=5), st.integers(0, 5))
def test_unknown_keys_are_counted_as_python_counts_them_however_they_are_split(
    documents: list[tuple[Any, dict[str, Any]]], split: int
) -> None:
    texts = [json.dumps(document, **style) for document, style in documents]
    found = counted(texts[:split], texts[split:])
    assert found.count == sum(expected(document, TABLE) for document, _ in documents)


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ('{"id": "x", "new": 1}', ("new",)),
        ('{"id": "x", "new": null}', ()),
        ('{"id": "a\\u003ab", "new": 1}', ("new",)),
        ('{"id": "\\u003A", "new": 1}', ("new",)),
        ('{"id": "a:b:null", "at": null}', ()),
        ('{"inner": {"a": "x", "c": 1, "d": {"e": 2}}}', ("inner.c", "inner.d")),
        ('{"lines": [{"c": 1}, null, {"a": "x", "c": 2}]}', ("lines[].c",)),
        ('{"tags": {"k": {"c": 1}}}', ("tags{}.c",)),
        ('{"\\u001b[2J": 1}', ("?[2J",)),
        ("no document", ()),
    ],
)
def test_an_unknown_key_is_named_by_its_path_and_safe_to_print(document: str, names: tuple[str, ...]) -> None:
    assert counted([document]).names == names


def test_names_of_unknown_keys_are_the_first_ten_and_the_count_is_of_all() -> None:
    texts = [json.dumps({f"k{number:04}": 1}) for number in range(3_000)]
    found = counted(texts[2_000:], texts[1_000:2_000], texts[:1_000])
    assert found.count == 3_000
    assert found.names == tuple(f"k{number:04}" for number in range(10))


def test_the_first_thousand_documents_of_a_gathered_batch_are_looked_at() -> None:
    texts = [json.dumps({"id": "x", "new": 1})] * 1_500
    assert counted(texts).count == 1_000
