"""What tests of the catalog share: every kind of catalog that is certified, and the layout of a manifest."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from lakesink_catalog.connect.catalog import connect
from testkit.builders import Lake
from testkit.http_servers import postgres
from testkit.rest_catalog import rest_catalog
from tests.catalog.partition_cases import CASES
from tests.catalog.raw_avro import raw
from tests.catalog.test_exact_manifests import Writer

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


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The schema of a manifest that lakesink wrote, with a partition field of every type."""
    cases = list({case.name: case for case in CASES}.values())
    schema = Schema(*(NestedField(2 + number, f"c{number}", case.source) for number, case in enumerate(cases)))
    parts = (
        PartitionField(2 + number, 1000 + number, case.transform, f"p{number}") for number, case in enumerate(cases)
    )
    spec = PartitionSpec(*parts)
    lake = Lake.make(tmp_path_factory.mktemp("lake"), schema=schema, spec=spec)
    [manifest] = Writer(lake).prepare(0, [(None,) * len(spec.fields)]).manifests
    found: dict[str, Any] = json.loads(raw(manifest.path).metadata["avro.schema"])
    return found
