"""What a Python worker keeps between its tasks."""

import subprocess
import sys
import zipfile
from pathlib import Path

READ_ARCHIVES = """
import sys, zipimport
sys.path.insert(0, sys.argv[1])
import importlib
import first
from lakesink.spark.rows.worker_reuse import read_archives_once
read_archives_once()
read_archives_once()
reads = []
original = zipimport._read_directory
zipimport._read_directory = lambda archive: reads.append(archive) or original(archive)
importlib.invalidate_caches()
reads.clear()
importlib.invalidate_caches()
unchanged = reads.count(sys.argv[1])
import zipfile
with zipfile.ZipFile(sys.argv[1], "a") as archive:
    archive.writestr("second.py", "")
importlib.invalidate_caches()
import second
print(unchanged)
"""


def test_a_worker_reads_an_archive_again_only_when_it_has_changed(tmp_path: Path) -> None:
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("first.py", "")
    command = [sys.executable, "-c", READ_ARCHIVES, str(archive)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() == ["0"]


LOSES_ITS_ARCHIVE = """
import importlib, os, sys
sys.path.insert(0, sys.argv[1])
import first
from lakesink.spark.rows.worker_reuse import read_archives_once
read_archives_once()
importlib.invalidate_caches()
os.rename(sys.argv[1], sys.argv[1] + ".away")
importlib.invalidate_caches()
os.rename(sys.argv[1] + ".away", sys.argv[1])
importlib.invalidate_caches()
import second
print("found")
"""


def test_an_archive_that_was_away_for_a_moment_is_read_again(tmp_path: Path) -> None:
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("first.py", "")
        file.writestr("second.py", "")
    command = [sys.executable, "-c", LOSES_ITS_ARCHIVE, str(archive)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() == ["found"]


TEARS_ITS_ARCHIVE = """
import importlib, os, sys
sys.path.insert(0, sys.argv[1])
import first
from lakesink.spark.rows.worker_reuse import read_archives_once
read_archives_once()
importlib.invalidate_caches()
whole, at = open(sys.argv[1], "rb").read(), os.stat(sys.argv[1])
for content in (bytes(len(whole)), whole):
    with open(sys.argv[1], "wb") as file:
        file.write(content)
    os.utime(sys.argv[1], ns=(at.st_atime_ns, at.st_mtime_ns))
    importlib.invalidate_caches()
import second
print("found")
"""


def test_an_archive_that_was_torn_when_it_was_read_is_read_again(tmp_path: Path) -> None:
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("first.py", "")
        file.writestr("second.py", "")
    command = [sys.executable, "-c", TEARS_ITS_ARCHIVE, str(archive)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() == ["found"]


COLLECTS = """
import gc
from lakesink.spark.rows.worker_reuse import freeze_imports
freeze_imports()
of_the_first_task = gc.get_freeze_count()
freeze_imports()
of_the_second = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
freeze_imports()
print(of_the_first_task, of_the_second > 1000, gc.get_freeze_count() == of_the_second)
"""


def test_a_worker_collects_only_what_came_after_its_first_task() -> None:
    command = [sys.executable, "-c", COLLECTS]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() == ["0", "True", "True"]


PLANS_AND_COMMITS = """
import gc
from contextlib import suppress
from pyspark.sql.types import StructType
from lakesink.spark.source.data_source import LakesinkDataSource
from lakesink_protocol.errors import LakesinkError
for _ in range(2):
    before = gc.get_freeze_count()
    with suppress(LakesinkError):
        LakesinkDataSource({}).streamWriter(StructType(), True)
print(before, gc.get_freeze_count() > 100_000)
"""


def test_a_process_that_plans_or_commits_is_spared_too() -> None:
    command = [sys.executable, "-c", PLANS_AND_COMMITS]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() == ["0", "True"]
