import subprocess
import sys

import pytest

import lakesink

CLASSES_AND_FUNCTIONS = sorted(set(lakesink.__all__) - {"__version__", "Outcome"})


@pytest.mark.parametrize("name", CLASSES_AND_FUNCTIONS)
def test_every_public_name_leads_to_the_thing_of_that_name(name: str) -> None:
    assert getattr(lakesink, name).__name__ == name


def test_an_outcome_is_committed_or_already_committed() -> None:
    assert lakesink.Outcome == lakesink.Committed | lakesink.AlreadyCommitted


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="overwrite"):
        _ = lakesink.overwrite
    assert dir(lakesink) == sorted(lakesink.__all__)


@pytest.mark.parametrize(
    "module", ["lakesink", "lakesink_protocol.two_phase", "lakesink.task.task", "lakesink_tools.cli.main"]
)
def test_only_the_spark_side_imports_pyspark(module: str) -> None:
    code = f"import sys, {module}; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_java_of_the_index_is_there_after_the_import_of_lakesink() -> None:
    code = "import lakesink; lakesink.java.use"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("module", ["pyiceberg", "fsspec", "sqlalchemy", "duckdb"])
def test_an_executor_imports_little(module: str) -> None:
    code = f"import sys, lakesink.spark.rows.task, lakesink.task.task; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
