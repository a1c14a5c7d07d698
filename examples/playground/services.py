"""Starts the servers one after the other, says how long each took, and ends them in the reverse order."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from psycopg2 import OperationalError

from servers.kafka import KafkaBroker, kafka_broker
from servers.missing import Missing
from servers.postgres import Postgres, postgres_server
from servers.rest_reference import Backing, RestReference, rest_reference
from servers.s3 import REGION, S3, s3
from servers.trino import Trino, TrinoFailed, trino

from .setting import BUCKET, CATALOG, PARTITIONS, TOPIC, WAREHOUSE, Folder

_LAST_LINES = 15
_TRINO = """connector.name=iceberg
iceberg.catalog.type=rest
iceberg.rest-catalog.uri={uri}
fs.native-s3.enabled=true
s3.endpoint={endpoint}
s3.region={region}
s3.path-style-access=true
s3.aws-access-key=${{ENV:AWS_ACCESS_KEY_ID}}
s3.aws-secret-key=${{ENV:AWS_SECRET_ACCESS_KEY}}
"""
Say = Callable[[str], None]
Running = TypeVar("Running")


class NotStarted(Exception):
    """A server has not started: which one, and the end of what it said."""


@dataclass(frozen=True, slots=True)
class Services:
    """The servers; all run."""

    database: Postgres
    store: S3
    catalog: RestReference
    broker: KafkaBroker
    trino: Trino

    @property
    def environment(self) -> dict[str, str]:
        """By which lakesink and its commands find catalog and storage."""
        properties = {"type": "rest", "uri": self.catalog.uri, **self.store.properties}
        prefix = f"PYICEBERG_CATALOG__{CATALOG.upper()}__"
        known = {prefix + name.upper().replace(".", "__"): value for name, value in properties.items()}
        return {**self.store.environment, **known}


@contextmanager
def services(folder: Folder, say: Say) -> Iterator[Services]:
    """All servers, which end with the block.

    Raises:
        NotStarted: One of them has not come up; those before it are ended.
    """
    with ExitStack() as stack:
        start = partial(_start, stack, say)
        password = secrets.token_urlsafe()
        database = start("PostgreSQL", postgres_server(password))
        store = start("S3 (versitygw)", s3(folder.of("s3"), BUCKET))
        backing = Backing(database, store, WAREHOUSE)
        catalog = start("REST catalog (Iceberg's reference server)", rest_reference(folder.of("rest"), backing))
        broker = start("Kafka", kafka_broker(folder.of("kafka")))
        broker.create_topic(TOPIC, PARTITIONS)
        own = _TRINO.format(uri=catalog.uri, endpoint=store.endpoint, region=REGION)
        engine = start("Trino", trino(folder.of("trino"), {CATALOG: own}, store.environment))
        yield Services(database, store, catalog, broker, engine)


def _start(stack: ExitStack, say: Say, name: str, server: AbstractContextManager[Running]) -> Running:
    say(f"  {name} ...")
    started = time.monotonic()
    try:
        running = stack.enter_context(server)
    except (Missing, OperationalError, OSError, RuntimeError, TrinoFailed) as error:
        raise NotStarted(f"{name} did not start.\n{last_lines(str(error))}") from None
    say(f"  {name} runs, after {time.monotonic() - started:.0f} s")
    return running


def last_lines(text: str) -> str:
    """The end of a log."""
    return "\n".join(text.strip().splitlines()[-_LAST_LINES:])


def last_lines_of(log: Path) -> str:
    """The end of a log file."""
    return last_lines(log.read_text(errors="replace"))
