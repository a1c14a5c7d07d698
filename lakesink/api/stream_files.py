"""`stream_files`: a stream into files of a directory, each batch once and atomically, without table or catalog."""

import os
from datetime import timedelta
from functools import partial
from typing import Any, Unpack

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lakesink.api.stream_to import checked
from lakesink.observe.terminal import watched
from lakesink.settings.option_types import RowOptions
from lakesink.settings.options import read_option
from lakesink.sinks.directory.directory_sink import FileSink
from lakesink.sinks.staged.parts import check_part_schema
from lakesink.spark.foreach_batch import stream_writer
from lakesink.spark.report import Reporter, measured
from lakesink_protocol.redact import redact
from lakesink_protocol.refusals.accept import Accept


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
    **options: Unpack[RowOptions],
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
        **options: Of the rows, as for `lakesink.stream_to`. Those of tables are refused by their names.

    Raises:
        SettingsError: An option is unknown, malformed, or contradicts another.
        QueryError: The DataFrame is not a streaming one of a classic session.
        WriteError: Parquet does not support a column's type, or the storage cannot create files exclusively.
    """
    sizes: dict[str, Any] = {"target_file_size_bytes": target_file_size_bytes, "prepared_max_age": prepared_max_age}
    files: dict[str, Any] = {"compression_codec": compression_codec, "accept": accept, **sizes}
    new_sink = partial(FileSink, directory, sink_id, **files)
    first, location = new_sink(), read_option("checkpoint", checkpoint)
    rows, columns, in_front_of = checked(df, stream_files, first, {**options, "accept": accept})
    check_part_schema(columns)
    watching = watched(sink_id, f"directory {redact(first.place)}", verbose=verbose)
    reporter = Reporter(first.place, sink_id, measured(watching, first.place, sink_id))
    return stream_writer(rows, location, reporter, lambda _session: in_front_of(new_sink()))
