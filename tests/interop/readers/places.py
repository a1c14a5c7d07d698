"""Catalogs of every kind that there are recipes for, each with a table that a stream has written."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakesink_catalog.connect import CatalogConfig, FoundCatalog
from servers.postgres import USER, postgres_server
from servers.rest_reference import rest_reference
from tests.interop.readers.kinds import SCHEMA, rows
from tests.interop.readers.tables import Told, streamed
from tests.readers.lake import Lake

EMBEDDED, POSTGRES, REST = "lakehouse", "lake-pg", "lake-rest"
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
    """A table in PostgreSQL's catalog and one in the REST catalog, both in PyIceberg's configuration as a user has it.

    The password stands in PyIceberg's configuration, and for the engines in a file that their drivers look into.
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
        passwords = root / "pgpass"
        passwords.write_text(f"127.0.0.1:{database.port}:*:{USER}:{PASSWORD.replace(':', chr(92) + ':')}\n")
        passwords.chmod(0o600)
        environment.setenv("PGPASSFILE", str(passwords))
        yield {name: streamed(Elsewhere(root, name), TABLE, SCHEMA, rows) for name in (POSTGRES, REST)}


def configure(environment: pytest.MonkeyPatch, name: str, **properties: str) -> None:
    for key, value in properties.items():
        environment.setenv(f"PYICEBERG_CATALOG__{name.upper().replace('-', '_')}__{key.upper()}", value)
