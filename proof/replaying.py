"""A replay of the dead letters of a stream of changes, without Spark: a right repair, and a task for its rows."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.batch_plan import stored_columns
from lakesink.sinks.iceberg.iceberg_sink import BeforeCommit, IcebergSink
from lakesink.sinks.iceberg.side.replay_loop import AppendRows, Repaired
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.identity import Batch, SinkKey
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.two_phase import TaskWriter
from lakesink_protocol.votes import Vote, Votes, receipts_of
from proof.content import Content
from proof.oracle import Key


def repair(letters: pa.Table, content: Content) -> tuple[list[Key], Repaired]:
    """All letters, in the order of the source: where they come from, and their rows as they should have come."""
    columns = (letters[name].to_pylist() for name in ("partition", "offset", "letter_id"))
    found = sorted(zip(*columns, strict=True))
    keys = [(partition, offset) for partition, offset, _ in found]
    return keys, Repaired([letter for *_, letter in found], content.repaired(keys))


def append_by(make_sink: Callable[..., IcebergSink]) -> AppendRows:
    """Appends rows by a sink that is made of what the loop gives."""

    def append(
        rows: pa.Table,
        table: str,
        key: SinkKey,
        batch: Batch,
        settings: Settings,
        before_commit: BeforeCommit,
    ) -> Outcome:
        schema = stored_columns(rows.schema, settings, case_sensitive=False)
        sink = make_sink(table=table, key=key, settings=settings, schema=schema, before_commit=before_commit)

        def write(writers: Mapping[str, TaskWriter]) -> Votes:
            [(name, writer)] = writers.items()
            return Votes(1, [Vote(0, receipts_of(name, writer, writer.write(0, iter(rows.to_batches()))))])

        return run_batch(batch, [sink], write)[sink.name]

    return append
