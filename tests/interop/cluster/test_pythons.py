"""What executors lack is named, with what to do; nothing is lost, and the next driver goes on."""

import os
import sysconfig
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lakesink import __version__
from testkit.harness import expected
from tests.interop.cluster.ground import ClusterStream, Ground
from tests.interop.cluster.pythons import ANOTHER, NAMED, Pythons, packages_of

pytestmark = pytest.mark.interop


def test_lakesink_is_missing(ground: Ground, pythons: Pythons, root: Path) -> None:
    stream = ground.stream(root / "stream", environment=python(pythons.without))
    said = refused(stream)
    assert "[LAKESINK_EXECUTOR_PYTHON]" in said
    assert "No module named 'lakesink'" in said
    assert "PYSPARK_PYTHON" in said
    assert "lakesink pack" in said
    goes_on(replace(stream, environment=python(pythons.released)))


def test_lakesink_is_another_one(ground: Ground, pythons: Pythons, root: Path) -> None:
    stream = ground.stream(root / "stream", environment=python(pythons.another))
    said = refused(stream)
    assert "[LAKESINK_EXECUTOR_PYTHON]" in said
    assert ANOTHER in said
    assert __version__ in said


@pytest.mark.nightly
def test_lakesink_is_missing_for_the_format(ground: Ground, pythons: Pythons, root: Path) -> None:
    """The query fails before lakesink could say anything: Spark itself names the module."""
    only = {"spark.executorEnv.PYTHONPATH": sysconfig.get_path("purelib")}
    stream = ground.stream(root / "stream", only, environment=NAMED, adapter="format")
    assert "ModuleNotFoundError: No module named 'lakesink'" in refused(stream)
    goes_on(replace(stream, conf={**stream.conf, "spark.executorEnv.PYTHONPATH": with_lakesink(pythons.released)}))


@pytest.mark.nightly
def test_lakesink_is_another_one_for_the_format(ground: Ground, pythons: Pythons, root: Path) -> None:
    """Driver and workers know their Pythons by one name; what the workers find is of another version."""
    other = {"spark.executorEnv.PYTHONPATH": with_lakesink(pythons.another)}
    stream = ground.stream(root / "stream", other, environment=NAMED, adapter="format")
    said = refused(stream)
    assert "[LAKESINK_EXECUTOR_PYTHON]" in said
    assert ANOTHER in said
    assert __version__ in said


def test_there_is_no_key(ground: Ground, pythons: Pythons, root: Path) -> None:
    without = {f"spark.executorEnv.{name}": "" for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    stream = ground.stream(root / "stream", without, environment=python(pythons.released))
    said = refused(stream)
    assert "[LAKESINK_STORAGE_REJECTED]" in said
    assert ground.store.secret_key not in said
    goes_on(replace(stream, conf={name: value for name, value in stream.conf.items() if name not in without}))


def python(path: Path) -> Mapping[str, str]:
    return {"PYSPARK_PYTHON": str(path)}


def with_lakesink(path: Path) -> str:
    """For ``PYTHONPATH``, which reads no file that leads to other folders: its lakesink, and all that it needs."""
    return os.pathsep.join([str(packages_of(path)), sysconfig.get_path("purelib")])


def refused(stream: ClusterStream) -> str:
    """What a driver says that cannot go on; nothing of its batch is in the table."""
    stream.add_files(0, 2)
    assert stream.run() == 1
    return stream.log()


def goes_on(stream: ClusterStream) -> None:
    assert stream.run() == 0, stream.log()
    assert stream.rows() == expected(range(2))
