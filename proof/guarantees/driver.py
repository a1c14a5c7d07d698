"""One start of a sink's streams, one over each kind of source, in this process's Spark or in a driver of its own.

``python -m proof.guarantees.driver SINK FOLDER SOURCE...`` runs the streams until their sources are used up.
`LAKESINK_FAILPOINTS` says where each of them waits for its death.
"""

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.guarantees.forgetful import ForgetfulSource
from proof.contrast.driver import named
from proof.drivers import end_with_the_parent, session
from proof.guarantees.cells import Source
from proof.guarantees.sinks import WIRINGS


def run_streams(spark: SparkSession, sink: str, folder: Path, sources: Sequence[Source]) -> list[str]:
    """Run a sink's streams side by side until their sources are used up, a file a batch.

    Returns:
        For each, the error that stopped it, in a word; empty if it ended well.
    """
    queries = [_started(spark, sink, folder / source.name, source) for source in sources]
    return [_ended(query) for query in queries]


def _started(spark: SparkSession, sink: str, folder: Path, source: Source) -> StreamingQuery:
    return WIRINGS[sink].writer(_rows(spark, source, folder / "source"), folder).start()


def _ended(query: StreamingQuery) -> str:
    try:
        query.processAllAvailable()
    except Exception as error:  # noqa: BLE001 - whatever stops a stream is the answer
        return named(error)
    finally:
        query.stop()
    return ""


def _rows(spark: SparkSession, source: Source, folder: Path) -> DataFrame:
    if source is Source.REPLAYS:
        reader = spark.readStream.schema("device long, reading long").option("maxFilesPerTrigger", 1)
        return reader.json(str(folder))
    spark.dataSource.register(ForgetfulSource)
    return spark.readStream.format(ForgetfulSource.name()).load(str(folder))


def _end_with_a_stream(spark: SparkSession) -> None:
    """A stream that fails does not come to where it was to die, while the other waits there for ever."""
    try:
        spark.streams.awaitAnyTermination()
    except Exception as error:  # noqa: BLE001 - whatever it is, this driver is of no more use
        print(named(error), file=sys.stderr, flush=True)
        os._exit(1)


def main(sink: str, folder: str, *sources: str) -> None:
    """The command line, see the module."""
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    spark = session("local[1]", (), {}, Path(folder))
    threading.Thread(target=_end_with_a_stream, args=(spark,), daemon=True).start()
    try:
        print(run_streams(spark, sink, Path(folder), [Source[source] for source in sources]), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
