"""Conditions on documents: what is accepted, what is refused and why, and what they say of NULLs and limits.

`tests/spark/test_conditions.py` compares them with Spark.
"""

import pickle
import re
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
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

from lakesink.rows.columns import NameRule
from lakesink.rows.conditions import evaluator
from lakesink.rows.schema import arrow_type, parse_schema
from lakesink.settings.conditions import condition_of, condition_unsupported
from lakesink_protocol.suggest import did_you_mean

KINDS: dict[str, Any] = {
    "i": IntegerType(),
    "l": LongType(),
    "d": DecimalType(12, 2),
    "w": DecimalType(38, 0),
    "f": FloatType(),
    "g": DoubleType(),
    "s": StringType(),
    "b": BooleanType(),
    "date": DateType(),
    "at": TimestamptzType(),
    "local": TimestampType(),
    "x": BinaryType(),
    "st": StructType(NestedField(90, "k", LongType())),
}
COLUMNS = parse_schema(Schema(*(NestedField(at, *one) for at, one in enumerate(KINDS.items(), 1))).model_dump_json())
ROW: dict[str, Any] = {
    "i": 2**31 - 1,
    "l": -(2**63),
    "d": Decimal("1.50"),
    "w": Decimal("9" * 38),
    "f": 0.1,
    "g": float("nan"),
    "s": " ä ",
    "b": False,
    "date": date(1969, 12, 31),
    "at": datetime(1969, 12, 31, 23, tzinfo=UTC),
    "local": datetime(1969, 12, 31, 23),  # noqa: DTZ001
    "x": b"",
    "st": {"k": 5},
}


def values(condition: str, *rows: dict[str, Any], case_sensitive: bool = False) -> list[bool | None]:
    """What a condition is on rows, after the way to a task."""
    sent = pickle.loads(pickle.dumps(condition_of(condition)))  # noqa: S301 # written here
    batch = pa.RecordBatch.from_pylist(list(rows), pa.schema(list(arrow_type(COLUMNS))))
    found: list[bool | None] = evaluator(sent, COLUMNS, NameRule(case_sensitive).key)(batch).to_pylist()
    return found


@pytest.mark.parametrize(
    ("condition", "of_row", "of_nulls"),
    [
        ("i >= 0", True, None),
        ("i + 1 > 0", None, None),  # no INT: Spark's query would fail
        ("i + 2147483648 > 0", True, None),  # a BIGINT
        ("l - 1 < 0", None, None),
        ("i * l = 0", None, None),
        ("i = 2147483647.0", True, None),
        ("l < -9223372036854775808", False, None),
        ("l >= -9223372036854775808", True, None),
        ("w > 9223372036854775808", True, None),
        ("d * 2 = 3 AND d - 0.5 = 1", True, None),
        ("d + i > 2147483648.49", True, None),
        ("f = 0.1", False, None),  # 0.1 is a DOUBLE here, as in Spark
        ("g = g AND g > 1 AND g >= g AND NOT g < g", True, None),
        ("f < g", True, None),
        ("length(s) = 3 AND length(trim(s)) = 1", True, None),
        ("s > 'z'", False, None),
        ("s LIKE '_ä%' AND s NOT LIKE 'ä'", True, None),
        ("date < DATE '1970-01-01'", True, None),
        ("at = TIMESTAMP '1970-01-01T00:30:00+01:30'", True, None),
        ("local = TIMESTAMP_NTZ '1969-12-31 23:00:00.000'", True, None),
        ("b", False, None),
        ("NOT b", True, None),
        ("b = FALSE OR i > 0", True, None),
        ("b AND x IS NULL", False, None),
        ("b IS NULL OR b", False, True),
        ("x IS NOT NULL", True, False),
        ("st.k BETWEEN 5 AND 6", True, None),
        ("`st`.k NOT IN (4, 6)", True, None),
        ("coalesce(st.k, 0) IN (0, 5)", True, True),
        ("coalesce(d, 0) >= 0", True, True),
        ("i IS NULL OR i NOT BETWEEN 0 AND 1 AND b", False, True),
        ("1 < 2", True, True),
        ("'it''s' = `s`", False, None),
        ("ST.K = 5 AND NOT I = 0", True, None),
    ],
)
def test_a_condition_is_true_false_or_null(condition: str, of_row: Any, of_nulls: Any) -> None:
    assert values(condition, ROW, dict.fromkeys(ROW)) == [of_row, of_nulls]


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("i > 'a'", "it compares INT with STRING"),
        ("s > 0", "it compares STRING with INT"),
        ("at > DATE '2026-01-01'", "it compares TIMESTAMP with DATE"),
        ("at > local", "it compares TIMESTAMP with TIMESTAMP_NTZ"),
        ("i = f", "it compares INT with FLOAT or DOUBLE, which rounds"),
        ("d > g", "it compares DECIMAL(12,2) with FLOAT or DOUBLE, which rounds"),
        ("g IN (1, 2)", "IN takes no FLOAT or DOUBLE"),
        ("g + 1 > 0", "+ takes INT, BIGINT and DECIMAL, not DOUBLE"),
        ("l < 9223372036854775808", "it compares INT or BIGINT with 9223372036854775808, which no BIGINT can reach"),
        ("i NOT BETWEEN -9223372036854775808.5 AND 0", "which no BIGINT can reach"),
        ("w > 0.5", "39 digits are needed for exact numbers, and 38 are possible"),
        ("i + 1 + i > 0", "+ of INT or BIGINT takes no other sum or product of them"),
        ("i * (l - 1) > 0", "* of INT or BIGINT takes no other sum or product of them"),
        ("w * 2 > 0", "40 digits are needed"),
        ("x = x", "values of BINARY cannot be compared, only IS NULL"),
        ("st IS NULL AND st = st", "cannot be compared, only IS NULL"),
        ("b < TRUE", "< cannot compare BOOLEAN values"),
        ("i", "it is INT, not a condition (BOOLEAN)"),
        ("i AND b", "AND takes BOOLEAN, not INT"),
        ("length(x) > 0", "length takes STRING, not BINARY"),
        ("i LIKE 'a'", "LIKE takes STRING, not INT"),
        ("nope > 0", "there is no column nope"),
        ("st.nope > 0", "there is no column st.nope"),
        ("s.k > 0", "there is no column s.k"),
        ("upper(s) = 'A'", "there are the functions length, trim, coalesce alone"),
        ("length(s, s) > 0", "length takes another number of values"),
        ("coalesce(i) > 0", "coalesce takes another number of values"),
        ("i > 1 = b", "'=' is not understood here"),
        ("i > 1 IS NULL", "'IS' is not understood here"),
        ("i = NULL", "NULL is not understood here"),
        ("b IS TRUE", "expected 'NULL', not 'TRUE'"),
        ("CASE WHEN b THEN b END", "CASE is not understood here"),
        ("s LIKE s", "LIKE takes a text in quotes"),
        ("s LIKE 'a' ESCAPE '!'", "'ESCAPE' is not understood here"),
        (r"s = 'a\n'", "cannot be read"),
        ('s = "a"', "cannot be read"),
        ("s = '${x}'", "cannot be read"),
        ("s = 'a' 'b'", "'b' is not understood here"),
        ("i % 2 = 0", "'% 2 = 0' cannot be read"),
        ("i -- 1 > 0", "cannot be read"),
        ("i /* > 1 */ > 0", "cannot be read"),
        ("i > 1L", "'1L' cannot be read"),
        ("i > 1e3", "'1e3' cannot be read"),
        ("i > .5", "'.' is not understood here"),
        ("i > 5.", "'5.' cannot be read"),
        ("-i > 0", "a minus can stand before a number"),
        (f"w > {'9' * 39}", "a number of more than 38 digits"),
        ("date > DATE '2026-02-30'", "day is out of range for month"),
        ("date > DATE '2026-2-3'", "DATE takes a text as '2026-01-31'"),
        ("at > TIMESTAMP '2026-01-31 12:00:00'", "TIMESTAMP takes a text as '2026-01-31 12:00:00Z'"),
        ("local > TIMESTAMP_NTZ '2026-01-31 12:00:00Z'", "TIMESTAMP_NTZ takes a text as '2026-01-31 12:00:00'"),
        ("i >", "expected a value at the end"),
        ("i > 0)", "')' is not understood here"),
        ("(i > 0", "expected ')' at the end"),
        ("(" * 500 + "b" + ")" * 500, "more than 50 operations and parentheses"),
        ("NOT " * 500 + "b", "more than 50 operations and parentheses"),
        ("i" + " + i" * 500 + " > 0", "more than 50 operations and parentheses"),
    ],
)
def test_a_condition_without_one_meaning_is_refused(condition: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        values(condition, ROW)


@pytest.mark.parametrize("names", [["name"], [f"column_of_an_order_{number}" for number in range(20)]])
def test_a_reason_ends_with_a_whole_word(names: list[str]) -> None:
    reason = f"there is no column nme. {did_you_mean('nme', names)}"
    said = condition_unsupported("rule", ValueError(reason)).what.partition("documents: ")[2]
    assert said == reason or (said.endswith(" ...") and reason.startswith(f"{said[:-4]} "))


def test_a_chain_of_conditions_may_be_long() -> None:
    assert values(" OR ".join(["i = 1"] * 600), ROW) == [False]


def test_names_are_those_of_the_session_in_case() -> None:
    assert values("I > 0", ROW) == [True]
    with pytest.raises(ValueError, match="there is no column I"):
        values("I > 0", ROW, case_sensitive=True)


def test_an_executor_evaluates_a_condition_without_pandas_and_pyiceberg() -> None:
    program = """
import sys
import pyarrow as pa
from lakesink.rows.columns import NameRule
from lakesink.rows.conditions import Call, ColumnRef, Literal, evaluator
from lakesink.rows.schema import Field, Primitive, Struct

columns = Struct((Field(1, "i", False, Primitive("int")), Field(2, "d", False, Primitive("decimal(9, 2)"))))
i, d = ColumnRef(("i",)), ColumnRef(("d",))
one = Call("+", (i, Literal("1", pa.int32())))
less = Call("<", (d, Literal("0.5", pa.decimal128(1, 1))))
condition = Call("AND", (Call(">", (one, Literal("0", pa.int32()))), less))
rows = pa.RecordBatch.from_arrays([pa.nulls(1, pa.int32()), pa.nulls(1, pa.decimal128(9, 2))], names=["i", "d"])
evaluator(condition, columns, str.lower)(rows)
print([name for name in ("pandas", "pyiceberg", "pyspark") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
