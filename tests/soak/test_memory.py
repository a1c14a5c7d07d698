"""A driver's memory stays flat while batches go by: Python and JVM looked at apart."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from testkit.harness import CONF, Stream, kill_all

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

EARLY, LATE = 100, 500
GROWTH_LIMIT_MIB = 20
# A heap of fixed size, touched from the start: what the process grows by is then not the heap, which is asked for its
# live objects apart. Three of four full collections of the serial collector leave up to 5 % of the old generation, 17
# MiB here, where garbage was, and count it as used, unless each has to compact.
FIXED_HEAP = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-Xms512m -XX:+AlwaysPreTouch -XX:+UseSerialGC "
    "-XX:MarkSweepAlwaysCompactCount=1 -XX:TieredStopAtLevel=1",
}


def test_memory_after_batch_500_is_that_after_batch_100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")  # glibc's arenas for many threads grow by chance, not by batch
    stream = Stream(tmp_path, trigger={"processingTime": "0 seconds"}, conf=CONF | FIXED_HEAP, heap_after=(EARLY, LATE))
    stream.add_files(0, LATE + 20)

    with stream.driver() as driver:
        early = mib_after(stream, EARLY, driver)
        late = mib_after(stream, LATE, driver)
        kill_all(driver)

    growth = {who: round(late[who] - early[who], 1) for who in early}
    print(f"MiB after batch {EARLY}: {early}, after batch {LATE}: {late}, growth: {growth}")
    assert all(mib < GROWTH_LIMIT_MIB for mib in growth.values()), growth


def mib_after(stream: Stream, batch: int, driver: "subprocess.Popen[str]") -> dict[str, float]:
    """After a batch: resident memory of the driver's Python and of its JVM, and the JVM's live objects."""
    pattern = re.compile(rf"heap_after batch={batch} mib=([0-9.]+)")
    while not (found := pattern.search(stream.log())):
        assert driver.poll() is None, stream.log()[-5000:]
        time.sleep(0.5)
    [jvm] = children(driver.pid, "java")
    return {"python": resident_mib(driver.pid), "jvm": resident_mib(jvm), "jvm heap": float(found[1])}


def children(pid: int, command: str) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(pid)], capture_output=True, text=True, check=True)
    rows = (line.split(maxsplit=1) for line in found.stdout.splitlines())
    return [int(child) for child, name in rows if name == command]


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1024**2, 1)
