"""``format("lakesink")`` as Spark knows it: the class that PySpark finds by itself, see `pyspark_lakesink`.

PySpark imports this module to look up data sources, and an error here would hide those of every other package too. So
it imports PySpark only, and the writers where a query needs them.
"""

from importlib import import_module
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.types import StructType

NAME = "lakesink"


class LakesinkDataSource(datasource.DataSource):
    """The data source of one query. Spark creates a new object in every process and for every batch.

    Attributes:
        loaded: What `schema` found, for the readers; empty if Spark did not ask for it.
    """

    loaded = ""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return NAME

    def schema(self) -> StructType:
        """The columns that a stream from the table has; Spark sends this object on, with what was loaded here."""
        columns, self.loaded = _imported("source_readers").load(self.options)
        return columns  # type: ignore[no-any-return]

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        """Always raises: the format reads streams only."""
        from lakesink_protocol.errors import QueryError

        raise QueryError.of("READ_UNSUPPORTED")

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:
        """The reader of a stream over the batches of a sink."""
        readers = _imported("source_readers")
        kind = _imported("admitting_reader").AdmittingReader if readers.ADMITS else readers.BatchesReader
        return readers.stream_reader(self.options, self.loaded, kind)  # type: ignore[no-any-return]

    def streamWriter(self, schema: StructType, overwrite: bool) -> datasource.DataSourceStreamWriter:
        """The writer of one micro-batch."""
        return _imported("source_writers").stream_writer(self.options, schema, overwrite=overwrite)  # type: ignore[no-any-return]

    def writer(self, schema: StructType, overwrite: bool) -> datasource.DataSourceWriter:
        """The writer of a batch write, already planned."""
        return _imported("source_writers").batch_writer(self.options, schema, overwrite=overwrite)  # type: ignore[no-any-return]


def _imported(name: str) -> Any:
    try:
        return import_module(f"lakesink.spark.source.{name}")
    except ImportError as error:
        from lakesink_protocol.errors import QueryError

        raise QueryError.of("EXECUTOR_PYTHON.planner", error=error) from None
