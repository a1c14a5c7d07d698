"""A search of all texts at once finds what is in any of them, and reads nothing beside them."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakesink.decode.decimals import parse_decimals
from lakesink.decode.joined import any_character, any_match
from lakesink.decode.json_values import JsonReader
from lakesink.rows.schema import Field, Primitive, Struct
from tests.decode.test_exact_json import MALFORMED, NUMBERS, as_decimal

READER = JsonReader()
TEXTS = st.lists(st.none() | st.text("abxX(\u00e9\u20ac", max_size=4), max_size=8)


@given(TEXTS, st.integers(0, 8), st.integers(0, 8))
@example([], 0, 0)
@example([None], 0, 1)
@example(["x", "a", "x"], 1, 1)
def test_a_character_and_a_pattern_are_found_in_a_part_of_an_array_and_not_beside_it(
    texts: list[str | None], start: int, length: int
) -> None:
    part = pa.array(texts, pa.string()).slice(start, length)
    together = "".join(text or "" for text in texts[start : start + length])
    assert any_character(part, b"xX") == ("x" in together or "X" in together)
    assert any_character(part, b"(") == ("(" in together)
    assert any_match(part, "[xX]") == ("x" in together or "X" in together)


NAMES = ["amount", "id", "e", "", "kind of a/b", "\u00e9t\u00e9", '"']


@given(st.lists(st.tuples(st.sampled_from(NAMES), NUMBERS), min_size=1, max_size=6), st.integers(1, len(NAMES)))
@example([("amount", "1.5"), ("e", "0.30000000000000000001"), ("id", "1")], 3)
@example([("", "1e2")], 7)
@example([("id", "-0")], 2)
def test_one_number_among_many_documents_is_exact_in_tables_with_few_names_and_with_more(
    found: list[tuple[str, str]], count: int
) -> None:
    names = NAMES[:count]
    texts = [f'{{"other": 1.25, {_quoted(name)} : {number}}}' for name, number in found]
    for kind in ("string", "decimal(38, 10)"):
        struct = Struct(tuple(Field(at, each, required=False, type=Primitive(kind)) for at, each in enumerate(names)))
        parsed = READER.read(pa.array(texts), struct)
        wrong = [False] * len(texts) if parsed.misfits is None else parsed.misfits.to_pylist()
        for row, bad, (name, number) in zip(parsed.values.to_pylist(), wrong, found, strict=True):
            expected = None if name not in names else number if kind == "string" else as_decimal(number, 38, 10)
            assert (MALFORMED if bad else row.get(name)) == expected


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '\\"') + '"'


@given(st.lists(NUMBERS.filter(lambda text: len(text) < 45), min_size=1, max_size=5), st.integers(0, 38))
@example(["9" * 38], 0)
@example(["9" * 37], 1)
@example(["9" * 20, "0." + "1" * 18], 18)
@example(["9" * 21], 18)
@example(["123456789012345678901234567890"], 18)
@example(["1", "933436663242881441487944604007540.97"], 2)
def test_decimals_of_every_length_and_scale_are_exact_or_refused(texts: list[str], scale: int) -> None:
    expected = [as_decimal(text, 38, scale) for text in texts]
    if MALFORMED in expected:
        with pytest.raises(pa.ArrowInvalid):
            parse_decimals(pa.array(texts), 38, scale)
        return
    values: list[Decimal] = parse_decimals(pa.array(texts), 38, scale).to_pylist()
    assert [str(value) for value in values] == [str(value or abs(value)) for value in expected]
