"""SQL that reads one snapshot of a table, to copy into Spark, Trino or DuckDB. Pure."""

import re
from collections.abc import Sequence

_LARGEST_INTEGER = 2**31 - 1
_SAFE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SAFE_TAG = re.compile(r"[A-Za-z][A-Za-z0-9._@%/:+-]*")


def queries(parts: Sequence[str], metadata_file: str, snapshot_id: int, tag: str | None) -> dict[str, str]:
    """One query for each engine, by the engine's name.

    Args:
        parts: Namespaces and name of the table; an engine may need its own name of the catalog in front.
        metadata_file: Location of a metadata file that contains the snapshot.
        snapshot_id: The snapshot.
        tag: A tag that stays at the snapshot, and so outlives expiry; None for none.
    """
    # Engines quote other characters by different rules; the id needs no quotes.
    named = f"'{tag}'" if tag is not None and _SAFE_TAG.fullmatch(tag) else None
    file = metadata_file.removeprefix("file://").replace("'", "''")
    spark, trino = _quoted(parts, "`"), _quoted(parts, '"')
    return {
        "Spark": f"SELECT * FROM {spark} VERSION AS OF {named or snapshot_id};",  # noqa: S608 - shown, never run here
        "Trino": f"SELECT * FROM {trino} FOR VERSION AS OF {named or id_for_trino(snapshot_id)};",  # noqa: S608 - as above
        "DuckDB": f"SELECT * FROM iceberg_scan('{file}', snapshot_from_id => {snapshot_id});",  # noqa: S608 - as above
    }


def id_for_trino(snapshot_id: int) -> str:
    """Trino reads a number that fits an integer as INTEGER, and refuses it as a version."""
    return f"BIGINT '{snapshot_id}'" if snapshot_id <= _LARGEST_INTEGER else str(snapshot_id)


def _quoted(parts: Sequence[str], mark: str) -> str:
    return ".".join(
        part if _SAFE_NAME.fullmatch(part) else f"{mark}{part.replace(mark, mark * 2)}{mark}" for part in parts
    )
