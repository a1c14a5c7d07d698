"""Applies a function to items in Spark's executors, one task for each item, and returns its bytes."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pyspark import cloudpickle
from pyspark.core.rdd import PipelinedRDD
from pyspark.sql import SparkSession

from lakesink._version import __version__
from lakesink.spark.query import QUERY_ID, RunningQuery
from lakesink.spark.rows.batch_rows import collected
from lakesink.spark.rows.task import RawBytes, check_versions
from lakesink.spark.rows.worker_reuse import make_reuse_cheap
from lakesink.spark.spark_errors import JAVA_ERRORS, QueryStopped, is_interruption, job_error, whole_text

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Executors:
    """The executors of a session."""

    session: SparkSession = field(repr=False)

    def __call__(self, function: Callable[[Item], bytes], items: Sequence[Item]) -> list[bytes]:
        """The results in the order of the items; function and items can be pickled.

        Raises:
            LakesinkError: The function failed for an item.
            QueryStopped: The query was asked to stop meanwhile.
        """
        if not items:
            return []
        shipped = cloudpickle.dumps(function)  # type: ignore[no-untyped-call] # PySpark's copy has no types
        sent = self.session.sparkContext.parallelize([pickle.dumps(item) for item in items], len(items))
        results: PipelinedRDD[Any, Any] = PipelinedRDD(sent, partial(apply_to_items, __version__, shipped))
        results._jrdd_deserializer = RawBytes()  # else PySpark would unpickle results, which is unsafe
        try:
            return collected(results)
        except JAVA_ERRORS as error:
            query_id = self.session.sparkContext.getLocalProperty(QUERY_ID)  # of the streaming query of this thread
            if query_id is not None and (is_interruption(error) or RunningQuery(self.session, query_id).was_stopped()):
                raise QueryStopped from None
            raise job_error(whole_text(error)) from None


def apply_to_items(version: str, function: bytes, _: int, items: Iterable[bytes]) -> Iterator[bytes]:
    """The part of one task. It compares versions before it unpickles the function, whose classes may differ."""
    make_reuse_cheap()
    check_versions(version)
    apply: Callable[[Any], bytes] = pickle.loads(function)
    for item in items:
        yield apply(pickle.loads(item))
