"""A stream of numbered files into a topic, by drivers that die."""

import json
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from testkit.harness import Stream, expected
from tests.interop.kafka_out.suite_sink import Reader

DRIVER = Path(__file__).with_name("driver.py")


@dataclass(frozen=True)
class TopicStream(Stream):
    """Every record is (file, row), and each file is one batch."""

    program: Path = DRIVER
    bootstrap: str = ""

    def config(self) -> dict[str, Any]:
        return super().config() | {"bootstrap": self.bootstrap, "staging": str(self.root / "staging")}

    def partitions(self) -> list[list[tuple[int, int]]]:
        """File and row of the committed records of each partition, in their order."""
        reader = Reader(self.bootstrap)
        found = [reader.of_partition(self.table, partition) for partition in range(3)]
        values = [[json.loads(value or b"") for _, value in records] for records in found]
        return [[(value["file"], value["row"]) for value in of_partition] for of_partition in values]

    def assert_each_row_once(self, files: int) -> None:
        """Every row of these files is there once, and in each partition the batches came in their order."""
        partitions = self.partitions()
        assert Counter(row for of_partition in partitions for row in of_partition) == expected(range(files))
        for of_partition in partitions:
            assert of_partition, "every partition has rows"
            assert all(before[0] <= after[0] for before, after in pairwise(of_partition))
