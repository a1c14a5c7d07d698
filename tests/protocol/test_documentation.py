"""An error says where it is explained: offline always, and on a page if the installed package names one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakesink_protocol.catalogue import documentation_url
from lakesink_protocol.errors import CatalogError


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    documentation_url.cache_clear()
    yield
    documentation_url.cache_clear()


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, *urls: str) -> None:
    """A package lakesink, found before the real one."""
    package = folder / "lakesink-1.0.dist-info"
    package.mkdir()
    lines = ["Metadata-Version: 2.4", "Name: lakesink", "Version: 1.0", *(f"Project-URL: {url}" for url in urls)]
    (package / "METADATA").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(folder)


def test_an_error_names_the_command_that_explains_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch)
    lines = str(CatalogError("TABLE_MISSING", "Gone.", action="Look.")).splitlines()
    assert lines[-1] == "  More: lakesink explain LAKESINK_TABLE_MISSING"


def test_an_error_names_its_page_if_the_package_states_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, "Source, https://e.org/code", "Documentation, https://e.org/docs/")
    error = CatalogError("TABLE_MISSING", "Gone.", action="Look.")
    page = "https://e.org/docs/reference/errors/#lakesink_table_missing"
    assert error.more == f"lakesink explain LAKESINK_TABLE_MISSING, or {page}"


def test_a_code_of_another_sink_is_not_said_to_be_explained() -> None:
    assert str(CatalogError("OF_ANOTHER_SINK", "Gone.", action="Look.")).count("\n") == 2
