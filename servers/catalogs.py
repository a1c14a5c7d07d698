"""Catalogs of others, each with all that it needs, to be asked the same."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest.mock import patch

from servers.catalog_clients import made_importable
from servers.glue import MOTO_VERSION, glue
from servers.hive import hive
from servers.jars import HIVE_VERSION, NESSIE_VERSION
from servers.nessie import nessie
from servers.s3 import s3

_BUCKET = "lake"
_WAREHOUSE = f"s3://{_BUCKET}/warehouse"
_OFTEN = {"lock-check-max-wait-time": "0.1", "lock-check-retries": "1000"}
_Properties = dict[str, str]
Hold = Callable[[Path], AbstractContextManager[_Properties]]


@contextmanager
def over_nessie(folder: Path) -> Iterator[_Properties]:
    """Nessie, with its tables on S3, see `CATALOGS`."""
    with (
        s3(folder / "s3", _BUCKET) as store,
        patch.dict(os.environ, store.environment),
        nessie(folder / "nessie", store, _WAREHOUSE) as server,
    ):
        yield server.properties


@contextmanager
def over_glue(folder: Path) -> Iterator[_Properties]:
    """Glue, with its tables on S3, see `CATALOGS`."""
    with (
        s3(folder / "s3", _BUCKET) as store,
        patch.dict(os.environ, {**store.environment, **made_importable()}),
        glue(folder / "glue", store, _WAREHOUSE) as server,
    ):
        yield server.properties


@contextmanager
def over_hive(folder: Path) -> Iterator[_Properties]:
    """Hive's metastore, with its tables in the folder, see `CATALOGS`."""
    with patch.dict(os.environ, made_importable()), hive(folder / "hive") as server:
        yield {"type": "hive", "uri": server.uri, **_OFTEN}


NESSIE, HIVE = f"Nessie {NESSIE_VERSION}", f"Hive Metastore {HIVE_VERSION}"
CATALOGS: Mapping[str, Hold] = {
    NESSIE: over_nessie,
    f"AWS Glue, as emulated by moto {MOTO_VERSION}": over_glue,
    HIVE: over_hive,
}
"""Each runs within the block, in an empty folder. It yields properties for PyIceberg; keys are in the environment."""


def local_path(location: str, folder: Path) -> str:
    """The file of a location in a catalog of `CATALOGS`."""
    return location.replace("s3://", f"{folder}/s3/buckets/").removeprefix("file:")
