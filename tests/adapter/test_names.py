"""A table's name that is refused is quoted as the user wrote it."""

import pytest

from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.side.letters_table import letters_table
from lakesink_catalog.tables.tables import MAX_NAME_LENGTH
from lakesink_protocol.errors import SettingsError


@pytest.mark.parametrize(
    "name", ["justname", "db.a/b", "db.a#b", "db.a%20b", "db..", "db.x;y", "db.`t`", "db.t\n", "db.t."]
)
def test_a_refusal_quotes_the_name_of_the_user(name: str) -> None:
    with pytest.raises(SettingsError, match="LAKESINK_TABLE_NAME_INVALID") as refused:
        letters_table(name, Settings())
    assert repr(name) in refused.value.what
    assert "__dead_letters" not in str(refused.value)


def test_a_table_of_the_longest_name_needs_no_table_of_letters() -> None:
    assert letters_table(f"db.{'t' * MAX_NAME_LENGTH}", Settings()).endswith("__dead_letters")
