"""Where the documentation is: the installed package states it, see `[project.urls]` in pyproject.toml."""

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata


@cache
def documentation_url() -> str | None:
    """The URL with the label Documentation; None if the package states none, or is not installed as a package."""
    try:
        stated = metadata("lakesink").get_all("Project-URL") or []
    except PackageNotFoundError:
        return None
    urls = dict(one.split(", ", 1) for one in stated)
    url = urls.get("Documentation")
    return None if url is None else url.rstrip("/")


def error_page(code: str) -> str | None:
    """The place of an error in the documentation."""
    url = documentation_url()
    return None if url is None else f"{url}/reference/errors/#{code.lower()}"
