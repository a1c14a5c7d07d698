"""What a command of `lakesink` costs: seconds and peak memory of a process of its own, Python's start included."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "status": ("status",),
    "log": ("log",),
    "as-of": ("as-of", "--batch", "0"),
    "audit --skip-footers": ("audit", "--skip-footers"),
    "audit": ("audit",),
}
_RUN = """
import atexit, re, sys
from pathlib import Path
from lakesink_tools.cli.main import main

def tell():
    peak = re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]
    print("peak KiB", peak, end="", file=sys.stderr)

atexit.register(tell)
main()
"""
"""The process prints its own peak: what its parent could ask for is the larger of both their peaks."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run of a command."""

    seconds: float
    processor_seconds: float
    peak_mib: float


def cost_of(command: Sequence[str], table: str, environment: Mapping[str, str]) -> Cost:
    """Run a command on a table that is as it should be."""
    name, *options = command
    given = [sys.executable, "-c", _RUN, name, table, *options, "--catalog", "bench", "--output", "json"]
    started, before = time.perf_counter(), os.times()
    done = subprocess.run(given, capture_output=True, env=os.environ | environment, check=True)
    seconds, after = time.perf_counter() - started, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(seconds, used, int(done.stderr.rpartition(b"peak KiB ")[2]) / 1024)


def environment_of(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The catalog's properties, and the same for a process."""
    properties = {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": f"file://{folder}"}
    return properties, {f"PYICEBERG_CATALOG__BENCH__{name.upper()}": value for name, value in properties.items()}
