"""What a batch does to a target, as records say it: exactly that, or refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFileContent

from lakesink_protocol.change import LONGEST_TYPE, MOST_COLUMNS, ChangeInvalid, ColumnType, Content, SchemaChange
from lakesink_protocol.row_changes import Operation
from tests.protocol.test_receipt import JUNK

NAMES = st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=4).map(tuple)
COLUMNS = st.lists(st.builds(ColumnType, NAMES, st.text(min_size=1, max_size=20)), max_size=3).map(tuple)
CHANGES = st.builds(SchemaChange, COLUMNS, COLUMNS, st.lists(NAMES, max_size=3).map(tuple))


@given(CHANGES)
def test_a_schema_change_comes_back_as_it_was(change: SchemaChange) -> None:
    assert SchemaChange.from_json(change.to_json()) == change


@given(JUNK)
def test_anything_else_is_no_schema_change(junk: Any) -> None:
    with pytest.raises(ChangeInvalid):
        SchemaChange.from_json(junk)


@pytest.mark.parametrize(
    "change",
    [
        {"added": [[["a"], "long"]], "widened": []},
        {"added": [], "widened": [], "optional": [], "dropped": [["a"]]},
        {"added": [[[], "long"]], "widened": [], "optional": []},
        {"added": [[["a", ""], "long"]], "widened": [], "optional": []},
        {"added": [["a", "long"]], "widened": [], "optional": []},
        {"added": [[["a"], 7]], "widened": [], "optional": []},
        {"added": [[["a"], "x" * (LONGEST_TYPE + 1)]], "widened": [], "optional": []},
        {"added": [], "widened": [], "optional": [["a" * 1_001]]},
        {"added": [], "widened": [], "optional": [["a"]] * (MOST_COLUMNS + 1)},
    ],
)
def test_a_change_with_too_much_or_too_little_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ChangeInvalid):
        SchemaChange.from_json(change)


def test_the_longest_type_and_name_and_the_most_columns_are_no_more_than_allowed() -> None:
    longest = {"added": [[["a"], "x" * LONGEST_TYPE]], "widened": [], "optional": [["a" * 1_000]] * (MOST_COLUMNS - 1)}
    assert SchemaChange.from_json(longest).to_json() == longest


def test_stored_numbers_are_those_of_iceberg_and_of_earlier_keys_files() -> None:
    assert {one.name: one.value for one in Content} == {one.name: one.value for one in DataFileContent}
    assert {one.name: one.value for one in Operation} == {"UPSERT": 0, "DELETE": 1, "SNAPSHOT": 2}
