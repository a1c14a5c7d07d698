"""Options of the rows: their columns, their expectations, documents in them, and rows that cannot be written."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lakesink.rows.expectations import OnUnmet
from lakesink.rows.plan import AVRO, DEBEZIUM, JSON, BinaryEncoding, OnMalformed
from lakesink.settings.option import LONGEST_COLUMN_BYTES, Option, one_of, read_place, read_sql, read_text
from lakesink.settings.option_types import SchemaEvolution
from lakesink.settings.parse import switch, whole_number
from lakesink_protocol.quality import EXPECTATION_NAME, MOST_EXPECTATIONS
from lakesink_protocol.redact import contains_secret

_MOST_NEW_COLUMNS = 1_000
_OF_KAFKA = "_kafka_"


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition in Spark SQL that every row makes true."""

    condition: str
    on_unmet: OnUnmet = OnUnmet.FAIL


def parse_expectations(value: Any) -> dict[str, Expectation]:
    """Expectations by name, from the option's value, or from JSON text; raises ValueError."""
    if isinstance(value, str):
        value = _from_json(value)
    if not isinstance(value, Mapping) or not value or len(value) > MOST_EXPECTATIONS:
        raise ValueError(f"expected a mapping from 1 to {MOST_EXPECTATIONS} names to conditions")
    for name in value:
        if not isinstance(name, str) or not EXPECTATION_NAME.fullmatch(name):
            raise ValueError(f"the name {str(name)[:40]!r} is not 1 to 63 of A-Z a-z 0-9 _, beginning with a letter")
    if len({name.lower() for name in value}) != len(value):
        raise ValueError("two names differ only in case")
    return {name: _expectation(name, one) for name, one in value.items()}


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError('expected JSON such as {"valid_age": ["age >= 0", "quarantine"]}') from None


def _expectation(name: str, value: Any) -> Expectation:
    pair = (value, OnUnmet.FAIL) if isinstance(value, str) else value
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f"{name} is neither a condition nor a pair such as ('age >= 0', 'warn')")
    condition = read_sql(pair[0], f"{name} has no condition")
    if pair[1] not in tuple(OnUnmet):
        raise ValueError(f"{name} says none of 'warn', 'quarantine' and 'fail' beside its condition")
    return Expectation(condition, OnUnmet(pair[1]))


def _schema_registry(value: Any) -> str:
    text = read_place(value)
    if contains_secret("schema_registry", text):
        raise ValueError(
            "expected no name and password in it: set LAKESINK_REGISTRY_USER and LAKESINK_REGISTRY_PASSWORD"
        )
    if "://" in text and ("?" in text or "#" in text):
        raise ValueError("expected an address without query and fragment")
    return text


def _ratio(value: Any) -> float:
    try:
        found = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        found = math.nan
    if not 0 <= found <= 1:
        raise ValueError("expected a number from 0 to 1")
    return found


def _rescue_column(value: Any) -> str:
    text = read_text(value)
    if text != text.strip() or len(text.encode()) > LONGEST_COLUMN_BYTES:
        raise ValueError(f"expected the name of a column, at most {LONGEST_COLUMN_BYTES} bytes")
    if text.lower().startswith(_OF_KAFKA):
        raise ValueError(f"names that begin with {_OF_KAFKA} are for columns of Kafka's metadata")
    return text


OPTIONS_OF_ROWS = (
    Option(
        "schema_evolution",
        one_of(SchemaEvolution),
        "What happens if the columns of the rows differ from the table's. `fail` stops the query and names the"
        " differences; `ignore` leaves out columns that the table lacks; `add` adds them to the table; `widen` does the"
        " same, promotes INT to BIGINT, FLOAT to DOUBLE and DECIMAL to more digits, and makes required columns optional"
        " that the rows lack. The schema changes in the batch's own commit. With `decode`, the keys of the documents or"
        " the fields of the writers' schemas count.",
        default="`fail`; `ignore` with `decode`",
    ),
    Option(
        "max_new_columns",
        partial(whole_number, lowest=1, highest=_MOST_NEW_COLUMNS),
        "Columns, nested ones counted one by one, that one batch of documents may add to the table. Keys beyond the"
        " limit get no column.",
        type="whole number from 1 to 1000",
        default="100",
    ),
    Option(
        "expect",
        parse_expectations,
        "Conditions that every row must make true, in Spark SQL: `{'valid_age': 'age between 0 and 120'}`. A batch with"
        " other rows fails; with `('age between 0 and 120', 'warn')` they are written and counted, with `'quarantine'`"
        " they become dead letters. With `decode`, conditions see the decoded columns, and are a part of Spark SQL."
        ' For `format("lakesink")`, `with_expectations` adds them to the rows.',
        type="mapping",
    ),
    Option(
        "decode",
        one_of((JSON, AVRO, *DEBEZIUM)),
        "`json` or `avro`: the column `value` of the rows contains such documents. Executors"
        " decode them into the table's columns. `debezium-json` or `debezium-avro`: it contains Debezium's events,"
        " which insert, update and delete rows.",
    ),
    Option(
        "on_malformed",
        one_of(OnMalformed),
        "Action for a row that cannot be written: a document that cannot be decoded exactly, NULL in a required column,"
        " a value that the column or its partition cannot hold. `fail` stops the query; `quarantine` makes it a dead"
        " letter.",
        default="`fail`",
    ),
    Option(
        "binary_encoding",
        one_of(BinaryEncoding),
        "How texts in documents spell bytes for BINARY columns: `base64` or `hex`. Without it such a text is malformed;"
        ' `decode="json"` needs it for a table with such a column. The bytes of Avro, and those of Debezium\'s JSON'
        " with a schema, need no option.",
    ),
    Option(
        "dead_letter_table",
        read_text,
        "Table for rows that are put aside, by `quarantine` of `on_malformed` or of `expect`. lakesink creates it.",
        default="the table's name with `__dead_letters`",
    ),
    Option("max_dead_letters", whole_number, "A batch with more dead letters fails.", type="whole number"),
    Option(
        "max_dead_letter_ratio",
        _ratio,
        "A batch fails if a larger part of its rows would be dead letters; 1 allows any part.",
        type="number from 0 to 1",
        default="0.5",
    ),
    Option(
        "rescue_column",
        _rescue_column,
        "Column of STRING that keeps, as JSON, what other columns do not hold of a document: keys or fields without a"
        " column, and values that do not fit an optional column. It is added to the table if it is missing. Needs"
        " numpy.",
    ),
    Option(
        "show_values",
        switch,
        "True to show malformed values, and keys that come twice in a task without an order, 60 characters of each, in"
        " errors and logs. They may be personal data.",
        type="true or false",
        default="false",
    ),
    Option(
        "schema_registry",
        _schema_registry,
        "Location of the writers' schemas: a Schema Registry, or a JSON file that maps ids to schemas.",
        type="URL, path or URI",
        default="required by `avro`",
    ),
)
