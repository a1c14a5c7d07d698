"""`stream_files`: a stream into files of a directory, each batch once and atomically, without table or catalog."""

import os
from datetime import timedelta
from functools import partial
from typing import Any, Never

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lakesink.api.streams import check_streaming, stream_writer
from lakesink.observe.exports import measured
from lakesink.observe.terminal import watched
from lakesink.rows.expectations import is_mark
from lakesink.settings.option import option_unknown
from lakesink.settings.options import BY_NAME, read_option
from lakesink.sinks.directory.directory_sink import FileSink
from lakesink.sinks.staged.parts import check_part_schema
from lakesink.spark.report import Reporter
from lakesink.spark.rows.frame_schema import stored_schema
from lakesink_protocol.errors import QueryError
from lakesink_protocol.redact import redact
from lakesink_protocol.refusals.accept import Accept

_NAMES = (
    "sink_id",
    "checkpoint",
    "compression_codec",
    "target_file_size_bytes",
    "accept",
    "prepared_max_age",
    "verbose",
)


def stream_files(  # noqa: PLR0913 - the options, each by its name
    df: DataFrame,
    directory: str | os.PathLike[str],
    *,
    sink_id: str,
    checkpoint: str | os.PathLike[str],
    compression_codec: str | None = None,
    target_file_size_bytes: int | str | None = None,
    accept: str | Accept | None = None,
    prepared_max_age: timedelta | str | None = None,
    verbose: bool | str | None = None,
    **others: Never,
) -> DataStreamWriter:
    """Return a writer of a streaming DataFrame into files of a directory, each row exactly once.

    Set only trigger and query name, and call `start`. Only files that `lakesink.committed_files` lists are committed.

    Args:
        df: Streaming DataFrame of a classic Spark session.
        directory: Path, or URI that fsspec supports; created if missing.
        sink_id: Permanent name of this stream in this directory. It stays the same when the checkpoint changes.
        checkpoint: Checkpoint folder of this query only: a path or a URI.
        compression_codec: ``zstd`` (the default), ``snappy``, ``gzip``, ``lz4``, ``brotli`` or ``uncompressed``.
        target_file_size_bytes: Size at which a task begins a new file: bytes, or text such as ``512MB`` (the default).
        accept: Accepts one refused batch, once; copy the value from the message of the refusal.
        prepared_max_age: A prepared batch older than this is written again; 20 hours by default.
        verbose: True to print one line for each batch, False for none; by default at a terminal and in a notebook.
        **others: Refused, with the options of tables by their names.

    Raises:
        SettingsError: An option is unknown, malformed, or contradicts another.
        QueryError: The DataFrame is not a streaming one of a classic session.
        WriteError: Parquet does not support a column's type, or the storage cannot create files exclusively.
    """
    for name in others:
        of_table = "Only a table can have it. Write the stream into a table with lakesink.stream, or leave it out."
        raise option_unknown("lakesink.stream_files", name, _NAMES, of_table if name in BY_NAME else "")
    check_streaming(df, "lakesink.stream_files")
    sizes: dict[str, Any] = {"target_file_size_bytes": target_file_size_bytes, "prepared_max_age": prepared_max_age}
    files: dict[str, Any] = {"compression_codec": compression_codec, "accept": accept, **sizes}
    new_sink = partial(FileSink, directory, sink_id, **files)
    to = new_sink().place
    if any(map(is_mark, df.columns)):
        raise QueryError.of("WRONG_DATAFRAME.expectations")
    check_part_schema(stored_schema(df.schema))
    listeners = measured(watched(sink_id, f"directory {redact(to)}", verbose=verbose), to, sink_id)
    reporter = Reporter(to, sink_id, listeners)
    return stream_writer(df, read_option("checkpoint", checkpoint), reporter, lambda _schema, _session: new_sink())
