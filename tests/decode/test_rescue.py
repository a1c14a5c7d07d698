"""What a row does not hold of its document is in the rescue column, exactly; nothing of a document vanishes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from lakesink.decode.json_scalars import Parsed, either, without
from lakesink.decode.json_values import JsonReader
from lakesink.decode.rescue import LARGEST_REST_BYTES, Rescue, step_of
from lakesink.rows.plan import BinaryEncoding
from lakesink.rows.schema import Field, ListOf, MapOf, Primitive, Struct, Type, sql_type_of
from lakesink.sinks.iceberg.evolution import rescue_column_change
from lakesink_protocol.errors import WriteError
from lakesink_protocol.measures import RESCUED_ROWS, UNKNOWN_KEYS, Tally
from lakesink_protocol.quality import Quality
from lakesink_protocol.receipt import Receipt
from testkit.examples import examples
from testkit.tasks import plan_for, rows_of, write

RESCUE = "_rescued"
TEXT = Primitive("string")
STRICT, READER = (
    JsonReader(encoding=BinaryEncoding.BASE64),
    JsonReader(marks=True, forgives=True, encoding=BinaryEncoding.BASE64),
)
NESTED = {Struct: "STRUCT", ListOf: "ARRAY", MapOf: "MAP"}


def optional(name: str, kind: Type) -> Field:
    return Field(1, name, required=False, type=kind)


def required(name: str, kind: Type) -> Field:
    return Field(1, name, required=True, type=kind)


INNER = Struct((optional("a", TEXT), optional("b:", Primitive("long")), optional("x.y", Primitive("double"))))
STERN = Struct((required("r", Primitive("int")), optional("a", Primitive("decimal(9, 2)"))))
TABLE = Struct(
    (
        optional("id", TEXT),
        required("must", Primitive("int")),
        optional("at", Primitive("timestamptz")),
        optional("data", Primitive("binary")),
        optional("inner", INNER),
        optional("stern", STERN),
        optional("lines", ListOf(optional("element", INNER))),
        optional("rows", ListOf(required("element", STERN))),
        optional("tags", MapOf(required("key", TEXT), optional("value", INNER))),
        optional("sizes", MapOf(required("key", Primitive("int")), required("value", Primitive("float")))),
        optional(RESCUE, TEXT),
    )
)
OWN = Struct(TABLE.fields[:-1])


# Documents as JSON texts, so that each member has the spelling of its own


STRINGS = st.one_of(
    st.text(st.sampled_from(':nul"\\{},[]aé \u0000/~.\U0001f600'), max_size=6),
    st.sampled_from(
        [":null", ": null", "a:null", "null", "NaN", "7", "2024-02-29T12:00:00Z", "AA==", "1.5", "\\u003a"]
    ),
)
ESCAPES = (str, lambda text: text.replace(":", r"\u003a"), lambda text: text.replace(":", r"\u003A"))


def spelled(text: str, ascii_only: bool, escape: Any) -> str:  # noqa: FBT001 - drawn by hypothesis
    return str(escape(json.dumps(text, ensure_ascii=ascii_only)))


QUOTED = st.builds(spelled, STRINGS, st.booleans(), st.sampled_from(ESCAPES))
NUMBERS = st.sampled_from(
    ["0", "-0", "1", "7", "1.10", "-1.5", "1e400", "1E-7", "123456789012345678901234567890", "12345678.90", "NaN"]
) | st.sampled_from(["-Infinity", "0.30000000000000000001", "2147483648", "9223372036854775808"])
BLANK = st.sampled_from(["", "", "", " ", "\n\t"])
NAMES = st.sampled_from([field.name for field in TABLE.fields] + ["a", "b:", "x.y", "r", "new", "", "x/y", "x~1", "["])
KEYS = st.one_of(
    st.builds(spelled, NAMES, st.booleans(), st.sampled_from(ESCAPES)), QUOTED, st.sampled_from(['"1"', '"01"'])
)


def joined(opener: str, parts: list[str], closer: str, blank: str, trailing: bool) -> str:  # noqa: FBT001 - drawn
    comma = "," if trailing and parts else ""
    return f"{opener}{blank}{f'{blank},'.join(parts)}{comma}{blank}{closer}"


def arrays(below: Any) -> Any:
    return st.builds(joined, st.just("["), st.lists(below, max_size=3), st.just("]"), BLANK, st.just(value=False))


def objects(below: Any, keys: Any = KEYS) -> Any:
    member = st.builds("{}{}:{}{}".format, keys, BLANK, BLANK, below)
    trailing = st.sampled_from([False, False, False, True])
    return st.builds(joined, st.just("{"), st.lists(member, max_size=5), st.just("}"), BLANK, trailing)


SCALARS = st.sampled_from(["null", "null", "true", "false"]) | NUMBERS | QUOTED
VALUES = st.recursive(SCALARS, lambda below: arrays(below) | objects(below), max_leaves=8)


def value_for(kind: Type) -> Any:
    """Texts that often fit the type."""
    match kind:
        case Struct(fields):
            keys = [json.dumps(field.name) for field in fields]
            members = [
                st.builds("{}:{}".format, st.just(key), value_for(one.type))
                for key, one in zip(keys, fields, strict=True)
            ]
            extra = st.lists(st.builds("{}:{}".format, KEYS, VALUES), max_size=2)
            fitting = st.builds(lambda more, *own: "{" + ",".join([*own, *more]) + "}", extra, *members)
        case ListOf(element):
            fitting = arrays(value_for(element.type))
        case MapOf(key, value):
            fitting = objects(
                value_for(value.type), QUOTED if key.type == TEXT else st.sampled_from(['"1"', '"2"', '"x"'])
            )
        case _:
            fitting = SCALARS
    return st.one_of(fitting, fitting, fitting, VALUES)


MUST = st.sampled_from(["1", "1", "1", '"7"', "null", "1.5"])
DOCUMENTS = st.one_of(
    st.builds(
        lambda must, members, more: "{" + ",".join([f'"must":{must}', *members, *more]) + "}",
        MUST,
        st.lists(
            st.sampled_from(OWN.fields).flatmap(
                lambda field: st.builds("{}:{}".format, st.just(json.dumps(field.name)), value_for(field.type))
            ),
            max_size=4,
        ),
        st.lists(st.builds("{}:{}".format, KEYS, VALUES), max_size=3),
    ),
    objects(VALUES),
    VALUES,
)


# The reference, in plain Python


class Spelled(str):
    """A number, or a word for one, as written."""

    __slots__ = ()


def first_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def without_trailing_commas(text: str) -> str:
    found: list[str] = re.findall(r'"(?:[^"\\]|\\.)*"|[\s\S]', text)
    kept = [part for part in found if not part.isspace()]
    pairs = zip(kept, [*kept[1:], ""], strict=True)
    return "".join(part for part, then in pairs if part != "," or then not in ("]", "}"))


def read(text: str, *, keep_pairs: bool = False) -> Any:
    """A document with numbers as written; NaN as the string that stands for it in the rescue column."""
    hook: Any = tuple if keep_pairs else first_of
    return json.loads(
        without_trailing_commas(text),
        parse_int=Spelled,
        parse_float=Spelled,
        parse_constant=str,
        object_pairs_hook=hook,
    )


def is_malformed_alone(text: str, kind: Type) -> bool:
    """True if a value does not fit an optional column of the type, by the reader that keeps no rest."""
    document = pa.array([f'{{"c":{text}}}'])
    return STRICT.read(document, Struct((optional("c", kind),))).misfits is not None


def lost(value: Any, held: Any, kind: Type, path: tuple[str, ...]) -> Iterator[tuple[str, str, Any, str]]:
    """What a row does not hold of a value: the member, its path, its value, and its expected type."""
    if value is None:
        return
    if held is None:
        expected = sql_type_of(kind) if isinstance(kind, Primitive) else NESTED[type(kind)]
        yield "unfit", dotted(path), value, expected
    elif isinstance(kind, Struct):
        fields = {field.name: field.type for field in kind.fields}
        for name, below in value.items():
            if name in fields:
                yield from lost(below, held[name], fields[name], (*path, step_of(name)))
            elif below is not None:
                yield "unknown", dotted((*path, step_of(name))), below, ""
    else:
        yield from lost_items(value, held, kind, path)


def lost_items(value: Any, held: Any, kind: Type, path: tuple[str, ...]) -> Iterator[tuple[str, str, Any, str]]:
    if isinstance(kind, ListOf):
        for number, (below, item) in enumerate(zip(value, held, strict=True)):
            yield from lost(below, item, kind.element.type, (*path, f"[{number}]"))
    elif isinstance(kind, MapOf):
        for (name, below), (_, item) in zip(value.items(), held, strict=True):
            yield from lost(below, item, kind.value.type, (*path, "{" + json.dumps(name, ensure_ascii=False) + "}"))


def dotted(steps: tuple[str, ...]) -> str:
    text = ""
    for step in steps:
        text += step if step[0] in "[{" or not text else f".{step}"
    return text


def decoded(*chunks: list[str]) -> tuple[list[dict[str, Any]], Quality]:
    """The rows with their rescued texts, read chunk by chunk."""
    rescue, rows = Rescue(OWN, READER.texts), []
    for texts in chunks:
        documents = pa.array([text.encode() for text in texts], pa.binary())
        found = READER.documents(documents, OWN)
        misfits = either(found.misfits, found.values.is_null())
        assert misfits is not None
        found, rests = rescue.kept(documents, Parsed(without(found.values, misfits), misfits, found.rest))
        found.values.validate(full=True)
        columns = pa.RecordBatch.from_arrays([*found.values.flatten(), rests], names=[one.name for one in TABLE.fields])
        rows += columns.to_pylist()
    return rows, rescue.quality


def is_sorted(rest: dict[str, dict[str, Any]]) -> bool:
    in_order = [name for name in ("unknown", "unfit") if name in rest]
    return list(rest) == in_order and all(list(part) == sorted(part) for part in rest.values())


def strictly(texts: list[str]) -> tuple[list[dict[str, Any]], list[bool]]:
    found = STRICT.documents(pa.array([text.encode() for text in texts]), OWN)
    bad = [False] * len(texts) if found.misfits is None else found.misfits.to_pylist()
    rows = found.values.to_pylist()
    return rows, [wrong or row is None for wrong, row in zip(bad, rows, strict=True)]


@examples(12)
@given(st.lists(DOCUMENTS, min_size=1, max_size=6), st.integers(0, 6))
@example([r'{"must":1,"n\u003aw":{"x":[1.10,-0,1e400,]}}', r'{"must":1,"id":"a:b","at":null,"z": null}'], 1)
@example([r'{"must":1,"id":"a\u003ab"}', '{"must":1,"new":1}', r'{"must":1,"id":"\u003A\u003a","new":{"a":1}}'], 0)
@example(['{"must":1,"lines":[{"a":"x"},7,null,{"b:":1.5,"c":{}}],"_rescued":"mine"}'], 0)
@example(['{"must":1,"a.b":1,"a":{"b":2},"[\\"a.b\\"]":3}', '{"must":1,"new":1,"new":2,"id":":","id":"b"}'], 1)
def test_row_and_rescued_text_have_every_member_of_a_document_or_it_is_malformed(texts: list[str], split: int) -> None:
    rows, quality = decoded(texts[:split], texts[split:])
    kept_rows, bad = strictly(texts)
    assert len(rows) == len(texts)
    for text, row, strict_row, wrong in zip(texts, rows, kept_rows, bad, strict=True):
        rest = row.pop(RESCUE)
        if not wrong:
            assert repr(row) == repr(strict_row)
        if row["must"] is None:
            assert wrong
            assert rest is None
            assert set(row.values()) == {None}
            continue
        expected: dict[str, Any] = {}
        for member, path, value, kind in lost(read(text), row, OWN, ()):
            place = expected.setdefault(member, {})
            assert path not in place
            place[path] = value if member == "unknown" else {"expected": kind, "value": value}
        assert (None if rest is None else read(rest)) == (expected or None), text
        assert wrong == ("unfit" in expected)
        assert rest is None or is_sorted(json.loads(rest))
    whole, same_quality = decoded(texts)
    assert same_quality == quality
    assert quality.counts[RESCUED_ROWS] == sum(row[RESCUE] is not None for row in whole)
    assert quality.counts[UNKNOWN_KEYS] == 0


@examples(6)
@given(st.lists(DOCUMENTS, min_size=1, max_size=6))
def test_only_documents_with_a_misfit_in_a_required_column_are_still_malformed(texts: list[str]) -> None:
    rows, _ = decoded(texts)
    _, bad = strictly(texts)
    for text, row, wrong in zip(texts, rows, bad, strict=True):
        if wrong and row["must"] is None:
            try:
                document = read(text)
            except ValueError:
                continue
            must = document.get("must") if isinstance(document, dict) else None
            assert must is None or is_malformed_alone(
                str(must) if isinstance(must, Spelled) else json.dumps(must), Primitive("int")
            )


def task(documents: list[bytes | None], folder: Path, **options: Any) -> Receipt:
    """The receipt of a task that writes a table with the columns id, must and _rescued."""
    kinds = (("id", LongType(), False), ("must", IntegerType(), True), (RESCUE, StringType(), False))
    fields = [NestedField(at, name, kind, required=needed) for at, (name, kind, needed) in enumerate(kinds, 1)]
    plan = plan_for(Schema(*fields), folder, decode="json", rescue_column=RESCUE, **options)
    half = len(documents) // 2
    parts = [documents[:half], documents[half:]]
    batches = [pa.RecordBatch.from_arrays([pa.array(part, pa.binary())], names=["value"]) for part in parts]
    return write(plan, batches)


def test_a_task_counts_rescued_rows_by_reason_and_writes_their_texts(tmp_path: Path) -> None:
    documents: list[bytes | None] = [b'{"must":1,"new":1}', b'{"must":2,"id":"x","new":[{}]}', b'{"must":3,"new":null}']
    receipt = task(documents, tmp_path)
    assert receipt.quality == Quality(Tally({RESCUED_ROWS: 2}), rescued={"id: not BIGINT": 1, "new: no column": 2})
    assert [row[RESCUE] for row in rows_of(receipt.files)] == [
        '{"unknown":{"new":1}}',
        '{"unknown":{"new":[{}]},"unfit":{"id":{"expected":"BIGINT","value":"x"}}}',
        None,
    ]


def test_malformed_documents_name_only_what_made_them_malformed(tmp_path: Path) -> None:
    documents = [b'{"must":"m","id":"x","new":1}', None, b"[]", b"\xff", b'{"id":1}', b'{"must":1}']
    receipt = task(documents, tmp_path)
    assert receipt.refused
    assert [(one.column, one.found) for one in receipt.misfits] == [
        ("must", "text of 1 character"),
        ("", "no value (NULL)"),
        ("", "an array of 0 elements"),
        ("", "1 byte, not UTF-8"),
        ("must", "no value"),
    ]


@pytest.mark.parametrize(("size", "kept"), [(LARGEST_REST_BYTES - 22, True), (LARGEST_REST_BYTES - 21, False)])
def test_a_document_whose_rest_is_too_large_is_malformed_and_nothing_is_cut(
    tmp_path: Path,
    size: int,
    kept: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    text = "é" * (size // 2) + "x" * (size % 2)
    documents: list[bytes | None] = [f'{{"must":1,"new":"{text}"}}'.encode(), b'{"must":2}']
    receipt = task(documents, tmp_path)
    assert receipt.refused is not kept
    if kept:
        [first, _] = rows_of(receipt.files)
        assert len(first[RESCUE].encode()) == LARGEST_REST_BYTES
        assert json.loads(first[RESCUE]) == {"unknown": {"new": text}}
    else:
        assert [one.found for one in receipt.misfits] == ["more than 1 MiB that no column holds"]
        assert receipt.quality.counts[RESCUED_ROWS] == 0


def test_a_value_is_kept_at_any_depth(tmp_path: Path) -> None:
    deep = "[" * 20_000 + "]" * 20_000
    [row, _] = rows_of(task([f'{{"must":1,"new":{deep}}}'.encode(), b'{"must":2}'], tmp_path).files)
    assert row[RESCUE] == f'{{"unknown":{{"new":{deep}}}}}'


def test_every_one_of_many_documents_is_checked(tmp_path: Path) -> None:
    documents: list[bytes | None] = [b'{"must":1,"id":null}'] * 70_000
    documents[69_998] = b'{"must":1,"n\\u0065w":1}'
    documents[12_345] = b'{"must":1,"id":2,"other":":"}'
    receipt = task(documents, tmp_path)
    assert receipt.quality == Quality(Tally({RESCUED_ROWS: 2}), rescued={"new: no column": 1, "other: no column": 1})


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (NestedField(1, RESCUE, StringType(), required=True), "is required in the table, and must be optional"),
        (NestedField(1, RESCUE, LongType(), required=False), "is BIGINT in the table, and must be STRING"),
        (NestedField(1, "_RESCUED", StringType(), required=False), "differs only in case from '_RESCUED'"),
    ],
)
def test_a_column_that_cannot_be_the_rescue_column_is_named(field: NestedField, said: str) -> None:
    with pytest.raises(WriteError, match=said):
        rescue_column_change(Schema(field), RESCUE)
    with pytest.raises(WriteError, match="Iceberg reserves"):
        rescue_column_change(Schema(field), "_pos")
