"""The catalogue of errors, from `errors.toml` in this package: for errors, `lakesink explain` and the documentation."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from importlib.resources import files
from string import Formatter
from typing import Any


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


PREFIX = "LAKESINK_"
_LINK = re.compile(r" See \[[^\]]+\]\([^)]+\)\.")


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
class Text:
    """What an error says, with the names of facts in braces."""

    says: str
    do: tuple[str, ...]
    data: str

    def told(self, facts: Mapping[str, Any]) -> "Text":
        """The text with these facts, without links."""
        return Text(self.says.format_map(facts), tuple(self._ways(facts)), self.data.format_map(facts))

    def _ways(self, facts: Mapping[str, Any]) -> Iterator[str]:
        """A fact of several ways to go on is each of them; a way that lacks its fact (None) is left out."""
        for way in self.do:
            if isinstance(ways := facts.get(way.strip("{}")), list | tuple):
                yield from ways
            elif all(facts[name] is not None for name in _holes(way)):
                yield _LINK.sub("", way).format_map(facts).strip()

    def shown(self) -> "Text":
        """The text with each hole as ``<name>``, for readers."""
        return Text(opened(self.says), tuple(map(opened, self.do)), opened(self.data))


@dataclass(frozen=True, slots=True)
class Explanation:
    """One error."""

    code: str  # with its prefix
    when: When
    text: Text
    situations: Mapping[str, Text] = field(default_factory=dict)  # by name: other words for the same code
    more: str = ""  # further paragraphs

    def page(self) -> str:
        """The whole explanation as plain text."""
        first, *others = (text.shown() for text in (self.text, *self.situations.values()))
        parts = [f"{self.code}: {first.says}", f"Data:  {first.data}\nDo:    {_listed(first.do)}"]
        parts += [f"{text.says}\nDo:    {_listed(text.do)}" for text in others if " " in text.says]
        return "\n\n".join([*parts, *filter(None, [self.more.strip()])])


@cache
def explanations() -> dict[str, Explanation]:
    """Every error by its code, in the order of the documentation."""
    document = tomllib.loads(files(__package__).joinpath("errors.toml").read_text(encoding="utf-8"))
    found = {}
    for when, errors in document.items():
        data = errors.pop("data")
        for name, own in errors.items():
            facts = {"data": data, **own}
            situations = {key: _text(facts | words) for key, words in own.items() if isinstance(words, dict)}
            code = f"{PREFIX}{name}"
            found[code] = Explanation(code, When[when.upper()], _text(facts), situations, own.get("more", ""))
    return found


def text_of(name: str) -> Text:
    """The text of ``CODE``, or of ``CODE.situation``."""
    code, _, situation = name.partition(".")
    found = explanations()[full_code(code)]
    return found.situations[situation] if situation else found.text


def state_of(code: str) -> str:
    """The state of the data after this error; unknown for a code of a custom sink."""
    found = explanations().get(full_code(code))
    return DataState.UNKNOWN.value if found is None else found.text.data


def where_explained(code: str) -> str:
    """Where to read about this error; empty for a code of somebody else's sink."""
    code, url = full_code(code), documentation_url()
    if code not in explanations():
        return ""
    return f"lakesink explain {code}" + ("" if url is None else f", or {url}/reference/errors/#{code.lower()}")


def full_code(text: str) -> str:
    """The full code for a user's input, in any case, with or without prefix and brackets."""
    word = text.strip().strip("[]`").upper().replace("-", "_")
    return word if word.startswith(PREFIX) else f"{PREFIX}{word}"


def _text(facts: Mapping[str, Any]) -> Text:
    do, data = facts["do"], facts["data"]
    state = DataState.__members__.get(data.upper().replace(" ", "_"))
    return Text(facts["says"], (do,) if isinstance(do, str) else tuple(do), data if state is None else state.value)


def _holes(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def opened(text: str) -> str:
    """A text with each hole as ``<name>``."""
    parsed = ((said, name) for said, name, _, _ in Formatter().parse(text))
    return "".join(said if name is None else f"{said}<{name.replace('_', ' ')}>" for said, name in parsed)


def _listed(ways: tuple[str, ...]) -> str:
    plain = [_LINK.sub("", way) for way in ways]
    return plain[0] if len(plain) == 1 else "".join(["Choose one of these.", *(f"\n  - {way}" for way in plain)])
