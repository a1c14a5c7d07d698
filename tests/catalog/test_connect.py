"""Which catalog is found, how it fails, and that it fails in bounded time without showing a secret."""

import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable

from lakesink_catalog.connect.catalog import EMBEDDED_NAME, CatalogConfig, connect
from lakesink_catalog.tables.tables import create_table, load_table, parse_identifier
from lakesink_protocol.errors import CatalogError, LakesinkError, SettingsError
from servers.ports import free_port
from testkit.http_servers import Answer, dripping_server, postgres, rest_server

CANARY = "c4n4ry-Sw0rdfish"
SCHEMA = pa.schema([("id", pa.int64())])
ends = pytest.mark.timeout(120)
"""A test that fails if what it waits for never ends."""


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.delenv("LAKESINK_HOME", raising=False)


def configure(folder: Path, text: str) -> None:
    (folder / ".pyiceberg.yaml").write_text(text)


# Finding


def test_without_configuration_the_embedded_catalog_is_made_in_the_working_folder(tmp_path: Path) -> None:
    catalog = connect()
    catalog.create_namespace("demo")
    table = catalog.create_table("demo.events", SCHEMA)
    assert catalog.name == EMBEDDED_NAME
    assert (tmp_path / "lakehouse" / "catalog.db").is_file()
    assert table.location() == f"file://{tmp_path}/lakehouse/warehouse/demo/events"
    assert (tmp_path / "lakehouse" / "warehouse" / "demo" / "events" / "metadata").is_dir()


def test_lakesink_home_moves_the_embedded_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "with blank, ümlaut & 100%41"
    monkeypatch.setenv("LAKESINK_HOME", str(home))
    catalog = connect()
    catalog.create_namespace("demo")
    catalog.create_table("demo.events", SCHEMA)
    assert (home / "catalog.db").is_file()
    assert list((home / "warehouse" / "demo" / "events" / "metadata").glob("*.metadata.json"))
    assert connect().load_table("demo.events").metadata_location.startswith(f"file://{home}")


def test_the_embedded_catalog_is_fixed_when_found_not_when_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CatalogConfig().find()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    config.open()
    assert (tmp_path / "lakehouse" / "catalog.db").is_file()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_configured_default_goes_before_the_embedded_catalog(tmp_path: Path) -> None:
    configure(tmp_path, f"catalog:\n  default:\n    uri: sqlite:///{tmp_path}/own.db\n    warehouse: {tmp_path}/w\n")
    connect().create_namespace("demo")
    assert (tmp_path / "own.db").is_file()
    assert not (tmp_path / "lakehouse").exists()


def test_the_default_may_bear_another_name(tmp_path: Path) -> None:
    configure(tmp_path, f"default-catalog: prod\ncatalog:\n  prod:\n    uri: sqlite:///{tmp_path}/own.db\n")
    assert connect().name == "prod"


def test_a_catalog_is_found_by_name_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__STAGE__URI", f"sqlite:///{tmp_path}/stage.db")
    assert connect("stage").name == "stage"
    assert (tmp_path / "stage.db").is_file()


def test_given_properties_go_above_the_configured_ones(tmp_path: Path) -> None:
    configure(tmp_path, f"catalog:\n  prod:\n    uri: sqlite:///{tmp_path}/own.db\n    warehouse: {tmp_path}/w\n")
    config = CatalogConfig("prod", {"warehouse": "elsewhere"}).find()
    assert config.properties["warehouse"] == str(tmp_path / "elsewhere")
    assert f"{tmp_path}/own.db" in config.properties["uri"]


def test_properties_alone_make_a_catalog(tmp_path: Path) -> None:
    catalog = connect("adhoc", {"uri": f"sqlite:///{tmp_path}/adhoc.db"})
    assert (catalog.name, isinstance(catalog, SqlCatalog)) == ("adhoc", True)


def test_an_unknown_name_is_answered_with_the_nearest_one(tmp_path: Path) -> None:
    configure(tmp_path, f"catalog:\n  production:\n    uri: sqlite:///{tmp_path}/own.db\n")
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNKNOWN") as refused:
        connect("prodution")
    assert "Did you mean 'production'?" in refused.value.action
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNKNOWN") as refused:
        connect("zzz")
    assert f"Known: {EMBEDDED_NAME}, production." in refused.value.action


def test_a_default_that_is_not_configured_is_not_replaced_by_the_embedded_catalog(tmp_path: Path) -> None:
    configure(tmp_path, "default-catalog: prod\n")
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNKNOWN"):
        connect()
    assert not (tmp_path / "lakehouse").exists()


@pytest.mark.parametrize("kind", ["dynamodb", "bigquery", "nessie"])
def test_a_kind_that_cannot_commit_is_refused_by_name(kind: str) -> None:
    with pytest.raises(CatalogError, match=f"LAKESINK_CATALOG_UNSUPPORTED.*'{kind}'"):
        connect("prod", {"type": kind})


@pytest.mark.parametrize("uri", ["mysql://h/db", "oracle+oracledb://h/db", "ftp://h/"])
def test_a_uri_of_another_database_is_refused_by_name(uri: str) -> None:
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNSUPPORTED"):
        connect("prod", {"type": "sql", "uri": uri} if "ftp" not in uri else {"uri": uri})


def test_a_class_named_in_the_configuration_is_refused_and_one_from_the_users_code_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configure(tmp_path, "catalog:\n  prod:\n    py-catalog-impl: pyiceberg.catalog.noop.NoopCatalog\n")
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNSUPPORTED"):
        connect("prod")
    assert connect("mine", {"py-catalog-impl": "pyiceberg.catalog.noop.NoopCatalog"}).name == "mine"
    assert "lakesink.catalog.not-certified name=mine" in caplog.text


@pytest.mark.parametrize("kind", ["hive", "glue"])
def test_hive_and_glue_are_said_to_be_not_certified(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LakesinkError):  # neither a metastore nor its client is here
        connect("old", {"type": kind, "uri": f"thrift://127.0.0.1:{free_port()}"})
    assert f"lakesink.catalog.not-certified name=old type={kind}" in caplog.text


def test_a_broken_configuration_is_one_clear_error(tmp_path: Path) -> None:
    configure(tmp_path, f"catalog:\n  prod: [unclosed\n   token: {CANARY}\n")
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_MISCONFIGURED") as refused:
        connect("prod")
    assert CANARY not in full_text(refused.value)


# Databases


def test_a_sqlite_catalog_waits_for_its_lock(tmp_path: Path) -> None:
    config = CatalogConfig("a", {"uri": f"sqlite:///{tmp_path}/a.db"}).find()
    assert "timeout=30" in config.properties["uri"]
    assert "timeout=5" in CatalogConfig("a", {"uri": "sqlite:///a.db?timeout=5"}).find().properties["uri"]


def made_at_once(make: Callable[[int], object], drivers: int = 4) -> list[BaseException]:
    """What goes wrong if several drivers do the same at the same moment."""
    failures: list[BaseException] = []
    together = threading.Barrier(drivers)

    def run(number: int) -> None:
        together.wait()
        try:
            make(number)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(drivers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


@pytest.mark.parametrize("attempt", range(5))
def test_drivers_that_make_the_embedded_catalog_at_the_same_moment_share_it(tmp_path: Path, attempt: int) -> None:
    assert made_at_once(lambda number: create_table(connect(), f"demo.t{attempt}_{number % 2}", SCHEMA)) == []
    assert len(connect(create=False).list_tables("demo")) == 2
    assert (tmp_path / "lakehouse" / "catalog.db").exists()


def test_drivers_that_make_the_tables_of_a_postgresql_catalog_at_the_same_moment_share_it(
    database: str, tmp_path: Path
) -> None:
    properties = {"uri": f"postgresql://lake:{CANARY}@{database}", "warehouse": str(tmp_path)}
    SqlCatalogBaseTable.metadata.drop_all(connect("pg", properties).engine)  # type: ignore[attr-defined] # SqlCatalog's
    assert made_at_once(lambda number: create_table(connect("pg", properties), f"together.t{number % 2}", SCHEMA)) == []
    assert len(connect("pg", properties).list_tables("together")) == 2


def test_an_in_memory_catalog_is_one_catalog_for_all_threads(tmp_path: Path) -> None:
    catalog = connect("memory", {"type": "in-memory", "warehouse": str(tmp_path)})
    catalog.create_namespace("demo")
    failures: list[BaseException] = []

    def create(number: int) -> None:
        try:
            catalog.create_table(f"demo.t{number}", SCHEMA)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(catalog.list_tables("demo")) == 8


def test_an_in_memory_catalog_is_shared_by_its_name_within_the_process(tmp_path: Path) -> None:
    properties = {"type": "in-memory", "warehouse": str(tmp_path)}
    first, second, other = (connect(name, properties) for name in ("m/1 ?", "m/1 ?", "m/2"))
    first.create_namespace("demo")
    assert second.list_namespaces() == [("demo",)]
    assert other.list_namespaces() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///:memory:"])
def test_a_plain_in_memory_database_is_one_for_all_threads_too(uri: str) -> None:
    catalog = connect("plain", {"type": "sql", "uri": uri})
    thread = threading.Thread(target=catalog.create_namespace, args=("demo",))
    thread.start()
    thread.join()
    assert catalog.list_namespaces() == [("demo",)]


def test_a_database_in_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNREACHABLE"):
        connect("a", {"uri": f"sqlite:///{tmp_path}/no/such/folder/a.db"})


def test_a_file_that_is_no_database_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"not a database" * 100)
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_"):
        connect("a", {"uri": f"sqlite:///{tmp_path}/a.db"})


def test_opening_without_making_says_that_nothing_is_there(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_MISSING") as refused:
        connect(create=False)
    assert str(tmp_path / "lakehouse") in refused.value.what
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_MISSING"):
        connect("a", {"uri": f"sqlite:///{tmp_path}/a.db"}, create=False)
    assert not (tmp_path / "lakehouse").exists()
    assert not (tmp_path / "a.db").exists()


def test_an_embedded_catalog_that_cannot_be_made_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LAKESINK_HOME", str(tmp_path / "file" / "lakehouse"))
    with pytest.raises(CatalogError, match="LAKESINK_WAREHOUSE_UNWRITABLE"):
        connect()


@pytest.mark.parametrize("home", ["s3://bucket/x", "a?b", "a#b", "a\nb"])
def test_a_home_that_is_no_plain_folder_is_refused(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESINK_HOME", home)
    with pytest.raises(SettingsError, match="LAKESINK_SETTING_INVALID"):
        connect()


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres(CANARY) as server:
        yield server.address


def test_a_postgresql_catalog_holds_tables(database: str, tmp_path: Path) -> None:
    properties = {"uri": f"postgresql://lake:{CANARY}@{database}", "warehouse": str(tmp_path)}
    catalog = connect("pg", properties)
    catalog.create_namespace("demo")
    catalog.create_table("demo.events", SCHEMA)
    assert load_table(connect("pg", properties), "demo.events").schema().column_names == ["id"]


def test_a_wrong_postgresql_password_is_rejected_and_not_shown(database: str) -> None:
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_REJECTED") as refused:
        connect("pg", {"uri": f"postgresql://lake:wrong{CANARY}@{database}"})
    assert CANARY not in full_text(refused.value)


def test_a_postgresql_that_is_not_there_is_one_clear_error_without_the_password() -> None:
    pytest.importorskip("psycopg2")
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNREACHABLE") as refused:
        connect("pg", {"uri": f"postgresql://lake:{CANARY}@127.0.0.1:{free_port()}/db"})
    assert CANARY not in full_text(refused.value)


@pytest.mark.nightly
@ends
def test_a_postgresql_that_never_answers_ends_in_a_clear_error() -> None:
    pytest.importorskip("psycopg2")
    with rest_server({}) as (uri, _):
        address = uri.removeprefix("http://")
        with pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNREACHABLE"):
            connect("pg", {"uri": f"postgresql://lake:{CANARY}@{address}/db?connect_timeout=5"})


# REST


SHORT = {"lakesink.http-timeout-seconds": "5"}
"""For services that do not answer; it ends each of their waits, and none of a service that is slow."""


def rest(uri: str, **properties: str) -> Catalog:
    return connect("rest", {"type": "rest", "uri": uri, "lakesink.http-timeout-seconds": "60", **properties})


def test_a_rest_catalog_is_opened_and_lists_what_is_near() -> None:
    tables = {"identifiers": [{"namespace": ["demo"], "name": "events"}]}
    with rest_server({"/v1/namespaces/demo/tables": (200, tables)}) as (uri, _):
        catalog = rest(uri)
        assert isinstance(catalog, RestCatalog)
        with pytest.raises(CatalogError, match="LAKESINK_TABLE_MISSING") as refused:
            load_table(catalog, "demo.event")
    assert "Did you mean 'demo.events'?" in refused.value.action


@pytest.mark.parametrize(
    ("path", "properties"),
    [
        ("/v1/config", {}),
        pytest.param("/v1/config", {"token": CANARY}, marks=pytest.mark.nightly),
        pytest.param("/v1/oauth/tokens", {"credential": f"me:{CANARY}"}, marks=pytest.mark.nightly),
        ("/v1/namespaces/demo/tables/events", {"token": CANARY}),
    ],
)
@ends
def test_a_rest_catalog_that_never_answers_ends_in_bounded_time(path: str, properties: dict[str, str]) -> None:
    with rest_server({path: None}) as (uri, server):
        with pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNREACHABLE") as refused:
            load_table(rest(uri, **SHORT, **properties), "demo.events")
        assert path in server.requests
    assert CANARY not in full_text(refused.value)


@ends
def test_a_rest_catalog_that_answers_drop_by_drop_ends_in_bounded_time() -> None:
    """Each drop ends one wait in time: only the whole can be late."""
    unreachable = pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNREACHABLE")
    with dripping_server(every_seconds=0.2) as uri, unreachable:
        rest(uri, **{"lakesink.http-timeout-seconds": "1"})  # five times that for all of an answer


@pytest.mark.nightly
@ends
def test_a_token_server_that_never_answers_ends_in_bounded_time() -> None:
    with rest_server({"/token": None}) as (uri, server):
        oauth = {"client_id": "me", "client_secret": CANARY, "token_url": f"{uri}/token"}
        with pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNREACHABLE") as refused:
            rest(uri, **SHORT, auth={"type": "oauth2", "oauth2": oauth})  # type: ignore[arg-type] # as YAML gives it
        assert server.requests == ["/token"]
    assert CANARY not in full_text(refused.value)


ERROR = {"error": {"message": f"no, token={CANARY}", "type": "X", "code": 0}}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ((401, ERROR), "CATALOG_REJECTED"),
        ((403, ERROR), "CATALOG_REJECTED"),
        ((419, ERROR), "CATALOG_REJECTED"),
        ((400, ERROR), "CATALOG_UNREACHABLE"),
        ((404, ERROR), "CATALOG_UNREACHABLE"),
        ((429, ERROR), "CATALOG_UNREACHABLE"),
        ((500, ERROR), "CATALOG_UNREACHABLE"),
        ((500, b"<html>oops"), "CATALOG_UNREACHABLE"),
        ((503, b""), "CATALOG_UNREACHABLE"),
        ((200, b"<html>a login page"), "CATALOG_UNREACHABLE"),
        ((200, b'{"defaults": 7}'), "CATALOG_UNREACHABLE"),
    ],
)
def test_a_rest_catalog_that_answers_with_an_error_is_one_clear_error(answer: Answer, code: str) -> None:
    with (
        rest_server({"/v1/config": answer}) as (uri, _),
        pytest.raises(CatalogError, match=f"^.LAKESINK_{code}.") as refused,
    ):
        rest(uri, token=CANARY)
    assert CANARY not in full_text(refused.value)
    assert len(str(refused.value).splitlines()[0]) < 320


def test_a_rest_catalog_that_is_not_there_is_one_clear_error() -> None:
    with pytest.raises(CatalogError, match="LAKESINK_CATALOG_UNREACHABLE") as refused:
        rest(f"http://me:{CANARY}@127.0.0.1:{free_port()}")
    assert CANARY not in full_text(refused.value)


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "1e9", "nan"])
def test_a_time_out_that_is_no_time_is_refused(seconds: str) -> None:
    with pytest.raises(SettingsError, match="LAKESINK_SETTING_INVALID"):
        connect("rest", {"type": "rest", "uri": "http://127.0.0.1:1", "lakesink.http-timeout-seconds": seconds})


# Tables


def test_a_missing_table_is_answered_with_the_nearest_one() -> None:
    catalog = connect()
    catalog.create_namespace("demo")
    catalog.create_table("demo.flights", SCHEMA)
    with pytest.raises(CatalogError, match=r"LAKESINK_TABLE_MISSING.*demo\.flihgts") as refused:
        load_table(catalog, "demo.flihgts")
    assert "Did you mean 'demo.flights'?" in refused.value.action
    with pytest.raises(CatalogError, match="LAKESINK_TABLE_MISSING") as refused:
        load_table(catalog, "prod.flights")
    assert "Namespaces there: demo." in refused.value.action


@pytest.mark.parametrize("property_name", ["py-io-impl", "write.py-location-provider.impl"])
def test_code_that_a_table_property_names_is_never_imported(
    property_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    catalog = connect()
    catalog.create_namespace("demo")
    table = catalog.create_table("demo.events", SCHEMA)
    poison_metadata(table.metadata_location, {property_name: "evil.Provider"})
    catalog = connect()  # the first one has read the file already
    if property_name == "py-io-impl":
        loaded = load_table(catalog, "demo.events")
        with loaded.transaction() as change:
            change.set_properties({"a": "b"})
    else:
        with pytest.raises(CatalogError, match="LAKESINK_TABLE_NAMES_CODE"):
            load_table(catalog, "demo.events")
        with pytest.raises(CatalogError, match="LAKESINK_TABLE_NAMES_CODE"):
            catalog.commit_table(table, (), ())
    assert not (tmp_path / "ran").exists()


def poison_metadata(location: str, properties: dict[str, str]) -> None:
    file = Path(location.removeprefix("file://"))
    members = ", ".join(f'"{key}": "{value}"' for key, value in properties.items())
    text = file.read_text()
    assert '"properties":{}' in text
    file.write_text(text.replace('"properties":{}', f'"properties":{{{members}}}'))


@pytest.mark.parametrize(("text", "parts"), [("demo.events", ("demo", "events")), ("a.b.c", ("a", "b", "c"))])
def test_an_identifier_has_namespaces_and_a_name(text: str, parts: tuple[str, ...]) -> None:
    assert parse_identifier(text) == parts


BAD_NAMES = ["", "events", ".events", "demo.", "a..b", " a.b", "a.b ", "a.b\n", "a.\x00b", "a.b\u202e", "a.*", "a.b?"]
BAD_NAMES += ["a.'b'", 'a."b"', "a.`b`", "a.b/c", "a.b\\c", "a.b#c", "a.b;c", "a.b%2e", "a." + "b" * 300]


@pytest.mark.parametrize("text", BAD_NAMES)
def test_a_malformed_identifier_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="LAKESINK_TABLE_NAME_INVALID") as refused:
        parse_identifier(text)
    assert len(str(refused.value).splitlines()[0]) < 200


# Secrets


def test_a_configuration_shows_no_secret() -> None:
    config = CatalogConfig("p", {"uri": f"postgresql://lake:{CANARY}@db/x", "s3.secret-access-key": CANARY})
    found = config.find()
    assert CANARY in found.properties["uri"]
    assert CANARY not in f"{config!r} {config} {found!r} {found} {found.where}"


def full_text(error: BaseException) -> str:
    """Everything a trace would print, and more."""
    links = [link for link in (error.__cause__, error.__context__) if link is not None]
    return "\n".join([str(error), repr(error.args), *map(full_text, links)])


def test_no_warning_of_a_library_shows_the_password_of_a_rest_service() -> None:
    address = f"http://lake:{CANARY}@127.0.0.1:{free_port()}"
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(CatalogError):
            connect("rest", {"type": "rest", "uri": address, "credential": f"lake:{CANARY}"})
    assert not [warning for warning in warned if CANARY in str(warning.message)]
