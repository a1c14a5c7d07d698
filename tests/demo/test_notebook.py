"""The notebook among the examples runs, and shows what is stored in it."""

from pathlib import Path

import nbformat
import pytest

from tests.demo.notebook import NOTEBOOK, executed, shown


@pytest.fixture(autouse=True)
def _nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAKESINK_HOME", "LAKESINK_VERBOSE", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))


@pytest.mark.page("examples/notebook")
def test_the_notebook_runs_and_shows_what_is_stored_in_it(tmp_path: Path) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    now = shown(executed(tmp_path))
    assert now == shown(stored), "if that is right: python -m tests.demo.notebook"
    text = "\n".join(now)
    assert "orders  batch 2     committed" in text
    assert "Audit: clean: 4 batches, each there once, whole and readable" in text
    assert now[-1].splitlines()[-1] == "as of batch 3: 400 orders"


def test_no_path_of_a_machine_is_stored() -> None:
    assert [line for line in NOTEBOOK.read_text().splitlines() if "/tmp/" in line or "site-packages" in line] == []  # noqa: S108 - looked for
