"""The Spark driver of both queries: ``python -m examples.kafka_windows.driver SETTING``.

It is killed and started again, and knows nothing of that: all that it needs to go on is in checkpoints and tables.
"""

import logging
import sys

from pyspark.sql import DataFrame, SparkSession

from lakesink_tools.demo.process import end_with_parent
from lakesink_tools.demo.session import quiet_session
from servers.jars import KAFKA_SPARK, fetched

from .departures import PER_TRANSACTION
from .queries import count_departures, from_files, from_kafka, keep_events
from .setting import Setting

_CONF = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}


def main(setting: Setting) -> None:
    """Run both queries; when everything has been sent, read what is left, and end."""
    end_with_parent()
    logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("lakesink").setLevel(logging.INFO)
    jars = {"spark.jars": ",".join(map(str, fetched(KAFKA_SPARK)))} if setting.bootstrap else {}
    spark = quiet_session("kafka-windows", setting.home / "spark", {**_CONF, **jars})
    queries = [start(records(spark, setting), setting.checkpoints) for start in (keep_events, count_departures)]
    while not setting.finish.exists():
        for query in queries:
            query.awaitTermination(1)  # raises what it has failed with; the supervisor then starts both again
    for query in queries:
        query.processAllAvailable()
    spark.stop()


def records(spark: SparkSession, setting: Setting) -> DataFrame:
    """The source, as the setting has it."""
    if setting.bootstrap:
        return from_kafka(spark, setting.bootstrap, setting.records_per_batch)
    return from_files(spark, setting.inbox, max(1, setting.records_per_batch // PER_TRANSACTION))


if __name__ == "__main__":
    main(Setting.given())
