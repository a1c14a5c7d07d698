"""What an executor's Python does, as a program: one task of a pickled plan over an Arrow stream, and what it costs.

Run with the paths of a pickled `WritePlan` and of the stream; prints one line of JSON.
"""

import json
import pickle
import resource
import sys
from pathlib import Path

import pyarrow as pa

from lakesink.task.task import ParquetTaskWriter
from lakesink_protocol.receipt import decode
from lakesink_protocol.row_changes import SUPERSEDED


def peak_bytes() -> int:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def threads() -> int:
    """Threads of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def main(plan_path: str, rows_path: str) -> None:
    """Write once and report."""
    plan = pickle.loads(Path(plan_path).read_bytes())  # noqa: S301 - the test's own
    writer = ParquetTaskWriter(plan)
    before, threads_before = peak_bytes(), threads()
    with pa.OSFile(rows_path) as stream, pa.ipc.open_stream(stream) as batches:
        receipt = decode(writer.write(0, iter(batches)))
    report = {
        "rows": receipt.rows,
        "superseded": receipt.changed[SUPERSEDED],
        "partitions": len({file.partition for file in receipt.files}),
        "grown": peak_bytes() - before,
        "threads": threads() - threads_before,
        "modules": sorted(name for name in sys.modules if name.split(".")[0] in ("pyiceberg", "pyspark", "pandas")),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
