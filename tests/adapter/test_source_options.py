"""Options of ``format("lakesink")`` in Spark's spelling: parsed as those of a stream, refused if they bear secrets."""

from collections.abc import Callable

import pytest

from lakesink.spark.source.source_options import stream_destination, transaction_destination
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import SinkKind

STREAM = {"table": "demo.events", "sink-id": "events", "checkpointLocation": "/ck"}
WRITE = {"table": "demo.loads", "txn-app-id": "nightly", "txn-version": "42"}


def test_a_stream_is_where_its_options_say() -> None:
    options = {"Create-Table": "true", "branch": "audit", "target-file-size-bytes": "64MB", "queryName": "q"}
    groups = {"catalog": "prod", "catalog.uri": "http://catalog:8181", "snapshot-property.team": "data"}
    found = stream_destination(STREAM | options | groups)
    assert (found.table, found.key.name, found.key.branch) == ("demo.events", "events", "audit")
    settings = found.settings
    assert (settings.checkpoint, settings.create_table, settings.target_file_size_bytes) == ("/ck", True, 2**26)
    assert settings.catalog == "prod"
    assert settings.catalog_properties == {"uri": "http://catalog:8181"}
    assert settings.snapshot_properties == {"team": "data"}


def test_the_encoding_of_bytes_has_the_formats_spelling() -> None:
    found = stream_destination(STREAM | {"decode": "json", "binary-encoding": "hex"})
    assert found.settings.binary_encoding == "hex"


def test_a_batch_write_is_named_by_application_and_version() -> None:
    found, batch = transaction_destination(WRITE)
    assert (found.key.name, found.key.kind, batch.batch_id) == ("nightly", SinkKind.TXN, 42)


@pytest.mark.parametrize("missing", STREAM)
def test_what_a_stream_needs_is_asked_for_by_its_name_in_spark(missing: str) -> None:
    with pytest.raises(SettingsError) as error:
        stream_destination({name: value for name, value in STREAM.items() if name != missing})
    assert error.value.code == "LAKESINK_OPTION_MISSING"
    assert missing in error.value.what


@pytest.mark.parametrize("missing", WRITE)
def test_what_a_batch_write_needs_is_asked_for_by_its_name_in_spark(missing: str) -> None:
    with pytest.raises(SettingsError) as error:
        transaction_destination({name: value for name, value in WRITE.items() if name != missing})
    assert error.value.code == "LAKESINK_OPTION_MISSING"
    assert missing in error.value.what


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("sink_id", "sink-id"),
        ("sinkid", "sink-id"),
        ("target-file-size", "target-file-size-bytes"),
        ("checkpoint", "checkpointlocation"),
        ("create_table", "create-table"),
    ],
)
def test_an_unknown_option_names_the_nearest(given: str, meant: str) -> None:
    with pytest.raises(SettingsError) as error:
        stream_destination(STREAM | {given: "x"})
    assert error.value.code == "LAKESINK_OPTION_UNKNOWN"
    assert f"Did you mean {meant!r}?" in error.value.what


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("target-file-size-bytes", "many"),
        ("create-table", "perhaps"),
        ("sink-id", "not a name"),
        ("compression-codec", "zip"),
        ("accept", "Gap"),
        ("snapshot-property.operation", "mine"),
    ],
)
def test_a_malformed_option_is_refused_in_sparks_spelling(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as error:
        stream_destination(STREAM | {name: value})
    assert error.value.code == "LAKESINK_OPTION_INVALID"
    assert name in error.value.what or name.startswith("snapshot-property.")


@pytest.mark.parametrize("version", ["-1", "", "1.5", "yesterday", "9" * 30])
def test_a_version_is_a_whole_number(version: str) -> None:
    with pytest.raises(SettingsError) as error:
        transaction_destination(WRITE | {"txn-version": version})
    assert error.value.code == "LAKESINK_OPTION_INVALID"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("catalog.uri", "postgresql://user:canary@host/db"),
        ("catalog.s3.access-key-id", "canary"),
        ("catalog.s3.secret-access-key", "canary"),
        ("catalog.token", "canary"),
        ("catalog.credential", "id:canary"),
        ("catalog.header.Authorization", "Bearer canary"),
        ("catalog.header.X-Team-Pass", "canary"),
        ("Catalog.Header.X-Anything", "canary"),
        ("snapshot-property.password", "canary"),
        ("checkpointLocation", "s3://key:canary@bucket/ck"),
        ("catalog.pass", "canary"),
        ("catalog.uri", "postgresql://h/db?user=u&password=canary"),
        ("catalog.uri", "https://h/x?sig=canary"),
        ("catalog.auth", '{"type": "basic", "basic": {"username": "u", "password": "canary"}}'),
        ("catalog.auth", '{"type":"oauth2","oauth2":{"client_id":"u","client_secret":"canary"}}'),
        ("snapshot-property.note", "password=canary"),
        ("snapshot-property.note", "Bearer canary-canary"),
        ("table", "demo.token=canary"),
    ],
)
def test_an_option_that_bears_a_secret_is_refused_without_showing_it(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as error:
        stream_destination(STREAM | {name: value})
    assert error.value.code == "LAKESINK_OPTION_SECRET"
    assert "canary" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("catalog.type", "rest"),
        ("catalog.uri", "sqlite:////srv/lake/catalog.db"),
        ("catalog.uri", "postgresql://lake@db.example:5432/lake?sslmode=require&application_name=passenger"),
        ("catalog.uri", "http://catalog.example:8181"),
        ("catalog.uri", "http://credential-broker:8181/api/catalog"),
        ("catalog.uri", "thrift://hive-metastore.example:9083"),
        ("catalog.warehouse", "file:///srv/lake/warehouse"),
        ("catalog.warehouse", "arn:aws:s3tables:eu-central-1:111122223333:bucket/lake"),
        ("catalog.warehouse", "hdfs://namenode.example:8020/warehouse"),
        ("catalog.warehouse", "abfss://container@account.dfs.core.windows.net/warehouse"),
        ("catalog.oauth2-server-uri", "http://catalog.example:8181/v1/oauth/tokens"),
        ("catalog.oauth2-server-uri", "https://login.example/realms/lake/protocol/openid-connect/token"),
        ("catalog.scope", "PRINCIPAL_ROLE:ALL"),
        ("catalog.audience", "https://lake.example/.default"),
        ("catalog.rest.sigv4-enabled", "true"),
        ("catalog.rest.signing-name", "execute-api"),
        ("catalog.rest.signing-region", "us-east-1"),
        ("catalog.prefix", "lake"),
        ("catalog.ssl", '{"cabundle": "/etc/ssl/ca.pem"}'),
        ("catalog.auth", '{"type": "google"}'),
        ("catalog.s3.endpoint", "http://s3.example:9000"),
        ("catalog.s3.endpoint", "http://token-store:9000"),
        ("catalog.s3.region", "us-east-1"),
        ("catalog.s3.role-arn", "arn:aws:iam::123456789012:role/token-reader"),
        ("catalog.s3.proxy-uri", "http://proxy.example:3128"),
        ("catalog.glue.id", "123456789012"),
        ("catalog.hive.kerberos-authentication", "true"),
        ("catalog.hive.kerberos-service-name", "hive"),
        ("catalog.adls.account-name", "account"),
        ("catalog.gcs.project-id", "project"),
        ("catalog.py-io-impl", "pyiceberg.io.pyarrow.PyArrowFileIO"),
        ("catalog.lakesink.http-timeout-seconds", "30"),
        ("snapshot-property.note", "basic aggregation of the passing orders"),
        ("snapshot-property.commit", "9944cfe50132d5219afbfac34a20"),
        ("snapshot-property.run", "https://airflow.example/dags/orders/grid?dag_run_id=scheduled__2026-01-01T00:00:00"),
        ("snapshot-property.owner", "team data <data@example.com>"),
        ("snapshot-property.offsets", '{"orders": {"0": 51, "1": 48}}'),
        ("snapshot-property.started", "2026-01-01T00:00:00+00:00"),
        ("checkpointLocation", "abfss://ck@account.dfs.core.windows.net/checkpoints/events"),
        ("checkpointLocation", "hdfs://namenode.example:8020/checkpoints/events"),
        ("accept", "NewCheckpoint+InputMissing:0@6-0a1b2c:commit"),
        ("schema-registry", "http://registry.example:8081"),
        ("table", "demo.password_resets"),
        ("partition-by", "month(ts), bucket(16, token)"),
    ],
)
def test_a_harmless_option_is_no_secret(name: str, value: str) -> None:
    needed = {"decode": "avro"} if name == "schema-registry" else {"create-table": "true"}
    stream_destination(STREAM | needed | {name: value})


@pytest.mark.parametrize("only_for_streams", ["sink-id", "checkpointLocation"])
def test_a_batch_write_has_no_use_for_the_names_of_a_stream(only_for_streams: str) -> None:
    with pytest.raises(SettingsError) as error:
        transaction_destination(WRITE | {only_for_streams: "events"})
    assert error.value.code == "LAKESINK_OPTION_UNKNOWN"


@pytest.mark.parametrize(
    "parse", [lambda more: stream_destination(STREAM | more), lambda more: transaction_destination(WRITE | more)]
)
def test_a_shuffle_that_the_format_cannot_run_is_refused(parse: Callable[[dict[str, str]], object]) -> None:
    parse({"distribution-mode": "none"})
    with pytest.raises(SettingsError, match=r"LAKESINK_OPTION_INVALID.*no distribution-mode='hash'"):
        parse({"distribution-mode": "hash"})
