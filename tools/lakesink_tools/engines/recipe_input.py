"""The input of a recipe: catalog, storage and table, as far as engines need them. It contains no secret."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import Table
from sqlalchemy import make_url

from lakesink_catalog.connect.catalog import FoundCatalog
from lakesink_catalog.connect.catalog_failures import translated
from lakesink_catalog.connect.kinds import CODE_PROPERTY, is_of_one_process, kind_of, sqlite_file
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.redact import contains_secret
from lakesink_tools.engines.recipe import Moment

FLINK_RUNTIME = "org.apache.iceberg:iceberg-flink-runtime-2.1:1.11.0"
"""The newest release: Iceberg 1.12.0 has none for Flink."""
SQLITE_DRIVER = "org.xerial:sqlite-jdbc:3.50.3.0"
POSTGRES_DRIVER = "org.postgresql:postgresql:42.7.7"
_AWS_BUNDLE = "org.apache.iceberg:iceberg-aws-bundle"
_LOCAL, _S3 = ("", "file"), ("s3", "s3a", "s3n")
_AWS_VARIABLES = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or other AWS credentials, in the engine's environment"
_LOCATIONS = ("write.data.path", "write.metadata.path", "write.object-storage.path")


@dataclass(frozen=True, slots=True)
class Database:
    """A SQL catalog in a database, without its password."""

    url: str  # for Python
    jdbc: str  # for Java
    extra: str  # of PyIceberg
    driver: str  # Maven coordinates of Java's driver
    driver_class: str
    user: str = ""  # empty if the configuration names none
    needs: tuple[str, ...] = ()  # what the engine's environment must contain, in words


def sqlite(path: str) -> Database:
    """A SQL catalog in a SQLite file of this absolute path."""
    return Database(f"sqlite:///{path}", f"jdbc:sqlite:{path}", "sql-sqlite", SQLITE_DRIVER, "org.sqlite.JDBC")


def postgres(host: str, port: int, database: str, user: str, sslmode: str) -> Database:
    """A SQL catalog in PostgreSQL; `sslmode` as libpq and Java's driver spell it, empty for the default."""
    place = f"{host}:{port}/{database}{f'?sslmode={sslmode}' if sslmode else ''}"
    named = user or "the user"
    line = f"{host}:{port}:{database}:{named}:..."
    return Database(
        url=f"postgresql+psycopg2://{f'{user}@' if user else ''}{place}",
        jdbc=f"jdbc:postgresql://{place}",
        extra="sql-postgres",
        driver=POSTGRES_DRIVER,
        driver_class="org.postgresql.Driver",
        user=user,
        needs=(f"the password of {named} in ~/.pgpass, as {line}, which the drivers read",),
    )


@dataclass(frozen=True, slots=True)
class Rest:
    """A REST catalog."""

    uri: str  # without user and password
    properties: Mapping[str, str] = field(default_factory=dict)  # under names that Java and Python share; no secrets
    secrets: Mapping[str, str] = field(default_factory=dict)  # property name -> environment variable for the secret

    @property
    def needs(self) -> tuple[str, ...]:
        """The variables of the secrets, in words."""
        return tuple(f"{name} in the engine's environment: the catalog's {key}" for key, name in self.secrets.items())


@dataclass(frozen=True, slots=True)
class Target:
    """One table of one catalog."""

    catalog: str
    backend: Database | Rest
    warehouse: str  # its default location of tables; empty if not configured
    storage: Mapping[str, str]  # properties of the object store under PyIceberg's names, without secrets
    on_s3: bool  # a part of the table is on S3
    on_disk: bool  # a part of the table is in local files
    parts: tuple[str, ...]  # namespaces and name of the table
    metadata_file: str  # location of the current metadata file
    format_version: int
    equality_deletes: bool  # the current snapshot has some
    moment: Moment | None

    @property
    def is_sql(self) -> bool:
        """True for a catalog in a database that engines open themselves."""
        return not isinstance(self.backend, Rest)

    @property
    def access(self) -> tuple[str, ...]:
        """Requirements for the environment of every engine, in words and without secrets."""
        return ((_AWS_VARIABLES,) if self.on_s3 else ()) + self.backend.needs

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about the catalog for readers of every engine."""
        if not self.is_sql:
            return ()
        start = "SQL catalogs store the catalog's name in every row: under another name than"
        return (f"{start} {self.catalog!r} the same database shows no tables.",)


def target_of(found: FoundCatalog, table: Table, parts: tuple[str, ...], moment: Moment | None) -> Target:
    """Read configuration and metadata; a `CatalogError` if there are no recipes for this catalog or storage."""
    places = (table.location(), table.metadata_location, *(table.properties.get(name) for name in _LOCATIONS))
    schemes = {urlsplit(place).scheme for place in places if place}
    if unknown := sorted(schemes - {*_LOCAL, *_S3}):
        raise CatalogError.of("RECIPE_MISSING.storage", scheme=unknown[0])
    return Target(
        catalog=found.name,
        backend=_backend(found),
        warehouse=str(found.properties.get("warehouse") or ""),
        storage=_without_secrets(found.properties, "s3."),
        on_s3=not schemes.isdisjoint(_S3),
        on_disk=not schemes.isdisjoint(_LOCAL),
        parts=parts,
        metadata_file=table.metadata_location,
        format_version=table.metadata.format_version,
        equality_deletes=translated("The table", found.properties, lambda: has_equality_deletes(table)),
        moment=moment,
    )


def has_equality_deletes(table: Table) -> bool:
    """Read the manifests, because summaries need not state it."""
    head = table.metadata.current_snapshot()
    manifests = head.manifests(table.io) if head is not None else []
    return any(
        entry.data_file.content is DataFileContent.EQUALITY_DELETES
        for manifest in manifests
        if manifest.content is ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(table.io)
    )


def java_catalog(target: Target) -> dict[str, str]:
    """Properties of the catalog, without its type."""
    backend = target.backend
    if isinstance(backend, Rest):
        secrets = {key: f"env:{variable}" for key, variable in backend.secrets.items()}
        found = {"uri": backend.uri, **backend.properties, **secrets}
    else:
        user = {"jdbc.user": backend.user} if backend.user else {}
        found = {"uri": backend.jdbc, **user, "jdbc.schema-version": "V1"}
    if target.warehouse:
        found["warehouse"] = target.warehouse
    return found | _java_storage(target)


def jars(target: Target, runtime: str) -> tuple[str, ...]:
    """Maven coordinates of a runtime of Iceberg, and of its dependencies for this catalog and storage."""
    driver = () if isinstance(target.backend, Rest) else (target.backend.driver,)
    bundle = (f"{_AWS_BUNDLE}:{runtime.rpartition(':')[2]}",) if target.on_s3 else ()
    return (runtime, *driver, *bundle)


def _java_storage(target: Target) -> dict[str, str]:
    if not target.on_s3:
        return {}
    endpoint = {"s3.endpoint": target.storage["s3.endpoint"]} if "s3.endpoint" in target.storage else {}
    region = {"client.region": target.storage["s3.region"]} if "s3.region" in target.storage else {}
    # Servers with their own endpoint seldom have a host name for every bucket.
    path_style = {"s3.path-style-access": "true"} if endpoint else {}
    return {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **endpoint, **region, **path_style}


def _backend(found: FoundCatalog) -> Database | Rest:
    properties = found.properties
    kind = "" if CODE_PROPERTY in properties else kind_of(found.name, properties)
    if kind == "rest":
        return _rest(found.name, properties)
    file = sqlite_file(properties) if kind == "sql" else None
    if file is not None:
        return sqlite(file)
    if kind == "sql" and not is_of_one_process(properties):
        url = make_url(str(properties.get("uri")))
        sslmode = url.query.get("sslmode") or ""
        mode = sslmode if isinstance(sslmode, str) else sslmode[-1]
        return postgres(url.host or "localhost", url.port or 5432, url.database or "", url.username or "", mode)
    raise CatalogError.of("RECIPE_MISSING", where=found.where)


def _rest(name: str, properties: Mapping[str, Any]) -> Rest:
    uri = urlsplit(str(properties.get("uri")))
    own = {key: value for key, value in properties.items() if key not in ("uri", "type", "warehouse", "name")}
    catalog = {key: value for key, value in own.items() if not key.startswith(("s3.", "lakesink."))}
    secrets = [key for key, value in catalog.items() if contains_secret(key, value)]
    return Rest(
        uri=urlunsplit(uri._replace(netloc=uri.netloc.rpartition("@")[2])),
        properties=_without_secrets(catalog, ""),
        secrets={key: variable_of(name, key) for key in secrets},
    )


def variable_of(catalog: str, key: str) -> str:
    """The environment variable for a secret of a catalog: ``LAKE_TOKEN``."""
    return "".join(char if char.isascii() and char.isalnum() else "_" for char in f"{catalog}_{key}").upper()


def _without_secrets(properties: Mapping[str, Any], start: str) -> dict[str, str]:
    return {
        key: str(value)
        for key, value in properties.items()
        if key.startswith(start) and value is not None and not contains_secret(key, value)
    }
