"""A checkpoint's files through the driver's JVM are those that are read without one."""

from typing import Any

import pytest

from lakesink.spark.hadoop import HadoopFiles
from tests.checkpoint.reader_contract import Reader, ReaderContract


@pytest.fixture
def reader(spark: Any) -> Reader:
    return lambda root: HadoopFiles(spark, f"file:{root}")


class TestHadoopFiles(ReaderContract):
    """With the driver's JVM."""
