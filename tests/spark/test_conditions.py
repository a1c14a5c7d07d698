"""Conditions on documents mean in a task what they mean in Spark: the same text, on the same rows, in both."""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakesink.rows.conditions import evaluator
from lakesink.rows.schema import arrow_type, parse_schema
from lakesink.settings.conditions import condition_of

INTS = [0, 1, -1, 2, 7, 1000, 2**31 - 1, -(2**31)]
LONGS = [*INTS, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
DECIMALS = ["0", "0.01", "-0.01", "1.00", "2.50", "9999999999.99", "-9999999999.99"]
LARGE = ["0", "1", "-1", "9" * 38, "-" + "9" * 38, "12345678901234567890"]
SCALED = ["0", "0.0000000001", "1", "-1.5", "9" * 28 + "." + "9" * 10]
FLOATS = [0.0, -0.0, 0.1, 1.0, -1.5, 3.4e38, float("inf"), float("-inf"), float("nan"), 16777217.0, 1e-45]
DOUBLES = [*FLOATS, 2.0**53 + 2, 1.7e308, 5e-324]
TEXTS = ["", " ", "a", "A", "a ", " a", "ab", "b", "ä", "é", "e\u0301", "ß", "İ", "日本", "😀", "a😀b", "%", "a%", "_"]
TEXTS += ["\n", "a\nb", "\t", "\u00a0a", "\uffff", "it's", "1", "01"]
DAYS = [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)]
TIMES = [
    datetime(1, 1, 1),  # noqa: DTZ001
    datetime(1900, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001
    datetime(1969, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001
    datetime(1970, 1, 1),  # noqa: DTZ001
    datetime(2026, 3, 29, 2, 30),  # noqa: DTZ001
    datetime(9999, 12, 30, 23, 59, 59, 999_999),  # noqa: DTZ001
]
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "i": (IntegerType(), INTS),
    "j": (IntegerType(), INTS),
    "l": (LongType(), LONGS),
    "m": (LongType(), LONGS),
    "d": (DecimalType(12, 2), [Decimal(one) for one in DECIMALS]),
    "w": (DecimalType(38, 0), [Decimal(one) for one in LARGE]),
    "e": (DecimalType(38, 10), [Decimal(one) for one in SCALED]),
    "f": (FloatType(), FLOATS),
    "g": (DoubleType(), DOUBLES),
    "s": (StringType(), TEXTS),
    "t": (StringType(), TEXTS),
    "b": (BooleanType(), [True, False]),
    "c": (BooleanType(), [True, False]),
    "date": (DateType(), DAYS),
    "at": (TimestamptzType(), [one.replace(tzinfo=UTC) for one in TIMES]),
    "local": (TimestampType(), TIMES),
    "x": (BinaryType(), [b"", b"a"]),
}
INNER = {"k": "l", "text": "s", "on": "b"}
"""Fields of a struct, with values as those columns."""
SCHEMA = Schema(
    *(NestedField(number, name, kind) for number, (name, (kind, _)) in enumerate(VALUES.items(), 1)),
    NestedField(
        90, "in", StructType(*(NestedField(91 + at, it, VALUES[of][0]) for at, (it, of) in enumerate(INNER.items())))
    ),
)
COLUMNS = parse_schema(SCHEMA.model_dump_json())
Text = tuple[str, str]
"""A part of a condition, and the same for Spark where it must not fail: try_add for the + of whole numbers."""
COMPARISONS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=")
TRIED = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
KINDS: dict[str, list[str]] = {
    "whole": ["i", "j", "l", "m", "`in`.k"],
    "exact": ["d", "e", "w", "D"],
    "float": ["f", "g"],
    "text": ["s", "t", "`in`.text"],
    "flag": ["b", "c", "`in`.on"],
    "day": ["date"],
    "time": ["at"],
    "local": ["local"],
}
LITERALS: dict[str, list[str]] = {
    "whole": ["0", "1", "-1", "- 1", "007", "2147483647", "-2147483648", "2147483648", "9223372036854775807", "100"],
    "exact": ["0.0", "0.01", "-1.50", "00.5", "9223372036854775808", "99999999999999999999999999999999999999", "0.1"],
    "text": ["''", "' '", "'a'", "'ä'", "'it''s'", "'😀'", "'A'", "'\uffff'", "'$'"],
    "flag": ["TRUE", "false"],
    "day": ["DATE '1969-12-31'", "date'0001-01-01'", "DATE '9999-12-31'", "DATE '1582-10-10'"],
    "time": [
        "TIMESTAMP '1970-01-01 00:00:00Z'",
        "timestamp '1900-01-01T00:00:00.000001+00:00'",
        "TIMESTAMP '2026-03-29 02:30:00.5-08:00'",
    ],
    "local": ["TIMESTAMP_NTZ '1970-01-01 00:00:00'", "TIMESTAMP_NTZ '1969-12-31T23:59:59.999999'"],
}
PATTERNS = [
    "''",
    "'%'",
    "'_'",
    "'a%'",
    "'%a'",
    "'%a%'",
    "'a_b'",
    "'a'",
    "'__'",
    "'%😀%'",
    "'%b'",
    "'_%_'",
    "'a.b'",
    "'(%'",
]


class Maker:
    """Makes conditions by chance."""

    def __init__(self, seed: int, *, calm: bool) -> None:
        self.chance = random.Random(seed)
        self.calm = calm

    def one(self, some: Sequence[Any]) -> Any:
        return self.chance.choice(some)

    def value(self, kind: str, depth: int = 2) -> Text:
        roll = self.chance.random()
        if depth and roll < 0.15 and kind == "whole":
            length = f"length({self.value('text', depth - 1)[0]})"
            return length, length
        if depth and roll < 0.4 and kind in ("whole", "exact"):
            parts = self.value(kind, depth - 1), self.value(self.one(["whole", kind]), depth - 1)
            operator = self.one("+-*")
            mine = f"({parts[0][0]} {operator} {parts[1][0]})"
            theirs = f"{TRIED[operator]}({parts[0][1]}, {parts[1][1]})"
            return mine, theirs if kind == "whole" else f"({parts[0][1]} {operator} {parts[1][1]})"
        if depth and roll < 0.3 and kind == "text":
            trimmed = f"trim({self.value('text', depth - 1)[0]})"
            return trimmed, trimmed
        if depth and roll < 0.5 and kind != "float":
            parts = self.value(kind, depth - 1), self.value(kind, depth - 1)
            return tuple(f"coalesce({one}, {other})" for one, other in zip(*parts, strict=True))  # type: ignore[return-value]
        written = LITERALS[kind][:5] if self.calm and kind == "whole" else LITERALS.get(kind, ["1", "-0.1"])
        found = self.one(KINDS[kind] if roll < 0.85 else written)
        return found, found

    def predicate(self, depth: int) -> Text:  # noqa: PLR0911 # one for each kind
        kind = self.one([*KINDS, "text", "whole", "exact"])
        left, right = self.value(kind), self.value(kind)
        if kind in ("whole", "exact", "float") and self.chance.random() < 0.3:
            found = self.one(LITERALS[self.one(["whole", "exact"])])
            right = found, found
        roll = self.chance.random()
        negated = self.one(["", "", "NOT "])
        if kind == "flag":
            return self.each("{} {} {}", left, (self.one(["=", "<>"]),) * 2, right) if roll < 0.5 else left
        if roll < 0.15:
            word = self.one(["IS NULL", "is not null"])
            return self.each("{} " + word, left)
        if roll < 0.3:
            return self.each("{} " + negated + "BETWEEN {} AND {}", left, right, self.value(kind))
        if roll < 0.45:
            return self.each("{} " + negated + "in ({}, {}, {})", left, right, self.value(kind), self.value(kind))
        if kind == "text" and roll < 0.7:
            return self.each("{} " + negated + "LIKE " + self.one(PATTERNS), left)
        if depth and roll < 0.55:
            return self.each("({})", self.condition(depth - 1))
        return self.each("{} {} {}", left, (self.one(COMPARISONS),) * 2, right)

    def condition(self, depth: int = 1) -> Text:
        found = self.each(self.one(["{}", "{}", "NOT {}"]), self.predicate(depth))
        for _ in range(self.chance.randrange(3)):
            found = self.each(self.one(["{} AND {}", "{} or {}", "{} AND NOT {}"]), found, self.predicate(depth))
        return found

    def each(self, form: str, *parts: Text) -> Text:
        mine, theirs = (form.format(*some) for some in zip(*parts, strict=True))
        return mine, theirs

    def rows(self, count: int) -> pa.Table:
        """Rows by chance; calm ones have whole numbers whose sums and products are small."""

        def value(name: str) -> Any:
            kind, values = VALUES[name]
            if self.chance.random() < 0.15:
                return None
            if self.calm and isinstance(kind, IntegerType | LongType):
                return self.chance.randrange(-3, 4)
            if name in ("at", "date", "local") and self.chance.random() < 0.5:
                return self.one(values[2:-1]) + timedelta(days=self.chance.randrange(-2, 3))
            return self.one(values)

        made = [
            {name: value(name) for name in VALUES}
            | {"in": None if self.chance.random() < 0.2 else {it: value(of) for it, of in INNER.items()}}
            for _ in range(count)
        ]
        return pa.Table.from_pylist(made, pa.schema(list(arrow_type(COLUMNS))))


def accepted(count: int, maker: Maker) -> list[tuple[Text, Any]]:
    """So many conditions that tasks take, with their evaluation."""
    found: list[tuple[Text, Any]] = []
    for _ in range(count * 20):
        text = maker.condition()
        try:
            found.append((text, evaluator(condition_of(text[0]), COLUMNS, str.lower)))
        except ValueError:
            continue
        if len(found) == count:
            return found
    raise AssertionError("most conditions are refused")


@pytest.fixture
def interpreted(spark: Any) -> Iterator[None]:
    """To compile a condition takes Spark longer than to evaluate it on a few rows."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield
    for key in settings:
        spark.conf.unset(key)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("calm", [True, False], ids=["the same text", "whole numbers that overflow"])
@pytest.mark.parametrize("seed", [11, 12])
def test_a_condition_has_the_same_value_in_a_task_and_in_spark(
    spark: Any, tmp_path: Path, seed: int, *, calm: bool
) -> None:
    maker = Maker(seed, calm=calm)
    rows = maker.rows(200)
    pq.write_table(rows, tmp_path / "rows.parquet")
    conditions = accepted(800, maker)
    [batch] = rows.combine_chunks().to_batches()
    frame = spark.read.parquet(str(tmp_path / "rows.parquet")).coalesce(1)
    different = []
    for start in range(0, len(conditions), 200):
        some = conditions[start : start + 200]
        theirs = frame.selectExpr(*(f"({text[0 if calm else 1]}) AS c{at}" for at, (text, _) in enumerate(some)))
        for column, ((mine, _), evaluate) in zip(theirs.toArrow().columns, some, strict=True):
            got = evaluate(batch)
            for at, (one, other) in enumerate(zip(got.to_pylist(), column.to_pylist(), strict=True)):
                if one is not other:
                    different.append(f"{mine}: {one} here, {other} in Spark, for {rows.slice(at, 1).to_pylist()[0]}")
                    break
    assert not different, f"{len(different)}\n" + "\n".join(different[:10])
