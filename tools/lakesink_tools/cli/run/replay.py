"""``dead-letters --replay``: runs a repair in Spark SQL, in a Spark session of its own."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import lakesink
from lakesink_catalog.words import as_arguments, counted, number
from lakesink_tools.cli.output import NOT_WELL, OK, Report, invalid, progress

if TYPE_CHECKING:
    from lakesink.sinks.iceberg.side.replays import Replayed


def replay_from(
    query: Path, table: str, letters: str, catalog: str | None, branch: str, of_documents: Mapping[str, str]
) -> Report:
    """Exit code 1: letters are pending that the query does not return."""
    try:
        text = query.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise invalid(f"The query in {query} cannot be read: {type(error).__name__}.", "Name a file of SQL.") from None
    with progress() as told:
        told(f"{letters}: repairing letters")
        options = {"catalog": catalog, "branch": branch, "dead_letter_table": letters, **of_documents}
        done = _replayed(text, table, options)
    arguments = as_arguments(table, catalog)
    return Report(
        document={
            "table": table,
            "letters_table": letters,
            "replays": done.replays,
            "letters": done.letters,
            "pending": done.pending,
        },
        title=f"Replayed {counted(done.letters, 'letter')} of {letters} into {table}; {number(done.pending)} pending.",
        hints=[f"Next: lakesink {'dead-letters' if done.pending else 'audit'} {arguments}"],
        exit_code=NOT_WELL if done.pending else OK,
    )


def _replayed(query: str, table: str, options: Mapping[str, Any]) -> "Replayed":
    replay = lakesink.replay_dead_letters  # without PySpark, this raises an error that says so
    from lakesink_tools.demo.place import check_java
    from lakesink_tools.demo.session import quiet_session

    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with TemporaryDirectory(prefix="lakesink-replay-") as folder:
        session = quiet_session("lakesink-replay", Path(folder), {"spark.sql.session.timeZone": "UTC"})
        try:
            return replay(session, table, query, **options, verbose=False)
        finally:
            session.stop()
