"""A source that cannot replay: a queue that forgets a message once it has handed it out.

Redis' LPOP, a socket and a webhook are such sources. This one is a Python data source of Spark: every file in a folder
is a message, and each becomes a batch.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

Offset = dict[str, int]


class ForgetfulSource(DataSource):
    """``spark.dataSource.register(ForgetfulSource)``, ``spark.readStream.format("forgetful").load(folder)``."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "forgetful"

    def schema(self) -> str:
        """Of every message's rows."""
        return "device long, reading long"

    def simpleStreamReader(self, schema: Any) -> "Queue":  # noqa: N802, ARG002 - the name and the argument are Spark's
        """The reader of a query, in the driver's Python."""
        return Queue(Path(self.options["path"]))


class Queue(SimpleDataSourceStreamReader):
    """Hands messages out.

    Args:
        folder: Where they wait; their names give their order.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Of a query that has no checkpoint."""
        return {"handed_out": 0}

    def read(self, start: Offset) -> tuple[Iterator[tuple[int, int]], Offset]:
        """Hand out the next message, and forget it."""
        message = min(self.folder.glob("*.json"), default=None)
        if message is None:
            return iter([]), start
        rows = [tuple(json.loads(line).values()) for line in message.read_text().splitlines()]
        message.unlink()
        return iter(rows), {"handed_out": start["handed_out"] + 1}

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[tuple[int, int]]:  # noqa: N802, ARG002 - Spark's
        """What Spark asks for when it runs a batch again, and what this source does not have any more."""
        return iter([])
