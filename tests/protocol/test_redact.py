"""A planted secret never shows, whatever wraps it; what is no secret stays readable."""

import pytest

from lakesink_protocol.errors import CatalogError
from lakesink_protocol.redact import MASK, contains_secret, describe, is_secret, redact, safe_cause

CANARY = "c4n4ry-Sw0rdfish"

TEXTS = [
    f"postgresql://alice:{CANARY}@db:5432/lake",
    f"postgresql+psycopg2://alice:{CANARY}/with/slash@db/lake",
    f"postgresql://alice:{CANARY}@h@db/lake",
    f"https://{CANARY}@rest.example/v1",
    f"alice:{CANARY}@rest.example/v1",
    f"could not reach 'https://alice:{CANARY}@rest.example' twice",
    f"s3.secret-access-key={CANARY}",
    f"s3.access-key-id = {CANARY}",
    f'{{"credential": "{CANARY}", "uri": "x"}}',
    f"{{'client_secret': '{CANARY}'}}",
    f"password: {CANARY}, user: alice",
    f"PGPASSWORD={CANARY} psql",
    f"Authorization: Bearer {CANARY}",
    f"authorization: Basic {CANARY}==",
    f"sent Bearer {CANARY} and got 401",
    f"https://account.blob.core.windows.net/c/f?sv=1&sig={CANARY}&se=2",
    f"https://bucket.s3.amazonaws.com/k?X-Amz-Signature={CANARY}",
    f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={CANARY};Suffix=b",
    f"adls.sas-token.account={CANARY}",
    f'token="{CANARY} with blanks"',
    f"postgresql://db.example:5432/lake?user=me&password={CANARY}",
    f"http://token-service:8181/v1?pass={CANARY}",
    f"user: me, pass: {CANARY}",
]

PROPERTIES = {
    "token": CANARY,
    "credential": f"client:{CANARY}",
    "s3.access-key-id": CANARY,
    "s3.secret-access-key": CANARY,
    "s3.session-token": CANARY,
    "client.access-key-id": CANARY,
    "adls.account-key": CANARY,
    "adls.connection-string": f"AccountKey={CANARY}",
    "adls.sas-token": CANARY,
    "gcs.oauth2.token": CANARY,
    "header.X-Custom": CANARY,
    "header.Authorization": f"Bearer {CANARY}",
    "uri": f"postgresql://alice:{CANARY}@db/lake",
    "PASSWORD": CANARY,
    "s3_secret_access_key": CANARY,
    "auth": {"type": "oauth2", "oauth2": {"client_id": "me", "client_secret": CANARY}},
}


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_shows_a_secret(text: str) -> None:
    assert CANARY not in redact(text)
    assert MASK in redact(text)


@pytest.mark.parametrize("key", PROPERTIES)
def test_no_property_shows_a_secret(key: str) -> None:
    assert CANARY not in repr(redact({key: PROPERTIES[key]}))


@pytest.mark.parametrize("text", TEXTS)
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/demo/events/metadata/00001-abc.metadata.json",
        "file:///home/me/lakehouse/warehouse/demo/events/data/x.parquet",
        "abfss://container@account.dfs.core.windows.net/warehouse",
        "postgresql+psycopg2://lake@db.example:5432/lake",
        "http://127.0.0.1:8181/v1/config",
        "the table demo.events has 3 partitions: month(ts), region",
        "sqlite:////home/me/lakehouse/catalog.db",
        "disagree: 5 rows, asset=7, passing=true",
        "pass-through=true, bypass=5, compass: north",
        "no answer from http://token-service:8181/v1 and https://secrets.example:443",
        "hdfs://password-store:8020/checkpoints",
        "the basic aggregation of orders",
        "InputMissing:7@6-0a1b2c:commit",
        "LedgerLost:0@none:skip",
        "NewCheckpoint+InputMissing:0@6-0a1b2c:commit",
    ],
)
def test_text_without_secrets_is_left_as_it_is(text: str) -> None:
    assert redact(text) == text


def test_properties_without_secrets_are_left_as_they_are() -> None:
    properties = {"type": "rest", "uri": "http://localhost:8181", "warehouse": "s3://b/w", "s3.region": "eu-1", "n": 3}
    assert redact(properties) == properties


def test_a_known_secret_is_hidden_where_no_pattern_would_find_it() -> None:
    known = {"uri": f"postgresql://alice:{CANARY}%21@db/lake", "auth": {"basic": {"password": "hunter22"}}}
    shown = redact(f"server says: user alice may not use {CANARY}! nor {CANARY}%21 nor hunter22", known)
    assert CANARY not in shown
    assert "hunter22" not in shown
    assert "alice" in shown


def test_the_secret_of_an_address_without_a_scheme_is_known_too() -> None:
    assert (
        redact(f"the password {CANARY} is wrong", {"uri": f"alice:{CANARY}@db:5432/lake"})
        == "the password *** is wrong"
    )


@pytest.mark.parametrize("key", ["s3.access-key-id", "token", "adls.sas-token", "sig", "header.x", "pass", "db_pass"])
def test_a_secret_is_known_by_its_name(key: str) -> None:
    assert is_secret(key)
    assert contains_secret(key, "anything")


@pytest.mark.parametrize(
    "key", ["uri", "warehouse", "s3.region", "s3.endpoint", "sassafras", "signal", "type", "pass-through", "compass"]
)
def test_other_names_are_no_secrets(key: str) -> None:
    assert not is_secret(key)
    assert not contains_secret(key, "http://host/path")


def test_a_uri_with_user_info_bears_a_secret_under_any_name() -> None:
    assert contains_secret("uri", f"postgresql://alice:{CANARY}@db/lake")
    assert not contains_secret("warehouse", "abfss://container@account.dfs.core.windows.net/w")


@pytest.mark.parametrize("text", TEXTS)
def test_a_value_of_which_a_part_is_hidden_is_a_secret(text: str) -> None:
    assert contains_secret("note", text)
    assert contains_secret("note", {"nested": {"note": text}})


def test_a_secret_in_the_query_of_a_known_address_is_hidden_in_every_form() -> None:
    uri = f"postgresql://db/lake?user=alice&password={CANARY}%21"
    known = {"uri": uri, "auth": '{"basic": {"password": "hunter22"}}'}
    shown = redact(f"server says: user alice may not use {CANARY}! nor hunter22", known)
    assert shown == f"server says: user alice may not use {MASK} nor {MASK}"


def test_a_description_is_one_short_printable_line_without_secrets() -> None:
    error = OSError(f"\n  no route to postgresql://a:{CANARY}@db \x1b[31m{'x' * 500}\nsecond line")
    text = describe(error)
    assert text.startswith("OSError: no route to postgresql://***@db")
    assert len(text) <= 160
    assert text.isprintable()
    assert CANARY not in text


@pytest.mark.parametrize(("length", "shown"), [(159, 159), (160, 160), (161, 160), (1_000, 160)])
def test_a_description_is_cut_if_it_is_too_long(length: int, shown: int) -> None:
    text = describe(OSError("x" * (length - len("OSError: "))))
    assert (len(text), text.endswith("xxx...")) == (shown, length > shown)


def test_a_known_secret_is_hidden_from_four_characters_on() -> None:
    """A shorter one would be found in any text."""
    assert redact("it is abcd or xyz", {"password": "abcd", "token": "xyz"}) == f"it is {MASK} or xyz"


def test_an_exception_that_cannot_say_what_it_is_is_described_by_its_type() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert describe(Mute()) == "Mute"
    assert isinstance(safe_cause(Mute()), Mute)


def test_a_cause_that_would_leak_is_dropped_and_a_clean_one_is_kept() -> None:
    clean, inner = OSError("disk full"), ValueError(f"password={CANARY}")
    outer = OSError("wrapped")
    outer.__context__ = inner
    assert safe_cause(clean) is clean
    assert safe_cause(outer) is None
    assert safe_cause(OSError(CANARY), {"token": CANARY}) is None


def test_an_error_of_ours_carries_what_the_redactor_left() -> None:
    error = CatalogError("X", redact(TEXTS[0]), data="none", action="none")
    assert CANARY not in str(error)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", ["a", "password", "://", "x:y@", 'token="', "secret-"])
def test_hostile_text_is_redacted_in_bounded_time(unit: str) -> None:
    redact(unit * (200_000 // len(unit)))
