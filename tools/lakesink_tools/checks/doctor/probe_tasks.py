"""The parts of a probe that run in Spark's Python processes."""

import importlib
import platform
import socket
import sys
from collections.abc import Iterator
from typing import Any


def worker_facts(_: int) -> dict[str, str]:
    """Facts about this task's Python, as fields of `WorkerFacts`. Pickled by value: lakesink may be missing here."""
    found = {"lakesink": "", "pyarrow": ""}
    trouble = ""
    for name in found:
        try:
            found[name] = str(importlib.import_module(name).__version__)
        except Exception as error:  # noqa: BLE001 - a broken package may raise anything
            trouble = trouble or f"{type(error).__name__}: {error}"[:200]
    return {
        "host": socket.gethostname(),
        "executable": sys.executable,
        "python": platform.python_version(),
        "trouble": trouble,
        **found,
    }


class CountingWriter:
    """A `TaskWriter` that writes nothing; its receipt is the number of its rows."""

    def write(self, _task: int, batches: Iterator[Any]) -> bytes:
        """Count one task's rows."""
        return str(sum(batch.num_rows for batch in batches)).encode()
