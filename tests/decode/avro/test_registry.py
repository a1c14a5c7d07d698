"""Schemas come from a file or from a registry; that it does not know one is not that it cannot be asked."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakesink.decode.avro.registry import PASSWORD, TOKEN, USER, schemas_in_file, schemas_of
from lakesink.decode.avro.schema import Record, Reference, Scalar
from lakesink_protocol.errors import WriteError
from servers.ports import free_port
from tests.decode.avro.messages import record
from tests.decode.avro.schema_registry import SchemaRegistry, registered, schema_registry

EVENT = record(("id", "long"))
ROOT = Record((("id", Scalar("long")),))
UNREACHABLE, REFUSED = "LAKESINK_REGISTRY_UNREACHABLE", "LAKESINK_REGISTRY_REFUSED"


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        found.schemas[7] = registered(EVENT)
        yield found


def root_of(registry: SchemaRegistry, number: int = 7) -> object:
    found = schemas_of(registry.url, {})(number)
    return found and found.root


def test_a_registry_is_asked_once_for_each_schema(registry: SchemaRegistry) -> None:
    assert [root_of(registry), schemas_of(f"{registry.url}/", {})(7), root_of(registry)][::2] == [ROOT, ROOT]
    assert registry.asked == [("/schemas/ids/7", None)]


def test_what_a_registry_does_not_have_may_come_later(registry: SchemaRegistry) -> None:
    assert root_of(registry, 8) is None
    registry.schemas[8] = registered(EVENT)
    assert root_of(registry, 8) == ROOT


def test_a_schema_of_another_format_is_none_of_avro_s(registry: SchemaRegistry) -> None:
    registry.schemas[9] = {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}
    assert root_of(registry, 9) is None


def test_references_are_followed(registry: SchemaRegistry) -> None:
    name = {"type": "fixed", "name": "shop.Id", "size": 4}
    customer = {"type": "record", "name": "shop.Customer", "fields": [{"name": "id", "type": "Id"}]}
    order = {
        "type": "record",
        "name": "shop.Order",
        "fields": [{"name": "id", "type": "Id"}, {"name": "who", "type": "Customer"}],
    }
    to_id = {"name": "shop.Id", "subject": "id/value", "version": 1}
    to_customer = {"name": "shop.Customer", "subject": "customer", "version": 3}
    registry.subjects = {
        ("id%2Fvalue", 1): registered(name),
        ("customer", 3): registered(customer, references=[to_id]),
    }
    registry.schemas[10] = registered(order, references=[to_id, to_customer])
    assert root_of(registry, 10) == Record((("id", Reference("shop.Id")), ("who", Reference("shop.Customer"))))


def test_an_answer_that_does_not_come_at_once_is_waited_for(registry: SchemaRegistry) -> None:
    registry.broken = [(503, b""), (429, b"")]
    assert root_of(registry) == ROOT


def test_a_registry_that_is_not_there_is_no_fault_of_a_value() -> None:
    with pytest.raises(WriteError) as refused:
        schemas_of(f"http://127.0.0.1:{free_port()}", {})(7)
    assert refused.value.code == UNREACHABLE


@pytest.mark.parametrize(
    "answer",
    [
        (404, b"404 page not found"),
        (404, b'{"error_code": 404, "message": "no such page"}'),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"schema": "{"}'),
        (200, b'{"schema": "\\"int\\"", "references": [{}]}'),
        (401, b""),
        (403, b""),
    ],
)
def test_what_answers_in_place_of_a_registry_is_no_fault_of_a_value(
    registry: SchemaRegistry, answer: tuple[int, bytes]
) -> None:
    registry.broken = [answer]
    with pytest.raises(WriteError) as refused:
        root_of(registry)
    assert refused.value.code == REFUSED


def test_a_name_and_password_are_found_in_the_environment_and_shown_to_nobody(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.credentials = ("reader", "hunter2-hunter2")
    with pytest.raises(WriteError, match=f"401 .*{USER}"):
        root_of(registry)
    monkeypatch.setenv(USER, "reader")
    monkeypatch.setenv(PASSWORD, "wrong-hunter2")
    with pytest.raises(WriteError) as refused:
        root_of(registry)
    assert "hunter2" not in str(refused.value)
    monkeypatch.setenv(PASSWORD, "hunter2-hunter2")
    assert root_of(registry) == ROOT


def test_a_password_follows_no_redirect(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "hunter2-hunter2")
    with schema_registry() as other:
        registry.broken = [(302, f"{other.url}/schemas/ids/7".encode())]
        with pytest.raises(WriteError, match="it answers 302"):
            root_of(registry)
        assert registry.asked == [("/schemas/ids/7", "Bearer hunter2-hunter2")]
        assert other.asked == []


def test_a_file_has_schemas_as_json_or_as_its_text(tmp_path: Path) -> None:
    file = tmp_path / "schemas.json"
    file.write_text(json.dumps({"7": EVENT, "8": json.dumps(EVENT), "9": "long"}))
    find = schemas_of(str(file), schemas_in_file(str(file)))
    assert [found and found.root for found in map(find, (7, 8, 9, 10))] == [ROOT, ROOT, Scalar("long"), None]


def test_a_file_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(WriteError) as refused:
        schemas_in_file(str(tmp_path / "missing.json"))
    assert refused.value.code == UNREACHABLE


@pytest.mark.parametrize("content", ["", "[]", '{"seven": "int"}', "[" * 100_000])
def test_a_file_of_another_form_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "schemas.json"
    file.write_text(content)
    with pytest.raises(WriteError) as refused:
        schemas_in_file(str(file))
    assert refused.value.code == REFUSED


def test_a_schema_in_a_file_that_is_none_is_refused_when_a_value_names_it() -> None:
    with pytest.raises(WriteError) as refused:
        schemas_of("schemas.json", {7: "{}"})(7)
    assert refused.value.code == REFUSED
