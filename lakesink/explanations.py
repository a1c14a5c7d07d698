"""Every error code in words: what `lakesink explain` prints and the docs list, from `errors.toml` in this package."""

import re
import tomllib
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files

PREFIX = "LAKESINK_"
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_ASIDE = re.compile(r"[;,] (?:see )?\[[^`\]]+\]\([^)]+\)(?= |$)(?: has the rules)?")


class DataState(Enum):
    """What of the batch is in the table. The name is in capitals what `errors.toml` says."""

    UNCHANGED = "Nothing was written."
    NOT_IN = "Nothing of this batch is in the table; files that it may have left are referenced by nothing."
    UNKNOWN = "It may be in or not: nothing was deleted, and the restart looks at the table before it writes."
    PARTLY = "It is in some of the tables; the restart skips those."
    IN = "The batch is in the table."


@dataclass(frozen=True, slots=True)
class Explanation:
    """One error.

    Attributes:
        code: With its prefix.
        data: What of the batch is in.
        what: What happened, in Markdown.
        action: What to do, in Markdown.
        more: Paragraphs for whoever reads about this one error; may be empty.
    """

    code: str
    data: DataState
    what: str
    action: str
    more: str

    def page(self) -> str:
        """All that there is to say, as plain text."""
        parts = [
            f"{self.code}: {_plain(self.what)}.",
            f"Data:  {self.data.value}\nDo:    {_plain(self.action)}.",
            self.more.strip(),
        ]
        return "\n\n".join(part for part in parts if part)


@cache
def explanations() -> dict[str, Explanation]:
    """Every error by its code, in the order of the docs."""
    document = tomllib.loads(files(__package__).joinpath("errors.toml").read_text(encoding="utf-8"))
    return {f"{PREFIX}{name}": _explanation(f"{PREFIX}{name}", facts) for name, facts in document.items()}


def full_code(text: str) -> str:
    """A code as somebody may type it: any case, with or without prefix and brackets."""
    word = text.strip().strip("[]`").upper().replace("-", "_")
    return word if word.startswith(PREFIX) else f"{PREFIX}{word}"


def errors_table_markdown() -> str:
    """Every error as a Markdown table, for the docs."""
    rows = (f"| `{one.code}` | {one.what} | {one.action} |" for one in explanations().values())
    return "\n".join(["| code | what happened | what to do |", "|---|---|---|", *rows]) + "\n"


def _explanation(code: str, facts: dict[str, str]) -> Explanation:
    state = DataState[facts["data"].upper().replace(" ", "_")]
    return Explanation(code, state, facts["what"], facts["do"], facts.get("more", ""))


def _plain(markdown: str) -> str:
    """Without marks, and without what only points at another page."""
    return _LINK.sub(r"\1", _ASIDE.sub("", markdown)).replace("`", "")
