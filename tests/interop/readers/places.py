"""Catalogs of every kind that there are recipes for, each with a table that a stream has written."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakesink_catalog.connect.catalog import CatalogConfig, FoundCatalog
from servers.postgres import USER, postgres_server
from servers.rest_reference import rest_reference
from servers.s3 import s3
from tests.interop.readers.kinds import SCHEMA, rows
from tests.interop.readers.tables import Told, streamed
from tests.readers.lake import Lake

EMBEDDED, POSTGRES, REST, OBJECTS = "lakehouse", "lake-pg", "lake-rest", "lake-s3"
PASSWORD = "c4n4ry:p@ss/wörd"  # noqa: S105 - of a server of this test
TABLE = "kinds"


@dataclass(frozen=True)
class Elsewhere(Lake):
    """A catalog of PyIceberg's configuration."""

    @property
    def found(self) -> FoundCatalog:
        return CatalogConfig(self.catalog_name).find()


@contextmanager
def configured(root: Path) -> Iterator[Mapping[str, Told]]:
    """A table in PostgreSQL's catalog, one in the REST catalog and one on S3, all in PyIceberg's configuration.

    The password stands in that configuration, and for the engines in a file that their drivers look into; S3's keys are
    in the environment of all.
    """
    with ExitStack() as running:
        environment = running.enter_context(pytest.MonkeyPatch.context())
        database = running.enter_context(postgres_server(PASSWORD))
        (root / "rest").mkdir()
        service = running.enter_context(rest_reference(root / "rest"))
        secret = "".join(f"%{byte:02X}" for byte in PASSWORD.encode())
        configure(
            environment, POSTGRES, uri=f"postgresql://{USER}:{secret}@{database.address}", warehouse=f"file://{root}/pg"
        )
        configure(environment, REST, uri=service.uri, type="rest")
        store = running.enter_context(s3(root / "s3", "lake"))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.setenv(name, store.environment[name])
        local = {"type": "sql", "uri": f"sqlite:///{root}/s3/catalog.db"}
        configure(environment, OBJECTS, **local, warehouse="s3://lake/warehouse", **store.properties)
        passwords = root / "pgpass"
        passwords.write_text(f"127.0.0.1:{database.port}:*:{USER}:{PASSWORD.replace(':', chr(92) + ':')}\n")
        passwords.chmod(0o600)
        environment.setenv("PGPASSFILE", str(passwords))
        yield {name: streamed(Elsewhere(root, name), TABLE, SCHEMA, rows) for name in (POSTGRES, REST, OBJECTS)}


def configure(environment: pytest.MonkeyPatch, name: str, **properties: str) -> None:
    for key, value in properties.items():
        variable = f"{name}__{key.replace('.', '__')}".upper().replace("-", "_")
        environment.setenv(f"PYICEBERG_CATALOG__{variable}", value)
