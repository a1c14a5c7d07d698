"""The catalogue of errors, from `errors.toml` in this package: for errors, `lakesink explain` and the documentation."""

import re
import tomllib
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from importlib.resources import files


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


PREFIX = "LAKESINK_"
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_ASIDE = re.compile(r"[;,] (?:see )?\[[^`\]]+\]\([^)]+\)(?= |$)(?: has the rules)?")


class DataState(Enum):
    """The state of the batch's data. In `errors.toml` the names are in lower case."""

    UNCHANGED = "Nothing was written."
    NOT_IN = "Nothing of this batch is in the table; no snapshot references files that it may have left."
    NOT_SENT = "This run committed nothing of the batch. The restart reads the ledger topic before it sends records."
    UNKNOWN = (
        "The batch may be in the table or not. Nothing was deleted; the restart checks the table before it writes."
    )
    PARTLY = "The batch is in some of the tables; the restart skips those."
    IN = "The batch is in the table."


class When(Enum):
    """When an error happens. In `errors.toml` the names are in lower case."""

    MACHINE = "When a machine, a catalog or a storage lacks something"
    OPTIONS = "When options are checked"
    TABLE = "When a table is opened"
    CHECKPOINT = "When a query starts on its checkpoint"
    DECISION = "When it is decided whether a batch is written"
    ROWS = "When rows and documents are written"
    CHANGES = "When rows are changed by their keys"
    JOB = "When Spark's job writes files"
    COMMIT = "When a batch is committed"
    READ = "When a table is read as a stream"
    TARGETS = "When a directory or Kafka is written"
    COMMANDS = "When a command runs"


@dataclass(frozen=True, slots=True)
class Explanation:
    """One error."""

    code: str  # with its prefix
    when: When
    data: DataState
    what: str  # what happened, in Markdown
    action: str  # what to do, in Markdown
    more: str  # further paragraphs; may be empty

    @property
    def meaning(self) -> str:
        """What happened, as plain text."""
        return _plain(self.what)

    def page(self) -> str:
        """The whole explanation as plain text."""
        parts = [
            f"{self.code}: {self.meaning}.",
            f"Data:  {self.data.value}\nDo:    {_plain(self.action)}.",
            self.more.strip(),
        ]
        return "\n\n".join(part for part in parts if part)


@cache
def explanations() -> dict[str, Explanation]:
    """Every error by its code, in the order of the documentation."""
    document = tomllib.loads(files(__package__).joinpath("errors.toml").read_text(encoding="utf-8"))
    every = (
        _explanation(f"{PREFIX}{name}", When[when.upper()], facts)
        for when, of_when in document.items()
        for name, facts in of_when.items()
    )
    return {one.code: one for one in every}


def state_of(code: str) -> DataState:
    """The state of the data after this error; unknown for a code of a custom sink."""
    found = explanations().get(full_code(code))
    return DataState.UNKNOWN if found is None else found.data


def where_explained(code: str) -> str:
    """Where to read about this error; empty for a code of somebody else's sink."""
    if full_code(code) not in explanations():
        return ""
    page = error_page(full_code(code))
    return f"lakesink explain {full_code(code)}{'' if page is None else f', or {page}'}"


def full_code(text: str) -> str:
    """The full code for a user's input, in any case, with or without prefix and brackets."""
    word = text.strip().strip("[]`").upper().replace("-", "_")
    return word if word.startswith(PREFIX) else f"{PREFIX}{word}"


def _explanation(code: str, when: When, facts: dict[str, str]) -> Explanation:
    state = DataState[facts["data"].upper().replace(" ", "_")]
    return Explanation(code, when, state, facts["what"], facts["do"], facts.get("more", ""))


def _plain(markdown: str) -> str:
    """Remove Markdown marks, and remarks that only link to another page."""
    return _LINK.sub(r"\1", _ASIDE.sub("", markdown)).replace("`", "")
