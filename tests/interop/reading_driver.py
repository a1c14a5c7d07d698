"""A driver that reads the batches of a table into another one: ``python -m tests.interop.reading_driver CONFIG``."""

import json
import sys
from pathlib import Path
from typing import Any

import lakesink
from lakesink.spark.source.data_source import LakesinkDataSource
from proof.drivers import session


def main(config: dict[str, Any]) -> None:
    spark = session("local[2]", (), {}, Path(config["folder"]))
    spark.dataSource.register(LakesinkDataSource)
    catalog = config["catalog"]
    options = {"table": config["reads"], "catalog": config["name"], "reader-id": "silver"}
    options |= {f"catalog.{name}": value for name, value in catalog.items()}
    rows = spark.readStream.format("lakesink").options(**options).load()
    writer = lakesink.stream(
        rows,
        config["writes"],
        sink_id="silver",
        checkpoint=config["checkpoint"],
        catalog=config["name"],
        catalog_properties=catalog,
        create_table=True,
    )
    writer.trigger(processingTime="0 seconds").start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
