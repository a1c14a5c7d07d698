"""What a stream does with rows that do not fit, as its snapshots say it and as doctor tells it."""

import json

import pytest

from lakesink.settings.settings import POLICY, Settings, policy_of
from lakesink_protocol.row_changes import Mode
from lakesink_tools.checks.doctor.policy import ChangePolicy, change_policy, policy_in_words

STREAM = {"sink_id": "a", "checkpoint": "c"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "a column that the table lacks stops the query; a row that cannot be written stops the query"),
        (
            {"schema_evolution": "ignore"},
            "a column that the table lacks is left out; a row",
        ),
        (
            {"schema_evolution": "add", "on_malformed": "quarantine"},
            "a column that the table lacks becomes a column; a row that cannot be written goes to the dead letters",
        ),
        ({"decode": "json"}, "a key without a column is left out and counted; a row"),
        ({"decode": "json", "schema_evolution": "fail"}, "a key without a column stops the query; a row"),
        ({"decode": "json", "rescue_column": "rest"}, "a key without a column is kept in rest; a row"),
        (
            {"decode": "json", "rescue_column": "rest", "schema_evolution": "widen"},
            "a key without a column becomes a column, or is kept in rest; a row",
        ),
        (
            {"decode": "json", "on_malformed": "quarantine", "dead_letter_table": "a.bad"},
            "a key without a column is left out and counted; a row that cannot be written goes to a.bad",
        ),
    ],
)
def test_the_policy_of_a_query_is_told_from_the_property_of_its_snapshots(options: dict[str, str], words: str) -> None:
    written = policy_of(Settings.parse({**STREAM, **options}))
    assert not written if not options else set(written) == {POLICY}
    assert words in policy_in_words(written.get(POLICY, ""))


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '"x"', "[" * 100_000, '{"decode": 1}', '{"other": "x"}', json.dumps({"on_malformed": "x" * 9999})],
)
def test_a_property_that_another_program_wrote_is_no_policy(text: str) -> None:
    assert policy_in_words(text) == policy_in_words("")


def test_names_in_a_property_are_safe_to_show() -> None:
    said = policy_in_words('{"decode":"json","rescue_column":"\\u001b[2J","schema_evolution":"ignore"}')
    assert "\x1b" not in said


def test_changes_by_key_are_told_from_the_property_of_a_snapshot() -> None:
    options = {"mode": "changes", "keys": ["a, b", "c"], "sequence_by": "lsn", "apply_as_deletes": "op = 'd'"}
    written = policy_of(Settings.parse({**STREAM, **options}))
    found = change_policy(written[POLICY])
    assert found == ChangePolicy(Mode.CHANGES, ("a, b", "c"), ("lsn",), keeps_deleted=False)
    soft = policy_of(Settings.parse({**STREAM, **options, "deletes": "soft"}))
    assert change_policy(soft[POLICY]) == ChangePolicy(Mode.CHANGES, ("a, b", "c"), ("lsn",), keeps_deleted=True)


def test_an_append_has_no_policy_of_changes() -> None:
    assert policy_of(Settings.parse(STREAM)) == {}
    assert change_policy(policy_of(Settings.parse({**STREAM, "mode": "upsert", "output_mode": "update"}))[POLICY]) == (
        ChangePolicy(Mode.UPSERT, (), (), keeps_deleted=False, updates=True)
    )
    assert change_policy("") is None
