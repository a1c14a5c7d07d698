"""Streams by lakesink and by Iceberg's own sink in one Spark session, in a process of its own with Iceberg's jars."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from proof.contest.driver import Orders, run_stream
from proof.drivers import session
from servers.jars import ICEBERG_SPARK, ROOT, fetched
from testkit.harness import PATIENCE_SECONDS


@dataclass(slots=True)
class StreamSession:
    """One session. Use `stream_session`."""

    folder: Path
    process: "subprocess.Popen[str]"

    def run(self, orders: Orders) -> str:
        """Run a stream until its source is used up.

        Returns:
            The error that stopped it, in a word; empty if it ended well.
        """
        to, answers = self.process.stdin, self.process.stdout
        assert to is not None
        assert answers is not None
        to.write(json.dumps(asdict(orders)) + "\n")
        to.flush()
        line = answers.readline()
        assert line, (self.folder / "session.log").read_text(errors="replace")[-3000:]
        return str(json.loads(line))


@contextmanager
def stream_session(folder: Path) -> Iterator[StreamSession]:
    """A session that runs, and ends with the block.

    Args:
        folder: Exists.

    Raises:
        JarsMissing: See `servers.jars.fetched`.
    """
    call = [sys.executable, "-m", __name__, str(folder), *map(str, fetched(ICEBERG_SPARK))]
    own = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "session.log").open("ab") as log:
        process = subprocess.Popen(
            call, env=own, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        yield StreamSession(folder, process)
    finally:
        try:
            process.communicate(timeout=PATIENCE_SECONDS)  # closes its input: that ends it, its JVM too
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _serve(folder: Path, jars: list[str], asked: IO[str]) -> None:
    spark = session("local[2]", map(Path, jars), {}, folder)
    for line in asked:
        print(json.dumps(run_stream(spark, Orders.from_json(json.loads(line)))), flush=True)
    spark.stop()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), sys.argv[2:], sys.stdin)
