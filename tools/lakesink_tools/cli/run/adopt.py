"""The command ``adopt``: goes on with a stream that Iceberg's own sink for Spark has written so far."""

from dataclasses import asdict

from lakesink.settings.settings import Settings
from lakesink_tools.cli.output import Report, confirmed
from lakesink_tools.operate.adopt import adopt_stream


def adopt(table: str, catalog: str | None, sink: str, checkpoint: str, branch: str, *, yes: bool) -> Report:
    """Exit code 2: table and checkpoint do not fit together, or the catalog did not take the commit."""
    settings = Settings.parse({"sink_id": sink, "checkpoint": checkpoint, "branch": branch})
    done = adopt_stream(table, catalog, settings=settings, confirm=lambda question: confirmed(question, yes=yes))
    said = "had taken over before" if done.already else "has taken over"
    again = f"Spark will ask for batch {done.batch_id} again, since its log does not have it; it is then skipped."
    following = f"Spark will ask for batch {done.batch_id + 1}."
    return Report(
        document={"table": table, "sink": sink, "branch": branch, **asdict(done)},
        title=f"Sink {sink} {said} after batch {done.batch_id} of Iceberg's own sink.",
        hints=[
            f"It ended at {done.offsets}",
            again if done.comes_again else following,
            f"Next: start the same query with lakesink.stream(..., sink_id={sink!r}) on the same checkpoint.",
        ],
    )
