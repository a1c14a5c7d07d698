"""What was found in the rows of a batch, as counts. Pure; executors import this."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakesink_protocol.measures import DEAD_LETTERS, MEASURES, RESCUED_ROWS, UNKNOWN_KEYS, UNMET_ROWS, Tally
from lakesink_protocol.receipt_json import whole_count
from lakesink_protocol.redact import redact, shown

MOST_NAMES = 10
LONGEST_NAME = 60
MOST_EXPECTATIONS = 50
LONGEST_TABLE = 1_024
EXPECTATION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
MOST_REASONS = 20
REPLAY = "dead-letters.replay."
"""How the names of applications begin that write replayed dead letters into the table."""
REPLAYS_TABLE = "lakesink.replays-table"
"""Summary property of a replay's snapshot: the table that assigns dead letters to replays."""
OTHERS = "others"
"""Stands for all reasons but the first."""
_REASON = re.compile(r"(.{1,200}): (no column|not [A-Z][A-Za-z0-9_,()\[\] ]{0,60})", re.DOTALL)
UNKNOWN_NAMES, RESCUED, UNMET_PREFIX = "lakesink.unknown-key-names", "lakesink.rescued", "lakesink.unmet."
LETTERS_TABLE, LETTERS_SINCE = "lakesink.dead-letter-table", "lakesink.dead-letters-since"
"""Summary properties of a batch's snapshot that explain its counts; empty ones are left out."""
_SINCE = re.compile(r"([0-9]{1,18}):([0-9a-f]{12}|)")
_MOST_TABLES = 16


@dataclass(frozen=True, slots=True)
class Quality:
    """Counts of one task, or of a batch, and what explains them.

    Attributes:
        unknown_names: The first ten names of unknown keys in alphabetical order, as paths with dots.
        unmet: Of every expectation, the number of rows that did not meet it; 0 if all did.
        letters_table: The table of dead letters; only the driver knows it.
        rescued: For each reason, such as ``a.b: no column`` or ``a.c: not INT``, the number of rescued rows. Of more
            than 20 reasons, the first ones in alphabetical order, and the sum of the other numbers under `OTHERS`.
        letters_since: Which table has the dead letters of which batches, see the function `letters_since`.
    """

    counts: Tally = field(default_factory=Tally)
    unknown_names: tuple[str, ...] = ()
    unmet: Mapping[str, int] = field(default_factory=dict)
    letters_table: str = ""
    rescued: Mapping[str, int] = field(default_factory=dict)
    letters_since: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON form for receipts and prepared records: each count, and then what explains it."""
        explained: dict[Any, dict[str, Any]] = {
            UNKNOWN_KEYS: {"unknown_names": list(self.unknown_names)},
            UNMET_ROWS: {"unmet": dict(self.unmet)},
            DEAD_LETTERS: {"letters_table": self.letters_table, "letters_since": self.letters_since},
            RESCUED_ROWS: {"rescued": dict(self.rescued)},
        }
        found: dict[str, Any] = {}
        for one in MEASURES:
            found |= {one.name: self.counts[one], **explained.get(one, {})}
        return found

    def to_summary(self) -> dict[str, str]:
        """Properties for a snapshot's summary. A batch that met an expectation says so: its history is in the table."""
        found = {one.key: str(self.counts[one]) for one in MEASURES if self.counts[one]}
        found |= {f"{UNMET_PREFIX}{name}": str(count) for name, count in self.unmet.items()}
        found |= {LETTERS_TABLE: self.letters_table} if self.puts_aside else {}
        found |= {LETTERS_SINCE: self.letters_since} if self.letters_since else {}
        found |= {RESCUED: _json(dict(self.rescued))} if self.rescued else {}
        return found | ({UNKNOWN_NAMES: self.names_text} if self.unknown_names else {})

    @property
    def puts_aside(self) -> bool:
        """True if rows are not in the table, but in its table of dead letters."""
        return DEAD_LETTERS in self.counts

    def with_letters(self, table: str, since: str) -> "Quality":
        """With the table of the dead letters, if there are any, and which table has those of earlier batches."""
        return replace(self, letters_table=table if self.puts_aside else "", letters_since=since)

    @property
    def names_text(self) -> str:
        """The names as a JSON list without spaces, for a log line or a summary."""
        return _json(self.unknown_names)

    def unmet_in_words(self, names: Iterable[str]) -> str:
        """Those of the expectations that rows did not meet: ``valid_age 3, has_id 1``; empty if all were met."""
        return ", ".join(f"{name} {self.unmet[name]:,}" for name in names if self.unmet[name])


def together(parts: Iterable[Quality]) -> Quality:
    """The sum of all parts."""
    found = list(parts)
    unmet: Counter[str] = Counter()
    for part in found:
        unmet.update(part.unmet)
    return Quality(
        Tally.total(part.counts for part in found),
        first_names(name for part in found for name in part.unknown_names),
        dict(unmet),
        rescued=first_reasons(reason for part in found for reason in part.rescued.items()),
    )


def first_names(names: Iterable[str]) -> tuple[str, ...]:
    """The first ten names, safe to show; the result does not depend on how the documents were split."""
    return tuple(sorted({redact(shown(name, LONGEST_NAME)) for name in names})[:MOST_NAMES])


def reason_of(column: str, why: str) -> str:
    """Why values are in the rescue column, safe to show."""
    return f"{redact(shown(column, LONGEST_NAME))}: {why}"


def first_reasons(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The numbers of the first 20 reasons, and of all others; the result does not depend on how the rows were split."""
    found: Counter[str] = Counter()
    for reason, count in counts:
        found[reason] += count
    others = found.pop(OTHERS, 0)
    first = sorted(found)[:MOST_REASONS]
    others += found.total() - sum(found[reason] for reason in first)
    return {reason: found[reason] for reason in first} | ({OTHERS: others} if others else {})


def rescued_in(text: str) -> dict[str, int]:
    """The counts by reason in a snapshot's summary; none if the text has another form."""
    try:
        return _reasons(json.loads(text)) if text else {}
    except (ValueError, RecursionError):
        return {}


def unmet_in(summary: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The counts of expectations in a snapshot's summary; what is not such a count is left out."""
    found = {}
    for key, value in summary:
        name = key.removeprefix(UNMET_PREFIX)
        if name != key and EXPECTATION_NAME.fullmatch(name) and re.fullmatch(r"[0-9]{1,18}", value):
            found[name] = int(value)
    return found


def quality_from(document: Mapping[str, Any]) -> Quality:
    """The counts in a receipt or a prepared record; raises ValueError or KeyError."""
    counts, names, unmet = {one: document[one.name] for one in MEASURES}, document["unknown_names"], document["unmet"]
    if not isinstance(unmet, dict) or len(unmet) > MOST_EXPECTATIONS or not all(map(EXPECTATION_NAME.fullmatch, unmet)):
        raise ValueError("the expectations are not a few names with counts")
    letters_table, letters_since = document["letters_table"], document["letters_since"]
    rescued = _reasons(document["rescued"])
    for count in (*counts.values(), *unmet.values()):
        whole_count(count)
    if not isinstance(names, list) or len(names) > MOST_NAMES or not all(isinstance(name, str) for name in names):
        raise ValueError("the names of unknown keys are not a short list of texts")
    if not all(isinstance(text, str) and len(text) <= LONGEST_TABLE for text in (letters_table, letters_since)):
        raise ValueError("the name of a table is no short text")
    return Quality(Tally(counts), first_names(names), unmet, letters_table, rescued, letters_since)


def _reasons(document: Any) -> dict[str, int]:
    """Counts by reason; raises ValueError."""
    if not isinstance(document, dict) or len(document) > MOST_REASONS + 1:
        raise ValueError("the reasons of rescued rows are not a few texts with counts")
    return first_reasons((_safe_reason(reason), whole_count(count)) for reason, count in document.items())


def _safe_reason(reason: str) -> str:
    if reason == OTHERS:
        return OTHERS
    found = _REASON.fullmatch(reason)
    if found is None:
        raise ValueError("the reason of a rescued row has another form")
    return reason_of(found[1], found[2])


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def letters_since(known: str, batch_id: int, table_uuid: str) -> str:
    """Since which batch the dead letters of a query go to which table, once this batch is there.

    ``0:1f0c9e6ab3d2,7:,9:1f0c9e6ab3d2`` is a table by the begin of its UUID; batches 7 and 8 put no rows aside. `known`
    is that of the batch before. The newest batch of a sink is always retained, so this outlives the others' snapshots.
    """
    found = [one for one in _SINCE.findall(known) if int(one[0]) < batch_id]
    table = _short(table_uuid)
    if (found or table) and (not found or found[-1][1] != table):
        found.append((str(batch_id), table))
    return ",".join(map(":".join, found[-_MOST_TABLES:]))


def may_have_letters(since: str, batch_id: int, table_uuid: str) -> bool:
    """True if this says that the table has the letters of a batch, or if it does not say which one has."""
    tables = [table for first, table in _SINCE.findall(since) if int(first) <= batch_id]
    return not tables or tables[-1] == _short(table_uuid)


def _short(table_uuid: str) -> str:
    return table_uuid.replace("-", "")[:12]
