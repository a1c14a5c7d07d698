"""The tables of a catalog are listed namespace by namespace, whatever one of them answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakesink_protocol.errors import CatalogError
from lakesink_tools.past.listing import tables_in

SCHEMA = Schema(NestedField(1, "id", LongType()))
TABLES = ("b.y", "b.x", "a.t", "b.inner.deep.z", "b.inner.w")


class Guarded(SqlCatalog):
    """A catalog that keeps some namespaces to itself, and names one inside itself."""

    def list_tables(self, namespace: Any) -> list[Any]:
        if namespace[-1] == "inner":
            raise ForbiddenError("not yours")
        return super().list_tables(namespace)

    def list_namespaces(self, namespace: Any = ()) -> list[Any]:
        return [*super().list_namespaces(namespace), *([namespace] if namespace else [])]


def filled(kind: type[SqlCatalog], folder: Path) -> SqlCatalog:
    catalog = kind("test", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    for name in TABLES:
        parts = tuple(name.split("."))
        for depth in range(1, len(parts)):
            catalog.create_namespace_if_not_exists(parts[:depth])
        catalog.create_table(parts, SCHEMA)
    return catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    found = filled(SqlCatalog, tmp_path)
    yield found
    found.close()


def test_tables_come_by_name_and_nested_namespaces_after_their_parents(catalog: Catalog) -> None:
    assert list(tables_in(catalog)) == [(name, None) for name in ("a.t", "b.x", "b.y", "b.inner.w", "b.inner.deep.z")]


def test_a_namespace_that_may_not_be_listed_is_named_and_the_others_are_listed(tmp_path: Path) -> None:
    guarded = filled(Guarded, tmp_path)
    names, troubles = zip(*tables_in(guarded), strict=True)
    assert names == ("a.t", "b.x", "b.y", "b.inner")
    assert troubles[:3] == (None, None, None)
    assert isinstance(troubles[3], CatalogError)
    guarded.close()


def test_an_empty_catalog_has_no_table(tmp_path: Path) -> None:
    empty = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db")
    assert list(tables_in(empty)) == []
    empty.close()
