"""The page on clusters, its recipes executed as they are printed, on workers that lack what they lack there."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from lakesink_catalog.connect.catalog import connect
from servers.spark_cluster import HOME
from testkit.harness import CONF, PATIENCE_SECONDS, live_files
from tests.interop.cluster.ground import CATALOG, Ground
from tests.interop.cluster.pythons import Pythons

pytestmark = pytest.mark.interop
PAGE = Path(__file__).parents[3] / "docs/use/cluster.md"


def test_both_recipes_run(ground: Ground, pythons: Pythons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = f"PYICEBERG_CATALOG__{CATALOG.upper()}__"  # the catalog of this run, under the name that the page gives to it
    for name in filter(lambda name: name.startswith(old), list(os.environ)):
        monkeypatch.setenv(name.replace(old, "PYICEBERG_CATALOG__PROD__"), os.environ[name])
    settings = "".join(f"{name} {value}\n" for name, value in {**CONF, **ground.cluster.conf}.items())
    (tmp_path / "spark-defaults.conf").write_text(settings)
    (tmp_path / "orders.py").write_text(printed("job").replace("s3a://shop", str(tmp_path)))
    (tmp_path / "incoming").mkdir()
    python = "/opt/lakesink/bin/python"
    for number, recipe in enumerate([printed("installed").replace(python, str(pythons.released)), printed("archive")]):
        (tmp_path / "incoming" / f"{number}.json").write_text(json.dumps({"id": number, "amount": 1.5}))
        assert run(recipe.replace("spark://master:7077", ground.cluster.master), tmp_path) == ""

    table = connect("prod").load_table("shop.orders")
    head = table.current_snapshot()
    assert head is not None
    paths = [str(ground.place(path)) for path in live_files(table, head.snapshot_id)]
    assert Counter(duckdb.read_parquet(paths).project("id").fetchall()) == Counter([(0,), (1,)])


def printed(name: str) -> str:
    text = PAGE.read_text().partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]
    [code] = re.findall(r"```(?:python|sh)\n(.*?)```", text, re.DOTALL)
    return str(code)


def run(recipe: str, folder: Path) -> str:
    """What a recipe said that failed; empty if it ended well."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"SPARK_HOME": str(HOME), "SPARK_CONF_DIR": str(folder), "PATH": path}
    done = subprocess.run(
        ["sh", "-ec", recipe],
        env={**os.environ, **own},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    return done.stdout + done.stderr if done.returncode else ""
