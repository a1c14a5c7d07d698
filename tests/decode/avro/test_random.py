"""Random schemas, values and bytes: read as fastavro reads them, each message alone and beside others."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from lakesink.rows.schema import Struct, Type
from tests.decode.avro.messages import MALFORMED, columns, decoded, encoded, list_of, logical, map_to, message, record

Value = Callable[[Random], Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Sort:
    """A type of Avro's, the column that takes it, values of it, and what they are in the column."""

    kind: Any
    column: Type | str
    value: Value
    expected: Callable[[Any], Any] = lambda value: value


def moment(chance: Random) -> datetime:
    return EPOCH + timedelta(microseconds=chance.randint(-(2**50), 2**50))


def text(chance: Random) -> str:
    return "".join(chance.choices("aé\U0001f600\0 x", k=chance.choice([0, 1, 5, 40])))


SCALARS = (
    Sort("int", "long", lambda chance: chance.choice([0, -1, 2**31 - 1, -(2**31)])),
    Sort("long", "long", lambda chance: chance.randint(-(2**63), 2**63 - 1) >> chance.randint(0, 63)),
    Sort("double", "double", lambda chance: chance.uniform(-1e300, 1e300)),
    Sort("float", "double", lambda chance: chance.choice([0.0, -0.5, 2.0**100, float("inf")])),
    Sort("boolean", "boolean", lambda chance: chance.random() < 0.5),
    Sort("string", "string", text),
    Sort("bytes", "binary", lambda chance: chance.randbytes(chance.randint(0, 5))),
    Sort(
        logical("bytes", "decimal", precision=9, scale=2),
        "decimal(9, 2)",
        lambda chance: Decimal(chance.randint(1 - 10**9, 10**9 - 1)).scaleb(-2),
    ),
)
CALENDAR = (
    Sort(logical("int", "date"), "date", lambda chance: date.fromordinal(chance.randint(1, date.max.toordinal()))),
    Sort(logical("long", "time-micros"), "time", lambda chance: moment(chance).time()),
    Sort(logical("long", "timestamp-micros"), "timestamptz", moment),
    Sort(logical("long", "local-timestamp-micros"), "timestamp", lambda chance: moment(chance).replace(tzinfo=None)),
)


def array(item: Sort) -> Sort:
    return Sort(
        {"type": "array", "items": item.kind},
        list_of(item.column),
        lambda chance: [item.value(chance) for _ in range(chance.choice([0, 1, 2, 5]))],
        lambda found: [item.expected(value) for value in found],
    )


def mapping(item: Sort) -> Sort:
    return Sort(
        {"type": "map", "values": item.kind},
        map_to(item.column),
        lambda chance: {text(chance): item.value(chance) for _ in range(chance.randint(0, 3))},
        lambda found: [(key, item.expected(value)) for key, value in found.items()],
    )


def maybe(sort: Sort) -> Sort:
    return Sort(
        ["null", sort.kind],
        sort.column,
        lambda chance: None if chance.random() < 0.3 else sort.value(chance),
        lambda found: None if found is None else sort.expected(found),
    )


def struct(parts: list[Sort], name: str) -> Sort:
    """A record; nobody asks for its second field, and one column asks for what it has not."""
    fields = {f"f{number}": part for number, part in enumerate(parts)}
    wanted = {field: part for field, part in fields.items() if field != "f1"}
    return Sort(
        record(*((field, part.kind) for field, part in fields.items()), name=name),
        columns(missing="int", **{field: part.column for field, part in wanted.items()}),
        lambda chance: {field: part.value(chance) for field, part in fields.items()},
        lambda found: {"missing": None} | {field: part.expected(found[field]) for field, part in wanted.items()},
    )


@dataclass
class Sorts:
    """Random types, of some scalars."""

    chance: Random
    scalars: tuple[Sort, ...]
    records: int = 0

    def any(self, depth: int) -> Sort:
        made = self.chance.choice(self.scalars)
        if depth < 3 and self.chance.random() < 0.5:
            shape = self.chance.choice([array, mapping, None])
            made = self.rows(depth + 1) if shape is None else shape(self.any(depth + 1))
        return maybe(made) if self.chance.random() < 0.3 else made

    def rows(self, depth: int = 0) -> Sort:
        self.records += 1
        name = f"R{self.records}"
        return struct([self.any(depth) for _ in range(self.chance.randint(1, 4))], name)


def mutated(chance: Random, body: bytes) -> bytes:
    if chance.random() < 0.3:
        return body[: chance.randint(0, len(body))]
    if chance.random() < 0.3 or not body:
        return body + chance.randbytes(chance.randint(0, 3))
    place = chance.randrange(len(body))
    return body[:place] + chance.randbytes(1) + body[place + 1 :]


def is_read_alike(sort: Sort, body: bytes, row: Any) -> bool:
    """True also where fastavro minds a text that no column asks for."""
    stream = io.BytesIO(body)
    try:
        found = fastavro.schemaless_reader(stream, fastavro.parse_schema(sort.kind), None)
    except UnicodeDecodeError:
        return True
    return not stream.read() and plain(row) == plain(sort.expected(found))


@given(st.integers(0, 2**32))
def test_random_values_are_what_was_written(seed: int) -> None:
    chance = Random(seed)
    sort = Sorts(chance, SCALARS + CALENDAR).rows()
    assert isinstance(sort.column, Struct)
    values = [sort.value(chance) for _ in range(chance.randint(0, 6))]
    found = decoded({7: sort.kind}, sort.column, [message(encoded(sort.kind, value)) for value in values])
    assert plain(found) == plain([sort.expected(value) for value in values])


@given(st.integers(0, 2**32))
def test_random_bytes_are_read_as_fastavro_reads_them_or_are_malformed(seed: int) -> None:
    """What fastavro takes beyond, such as an int beyond 32 bits, is malformed here."""
    chance = Random(seed)
    sort = Sorts(chance, SCALARS).rows()
    assert isinstance(sort.column, Struct)
    bodies = [mutated(chance, encoded(sort.kind, sort.value(chance))) for _ in range(4)]
    found = decoded({7: sort.kind}, sort.column, [message(body) for body in bodies])
    alone = [row for body in bodies for row in decoded({7: sort.kind}, sort.column, [message(body)])]
    assert plain(found) == plain(alone)
    for body, row in zip(bodies, found, strict=True):
        assert row == MALFORMED or is_read_alike(sort, body, row)


def plain(value: Any) -> str:
    """As text, in which NaN equals itself and UTC has one name."""
    return repr(value).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")
