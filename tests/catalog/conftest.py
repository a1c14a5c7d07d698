"""Every kind of catalog that lakesink's tests certify: what they are asked, each of them is asked."""

from collections.abc import Iterator
from typing import Any

import pytest

from lakesink_catalog.connect.catalog import connect
from testkit.http_servers import postgres
from testkit.rest_catalog import rest_catalog

PASSWORD = "p@ss/w:rd"  # noqa: S105 - of a database that lives for one test


@pytest.fixture(scope="module", params=["sqlite", "in-memory", "postgresql", "rest"])
def properties(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Of a catalog that runs; its tables and its namespaces are new to whoever names it as nobody else does."""
    folder = tmp_path_factory.mktemp("catalog")
    warehouse = {"warehouse": f"file://{folder}/w"}
    if request.param == "sqlite":
        yield warehouse | {"uri": f"sqlite:///{folder}/catalog.db"}
    elif request.param == "in-memory":
        yield warehouse | {"type": "in-memory"}
    elif request.param == "rest":
        backing = connect("backing", warehouse | {"uri": f"sqlite:///{folder}/catalog.db"})
        with rest_catalog(backing) as (uri, _):
            yield {"type": "rest", "uri": uri}
    else:
        with postgres(PASSWORD) as server:
            yield warehouse | {"uri": f"postgresql://lake:p%40ss%2Fw%3Ard@{server.address}"}
