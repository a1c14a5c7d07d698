"""The survivors that are known: bugs that change nothing, and bugs whose test is still missing."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

FILE = Path(__file__).parent / "survivors.toml"
HEAD = """\
# One-line bugs that no fast test sees, each with a reason: see `make mutants`.
# [equivalent]: the bug changes nothing that a caller can see. It is neither run nor counted.
# [open]: a test is missing. It is run, and counts as not killed.
"""


@dataclass(frozen=True, slots=True)
class Survivors:
    """Reasons by the id of the bug."""

    equivalent: Mapping[str, str] = field(default_factory=dict)
    open: Mapping[str, str] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, str]:
        """Both kinds."""
        return {**self.equivalent, **self.open}

    def stale(self, ids: Iterable[str]) -> list[str]:
        """Entries of bugs that the sources no longer have."""
        return sorted(self.all.keys() - set(ids))

    def renewed(self, new: Iterable[str], stale: Iterable[str]) -> "Survivors":
        """With new survivors, still without a reason, and without stale entries."""
        kept = {one: reason for one, reason in self.open.items() if one not in set(stale)}
        equivalent = {one: reason for one, reason in self.equivalent.items() if one not in set(stale)}
        return replace(self, equivalent=equivalent, open=kept | dict.fromkeys(new, ""))


def read(file: Path = FILE) -> Survivors:
    """The known survivors."""
    return Survivors(**tomllib.loads(file.read_text()))


def write(survivors: Survivors, file: Path = FILE) -> None:
    """Write them, sorted."""
    parts = {"equivalent": survivors.equivalent, "open": survivors.open}
    lines = [
        line
        for name, entries in parts.items()
        for line in ("", f"[{name}]", *(f"{json.dumps(one)} = {json.dumps(entries[one])}" for one in sorted(entries)))
    ]
    file.write_text(HEAD + "\n".join(lines) + "\n")
