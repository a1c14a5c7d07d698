"""The executors' part of reading ``format("lakesink")``. Imports no PyIceberg, which executors may lack."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from lakesink.read.file_rows import RowsPart
from lakesink.spark.rows.task import check_versions
from lakesink.spark.rows.worker_reuse import make_reuse_cheap


class RowsPartition(InputPartition):
    """The work of one task, and the lakesink that planned it."""

    def __init__(self, part: RowsPart, version: str) -> None:
        super().__init__(None)
        self.part = part
        self.version = version


class RowsReader(DataSourceStreamReader):
    """Reads the rows of a task: what executors get instead of the reader that plans."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part of a micro-batch."""
        make_reuse_cheap()
        assert isinstance(partition, RowsPartition)
        check_versions(partition.version)
        return partition.part.rows()


def rows_reader(*_: Any) -> RowsReader:
    """A new reader, for pickles."""
    return RowsReader()
