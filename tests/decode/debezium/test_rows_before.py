"""What a row before a change may be: it is needed by deletes, and by updates that change the key."""

from collections.abc import Callable
from typing import Any

import pytest

from lakesink_protocol.measures import UNREAD_BEFORE
from tests.decode.debezium.events import Change, decoded, event, table, wrapped
from tests.decode.debezium.test_avro_events import event as message
from tests.decode.debezium.test_avro_events import read

WIDE = 2**40
"""Too large for an INT."""
COLUMNS = table(version="int", x="int", key=["id"])
FIELDS = (("id", "long"), ("version", ["null", "long"]), ("x", ["null", "long"]))
KEEPS = {"changelog": {"has_changelog": True}, "soft deletes": {"soft_deletes": True}, "hard deletes": {}}
Read = Callable[..., tuple[list[Change], Any]]


def row(number: int, x: int | None, version: int | None = 1) -> dict[str, int | None]:
    return {"id": number, "version": version, "x": x}


def of_json(*events: tuple[Any, ...], **settings: Any) -> tuple[list[Change], Any]:
    return decoded(COLUMNS, *(event(*one) for one in events), **settings)


def of_wrapped_json(*events: tuple[Any, ...], **settings: Any) -> tuple[list[Change], Any]:
    return decoded(COLUMNS, *(wrapped(event(*one), x={"type": "int64"}) for one in events), **settings)


def of_avro(*events: tuple[Any, ...], **settings: Any) -> tuple[list[Change], Any]:
    rows = ((operation, *row, None)[:3] for operation, *row in events)
    messages = [message(operation, after, before, FIELDS) for operation, after, before in rows]
    return read(COLUMNS, *messages, fields=FIELDS, **settings)


FORMATS: dict[str, Read] = {"json": of_json, "wrapped json": of_wrapped_json, "avro": of_avro}
every_format = pytest.mark.parametrize("name", FORMATS)


@every_format
@pytest.mark.parametrize("keeps", KEEPS)
def test_an_update_of_a_row_needs_no_value_before_it(name: str, keeps: str) -> None:
    changes, found = FORMATS[name](
        ("u", row(1, 5), row(1, WIDE)), ("u", row(2, 5), row(2, 1, WIDE)), sequence=["version"], **KEEPS[keeps]
    )
    assert [one[:2] for one in changes] == [("UPSERT", row(1, 5)), ("UPSERT", row(2, 5))]
    assert (found.malformed, found.unread) == (0, 0)


@every_format
def test_a_delete_in_a_changelog_has_null_for_a_value_that_does_not_fit_and_is_counted(name: str) -> None:
    changes, found = FORMATS[name](
        ("d", None, row(1, WIDE)),
        ("u", row(3, 5), row(2, WIDE)),
        ("d", None, row(4, 7)),
        ("u", row(5, 1), row(5, WIDE)),
        has_changelog=True,
    )
    assert [one[:2] for one in changes] == [
        ("DELETE", row(1, None)),
        ("DELETE", row(2, None)),
        ("UPSERT", row(3, 5)),
        ("DELETE", row(4, 7)),
        ("UPSERT", row(5, 1)),
    ]
    assert found.quality.counts == {UNREAD_BEFORE: 2}
    assert found.quality.to_summary() == {"lakesink.unread-rows-before": "2"}


@every_format
def test_a_split_has_the_sequence_of_its_event_whatever_it_was_before(name: str) -> None:
    changes, found = FORMATS[name](("u", row(3, 5, 9), row(2, 5, WIDE)), sequence=["version"], has_changelog=True)
    assert [one[:2] for one in changes] == [("DELETE", row(2, 5, 9)), ("UPSERT", row(3, 5, 9))]
    assert not found.quality.counts


@every_format
@pytest.mark.parametrize(
    ("bad", "settings", "column"),
    [
        (("d", None, row(1, WIDE)), {"soft_deletes": True}, "x"),
        (("u", row(2, 1), row(1, WIDE)), {"soft_deletes": True}, "x"),
        (("d", None, row(1, 1, WIDE)), {"sequence": ["version"], "has_changelog": True}, "version"),
        (("c", row(1, WIDE)), {"has_changelog": True}, "x"),
    ],
)
def test_a_value_that_a_change_needs_is_malformed(
    name: str, bad: tuple[Any, ...], settings: dict[str, Any], column: str
) -> None:
    changes, found = FORMATS[name](("c", row(7, 1)), bad, **settings)
    assert (changes, found.malformed) == ([], 1)
    assert found.misfits[0].column.rpartition(".")[2] == column
    assert "Debezium's placeholder" not in found.misfits[0].found


@pytest.mark.parametrize("operation", ["u", "d"])
@pytest.mark.parametrize("name", ["json", "avro"])
def test_a_key_before_that_does_not_fit_is_malformed(name: str, operation: str) -> None:
    columns = table(id="int", x="int")
    change = (operation, None if operation == "d" else {"id": 1, "x": 1}, {"id": WIDE, "x": 1})
    if name == "json":
        changes, found = decoded(columns, event(*change), has_changelog=True)
    else:
        fields = (("id", "long"), ("x", ["null", "long"]))
        changes, found = read(columns, message(*change, fields=fields), fields=fields, has_changelog=True)
    assert (changes, found.malformed) == ([], 1)
    assert found.misfits[0].column.rpartition(".")[2] == "id"
