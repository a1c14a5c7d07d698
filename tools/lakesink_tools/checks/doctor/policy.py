"""What a stream does with rows that do not fit, and how it changes rows by key, read from its snapshots. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakesink.rows.plan import OnMalformed
from lakesink.settings.option_types import Deletes, OutputMode
from lakesink.settings.settings import read_policy
from lakesink_protocol.redact import redact, shown
from lakesink_protocol.row_changes import Mode

_LONGEST_NAME = 100
_STOPS = "stops the query"
_FOLLOWS = ("add", "widen")
_NEW_COLUMN = {"ignore": "is left out", **dict.fromkeys(_FOLLOWS, "becomes a column")}


def policy_in_words(text: str) -> str:
    """What would happen to new columns or keys, and to rows that cannot be written; `text` may be empty."""
    chosen, _ = _parsed(text)
    documents = "decode" in chosen
    evolution, rescue = chosen.get("schema_evolution", "fail"), chosen.get("rescue_column", "")
    what = "a key without a column" if documents else "a column that the table lacks"
    becomes = _NEW_COLUMN.get(evolution, _STOPS)
    if rescue:
        becomes = f"{becomes}, or is kept in {rescue}" if evolution in _FOLLOWS else f"is kept in {rescue}"
    elif documents and evolution == "ignore":
        becomes = f"{becomes} and counted"
    quarantined = chosen.get("on_malformed") == OnMalformed.QUARANTINE
    bad_row = f"goes to {chosen.get('dead_letter_table', 'the dead letters')}" if quarantined else _STOPS
    return f"{what} {becomes}; a row that cannot be written {bad_row}"


@dataclass(frozen=True, slots=True)
class ChangePolicy:
    """How a stream changes rows by key.

    Attributes:
        keys: Columns of the key, as the stream named them; empty for the table's identifier fields.
        sequence_by: Columns of which the greatest value wins; empty if the order of the stream is trusted.
        keeps_deleted: True if a delete marks the row, and does not remove it.
        updates: True if the rows are results that Spark emits again when they change, as in output mode ``update``.
    """

    mode: Mode
    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    keeps_deleted: bool
    updates: bool = False


def change_policy(text: str) -> ChangePolicy | None:
    """How a stream changes rows by key, by the property of its snapshots; None if it appends."""
    chosen, lists = _parsed(text)
    if chosen.get("mode") not in (Mode.UPSERT, Mode.CHANGES):
        return None
    return ChangePolicy(
        mode=Mode(chosen["mode"]),
        keys=tuple(lists.get("keys", ())),
        sequence_by=tuple(lists.get("sequence_by", ())),
        keeps_deleted=chosen.get("deletes") == Deletes.SOFT,
        updates=chosen.get("output_mode") == OutputMode.UPDATE,
    )


def _parsed(text: str) -> tuple[Mapping[str, str], Mapping[str, Sequence[str]]]:
    """Options and lists in a summary, as short texts."""

    def short(value: str) -> str:
        return redact(shown(value, _LONGEST_NAME))

    texts, lists = read_policy(text)
    return (
        {name: short(value) for name, value in texts.items()},
        {name: [*map(short, values)] for name, values in lists.items()},
    )
