"""Lists the tables of a catalog, namespace by namespace. A namespace that cannot be listed stops nothing."""

from collections.abc import Iterator

from pyiceberg.catalog import Catalog

from lakesink_catalog.connect.catalog_failures import asking
from lakesink_protocol.errors import CatalogError

Found = tuple[str, CatalogError | None]
"""The name of a table; or of a namespace, and why its tables or its own namespaces could not be listed."""


def tables_in(catalog: Catalog) -> Iterator[Found]:
    """Every table, by name, those of a namespace before those of the namespaces in it.

    Raises:
        CatalogError: The catalog lists no namespaces.
    """
    for namespace in _namespaces(catalog, ()):
        yield from _below(catalog, namespace)


def _below(catalog: Catalog, namespace: tuple[str, ...]) -> Iterator[Found]:
    try:
        for table in sorted(asking(catalog, lambda: catalog.list_tables(namespace))):
            yield ".".join(table), None
        children = _namespaces(catalog, namespace)
    except CatalogError as error:
        yield ".".join(namespace), error
        return
    for child in children:
        yield from _below(catalog, child)


def _namespaces(catalog: Catalog, parent: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The namespaces in another; catalogs without nested ones may answer with the same again."""
    found = asking(catalog, lambda: catalog.list_namespaces(parent))
    return sorted(namespace for namespace in found if len(namespace) > len(parent))
