"""Catalogs: configuration, opening, and error translation."""

from lakesink_catalog.connect.catalog import (
    EMBEDDED_NAME,
    HOME_VARIABLE,
    CatalogConfig,
    FoundCatalog,
    connect,
    embedded_home,
)

__all__ = ["EMBEDDED_NAME", "HOME_VARIABLE", "CatalogConfig", "FoundCatalog", "connect", "embedded_home"]
