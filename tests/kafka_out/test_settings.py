"""The options of the Kafka sink are checked before anything is opened, and secrets stay on the driver."""

import pickle
from pathlib import Path
from typing import Any

import pytest

import lakesink
from lakesink.sinks.kafka.staged_rows import RecordsWriter
from lakesink.sinks.staged.parts import PartsWriter
from lakesink_protocol.errors import SettingsError
from lakesink_tools.cli.run.outbox import _properties

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


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"retries": 0}, "`retries` must be set >= 1 when `enable.idempotence` is true"),
        ({"max.in.flight": 100}, "`max.in.flight` must be set <= 5 when `enable.idempotence` is true"),
        ({"queuing.strategy": "lifo"}, "`queuing.strategy` must be set to `fifo` when `enable.idempotence` is true"),
        ({"message.timeout.ms": 300_001}, "`message.timeout.ms` must be set <= `transaction.timeout.ms`"),
        ({"delivery.timeout.ms": "300001"}, "`message.timeout.ms` must be set <= `transaction.timeout.ms`"),
        ({"linger.ms": 300_001}, "`message.timeout.ms` must be greater than `linger.ms`"),
        ({"session.timeout.ms": 400_000}, "`max.poll.interval.ms`must be >= `session.timeout.ms`"),
    ],
)
def test_what_only_a_producer_or_a_consumer_refuses_is_told_in_full_before_the_start(
    tmp_path: Path, config: dict[str, Any], says: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        sink(tmp_path, config=config)
    assert caught.value.code == "LAKESINK_OPTION_INVALID"
    assert caught.value.what == f"The option config: {says}."


@pytest.mark.parametrize("name", ["message.max.bytes", "transaction.timeout.ms"])
@pytest.mark.parametrize("value", ["0x100000", "0100000", " 100000", "+100000", "1e6", 1e6, "", None, True, [], "x"])
def test_a_number_that_is_not_decimal_is_refused_by_name(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"config: {name} must be a whole number, in decimal digits") as caught:
        sink(tmp_path, config={name: value})
    assert caught.value.code == "LAKESINK_OPTION_INVALID"


def test_decimal_numbers_are_taken_as_text_or_number(tmp_path: Path) -> None:
    made = sink(tmp_path, config={"message.max.bytes": "2000000", "transaction.timeout.ms": 60_000})
    clients = made.clients
    assert (clients.max_message_bytes, clients.transaction_timeout_ms) == (2_000_000, 60_000)


BAIT = "Hunter2-S3cr3t!"


@pytest.mark.parametrize("bait", [BAIT, f'{BAIT}"x', f'"{BAIT}', "20240701", f"{BAIT}\n{BAIT}", BAIT * 100])
@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("security.protocol", {}),
        ("compression.type", {}),
        ("linger.ms", {}),
        ("retries", {}),
        ("message.max.bytes", {}),
        ("debug", {}),
        ("sasl.mechanism", {"security.protocol": "SASL_PLAINTEXT"}),
        ("plugin.library.paths", {}),
        ("topic.blacklist", {}),
        ("ssl.key.pem", {"security.protocol": "ssl"}),
        ("ssl.ca.location", {"security.protocol": "ssl"}),
        ("partitioner", {}),
    ],
)
def test_no_error_shows_a_value_of_config(tmp_path: Path, name: str, config: dict[str, str], bait: str) -> None:
    try:
        sink(tmp_path, config={**config, name: bait})
    except SettingsError as error:
        told = f"{error}{error.__cause__}{error.__context__}"
        assert bait not in told
        assert BAIT not in told
        assert "Hunter2" not in told


def test_an_error_names_the_property_whose_value_it_hides(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        sink(tmp_path, config={"security.protocol": BAIT})
    assert caught.value.what == 'The option config: Invalid value for configuration property "security.protocol".'
    with pytest.raises(SettingsError) as caught:
        sink(tmp_path, config={"compression.level": 12345})
    says = 'Configuration property "compression.level": its value is outside allowed range -1..12'
    assert caught.value.what == f"The option config: {says}."


def test_nothing_shows_a_secret_of_the_client(tmp_path: Path) -> None:
    config = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    made = sink(tmp_path, config={**config, "sasl.password": SECRET})
    assert SECRET not in repr(made) + repr(made.clients) + str(vars(made))
    error = made.clients.describe(RuntimeError(f"cannot log in with {SECRET}"))
    assert SECRET not in error


def test_a_wrong_value_of_a_secret_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        sink(tmp_path, config={"sasl.password": SECRET, "security.protocol": SECRET})
    assert SECRET not in f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"


def test_the_writer_that_travels_to_executors_has_no_client() -> None:
    writer = RecordsWriter(PartsWriter("f", "s", 1, "lz4", 1), "orders", 1)
    assert b"confluent" not in pickle.dumps(writer)
    assert b"127.0.0.1" not in pickle.dumps(writer)


def test_a_config_file_may_begin_with_a_byte_order_mark_and_must_be_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"\xef\xbb\xbfclient.id = shop\n# a comment\n")
    assert _properties(file) == {"client.id": "shop"}
    file.write_bytes("client.id=Münster".encode("latin-1"))
    with pytest.raises(SettingsError, match=r"OPTION_INVALID.*--config: the file is not text in UTF-8"):
        _properties(file)
