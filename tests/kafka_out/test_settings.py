"""The options of the Kafka sink are checked before anything is opened, and secrets stay on the driver."""

import pickle
from pathlib import Path
from typing import Any

import pytest

import lakesink
from lakesink.sinks.directory.parts import PartsPlan, PartsWriter
from lakesink.sinks.kafka.rows import RecordsWriter
from lakesink_protocol.errors import SettingsError

SECRET = "hunter2-of-kafka"  # noqa: S105 - the bait


def sink(folder: Path, **changes: Any) -> lakesink.KafkaSink:
    options: dict[str, Any] = {"topic": "orders", "sink_id": "orders", "staging": folder, **changes}
    return lakesink.KafkaSink(options.pop("bootstrap_servers", "127.0.0.1:1"), **options)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("bootstrap_servers", ""),
        ("bootstrap_servers", None),
        ("topic", ""),
        ("topic", "a b"),
        ("topic", ".."),
        ("topic", "t" * 250),
        ("sink_id", "../x"),
        ("staging", ""),
        ("staging", "a\nb"),
        ("staging", "s3://key:secret@bucket/x"),
        ("config", {"transactional.id": "mine"}),
        ("config", {"enable.idempotence": False}),
        ("config", {"acks": "1"}),
        ("config", {"isolation.level": "read_uncommitted"}),
        ("config", {"no.such.property": "x"}),
        ("config", {"security.protocol": "none-such"}),
        ("accept", "Nonsense:1:commit"),
        ("prepared_max_age", "soon"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, option: str, value: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        sink(tmp_path, **{option: value})
    assert caught.value.code == "LAKESINK_OPTION_INVALID"
    assert option in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partitioner", "random"),
        ("partitioner", "murmur2_random"),
        ("default.topic.config", {"partitioner": "random"}),
        ("test.mock.num.brokers", 1),
    ],
)
def test_a_property_that_moves_records_to_another_place_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"the sink itself sets {name}, on which exactly-once depends"):
        sink(tmp_path, config={name: value})


def test_nothing_shows_a_secret_of_the_client(tmp_path: Path) -> None:
    config = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    made = sink(tmp_path, config={**config, "sasl.password": SECRET})
    assert SECRET not in repr(made.settings) + repr(made) + repr(made.settings.clients) + str(vars(made))
    error = made.settings.clients.describe(RuntimeError(f"cannot log in with {SECRET}"))
    assert SECRET not in error


def test_a_wrong_value_of_a_secret_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        sink(tmp_path, config={"sasl.password": SECRET, "security.protocol": SECRET})
    assert SECRET not in f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"


def test_the_writer_that_travels_to_executors_has_no_client() -> None:
    writer = RecordsWriter(PartsWriter(PartsPlan("f", "s", 1, "parquet", "lz4", 1)), "orders", 1)
    assert b"confluent" not in pickle.dumps(writer)
    assert b"127.0.0.1" not in pickle.dumps(writer)
