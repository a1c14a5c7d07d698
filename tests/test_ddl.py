"""Spark's DDL text is read as columns, or refused with the place; a test with Spark compares both readers."""

import re
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink.settings.ddl import columns_of
from lakesink.settings.settings import Settings
from lakesink_protocol.errors import SettingsError

NEEDED = {"sink_id": "events", "checkpoint": "/ck"}
UTC = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *((name, pa.int32()) for name in ("TINYINT", "byte", "SMALLINT", "short", "int", "INTEGER")),
        *((name, pa.int64()) for name in ("BIGINT", "Long")),
        *((name, pa.float32()) for name in ("FLOAT", "REAL")),
        *((name, pa.decimal128(10, 0)) for name in ("DECIMAL", "dec", "NUMERIC")),
        ("DECIMAL ( 38 )", pa.decimal128(38, 0)),
        ("DECIMAL(9,2)", pa.decimal128(9, 2)),
        *((name, UTC) for name in ("TIMESTAMP", "TIMESTAMP_LTZ")),
        ("TIMESTAMP_NTZ", pa.timestamp("us")),
        *((name, pa.string()) for name in ("STRING", "CHAR(3)", "CHARACTER(3)", "VARCHAR(3)")),
        ("ARRAY<MAP<STRING,ARRAY<INT>>>", pa.list_(pa.map_(pa.string(), pa.list_(pa.int32())))),
        ("STRUCT<a: INT, `b c` DATE>", pa.struct([("a", pa.int32()), ("b c", pa.date32())])),
    ],
)
def test_a_type_is_read(text: str, kind: pa.DataType) -> None:
    [field] = columns_of(f"c {text}")
    assert (field.name, field.type, field.nullable) == ("c", kind, True)


def test_names_not_null_and_comments_are_read() -> None:
    found = columns_of("""a: INT NOT NULL COMMENT 'it\\'s a', `b``, c` STRUCT<d: INT not null>
        comment "two", not INT, `größe` DOUBLE""")
    assert [(one.name, one.nullable, (one.metadata or {}).get(b"doc")) for one in found] == [
        ("a", False, b"it's a"),
        ("b`, c", True, b"two"),
        ("not", True, None),
        ("größe", True, None),
    ]
    assert not found.field(1).type.field("d").nullable


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a name of a column at the end"),
        ("id", "expected a type at the end (near id)"),
        ("id BIGINT,", "expected a name of a column at the end (near id BIGINT ,)"),
        ("id BIGINT at", "expected a comma or the end (near id BIGINT)"),
        ("id BIGNIT", "BIGNIT is not a type that a table can have (near id BIGNIT)"),
        ("t TIME(6)", "TIME is not a type that a table can have"),
        ("v VARIANT", "VARIANT is not a type"),
        ("a ARRAY<INT", "expected '>' at the end (near ARRAY < INT)"),
        ("a ARRAY", "expected '<' at the end"),
        ("m MAP<STRING>", "expected ',', not '>'"),
        ("s STRUCT<>", "expected a name of a column, not '>'"),
        ("d DECIMAL(39)", "expected a whole number from 1 to 38, not 39"),
        ("d DECIMAL(5, 6)", "expected a whole number from 0 to 5, not 6"),
        ("a INT NOT", "expected 'NULL' at the end"),
        ("a INT COMMENT b", "expected a comment in quotes, not 'b'"),
        (r"a INT COMMENT 'a\nb'", r"a comment has \n: a backslash can stand before quotes and backslashes only"),
        ("a-b INT", "'-b INT' cannot be read; back-quotes hold unusual names"),
        ("`a INT", "'`a INT' cannot be read"),
        ("größe INT", "write the name größe in back-quotes: `größe`"),
        ("1a INT", "write the name 1a in back-quotes: `1a`"),
        ("a VARCHAR", "expected '(' at the end"),
        (f"a {'ARRAY<' * 101}INT{'>' * 101}", "more than 100 levels"),
    ],
)
def test_a_text_that_is_no_ddl_says_where(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        columns_of(text)


@given(st.text("`'\"<>(),:aiINTnoul \\\n", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert columns_of(text).names


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"schema": "id BIGNIT", "decode": "json", "create_table": True}, "schema"),
        ({"schema": 7, "decode": "json", "create_table": True}, "schema"),
        ({"schema": "id BIGINT", "create_table": True}, "schema needs decode"),
        ({"schema": "id BIGINT", "decode": "json"}, "schema needs create_table"),
    ],
)
def test_a_schema_that_is_not_used_or_not_read_is_refused_by_name(options: dict[str, object], name: str) -> None:
    with pytest.raises(SettingsError, match=f"The option {name}"):
        Settings.parse(NEEDED | options)
