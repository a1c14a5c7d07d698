"""The package by which PySpark finds the format: cheap to import, and no trouble for others if lakesink is broken."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("pyarrow", "pyiceberg", "fsspec", "sqlalchemy", "lakesink_catalog", "lakesink_protocol")
IMPORTED = "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_lakesink"
FIND = (
    "from pkgutil import iter_modules; print([info.name for info in iter_modules() if info.name == 'pyspark_lakesink'])"
)
WRITE = "from pyspark.sql.types import StructType; pyspark_lakesink.DefaultSource({}).%s(StructType(), False)"


def python(code: str, *path: Path) -> "subprocess.CompletedProcess[str]":
    """Run Python with these folders first on its path."""
    code = f"import sys; sys.path[:0] = {[str(folder) for folder in path]!r}; {code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_it_is_where_pyspark_looks_once_lakesink_is_installed(site: Path) -> None:
    assert python(FIND, site).stdout.strip() == "['pyspark_lakesink']"


def test_the_look_up_of_every_session_imports_nothing_heavy(site: Path) -> None:
    done = python(f"{IMPORTED}; print({{name.partition('.')[0] for name in set(sys.modules) - before}})", site)
    assert done.returncode == 0, done.stderr
    assert not [name for name in HEAVY if f"'{name}'" in done.stdout]
    assert "'lakesink'" in done.stdout


@pytest.mark.parametrize("kind", ["streamWriter", "writer"])
def test_a_broken_dependency_is_named_by_the_query_and_not_by_the_look_up(
    site: Path, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "pyiceberg.py").write_text("raise ImportError('pyiceberg is broken')")
    assert python(IMPORTED, tmp_path, site).returncode == 0
    told = python(f"{IMPORTED}; {WRITE % kind}", tmp_path, site).stderr
    assert (
        '[LAKESINK_EXECUTOR_PYTHON] The Python in which Spark plans format("lakesink") cannot import it: pyiceberg is'
        " broken." in told
    )
    assert "Data: Nothing was written." in told
