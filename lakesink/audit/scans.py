"""Names the one limit of PyIceberg's scans: they apply positional deletes, but not equality deletes."""

from collections.abc import Iterator
from contextlib import contextmanager

from lakesink_protocol.errors import CatalogError


@contextmanager
def deletes_named(snapshot_id: int) -> Iterator[None]:
    """Wrap a scan of a snapshot: an unsupported delete becomes a `CatalogError`."""
    try:
        yield
    except (ValueError, NotImplementedError) as error:
        if "equality delete" not in str(error):
            raise
        raise CatalogError(
            "DELETES_UNSUPPORTED",
            f"Snapshot {snapshot_id} has equality deletes, which PyIceberg cannot apply: its rows cannot be read here.",
            data="Nothing was changed: this command only reads.",
            action="Read it in Spark or Trino: lakesink as-of, without --read, prints the SQL.",
        ) from error
