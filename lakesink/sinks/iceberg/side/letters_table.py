"""The side table of dead letters: its messages, which rows go there, and how many a batch may have.

Its batches are those of a stream, whose table has the rows.
"""

from collections.abc import Sequence

from lakesink.rows.expectations import Expected, OnUnmet
from lakesink.rows.letters import SUFFIX, letters_key
from lakesink.rows.plan import OnMalformed
from lakesink.settings.options import BY_NAME, option_invalid
from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.side.side_sink import SideTableSink
from lakesink.sinks.iceberg.side.side_table import SideTable
from lakesink_catalog.tables.tables import parse_identifier
from lakesink_catalog.words import counted as in_words
from lakesink_protocol import measures
from lakesink_protocol.errors import Reason, SettingsError, WriteError
from lakesink_protocol.quality import Quality
from lakesink_protocol.redact import shown
from lakesink_protocol.refusals.texts import Words
from lakesink_protocol.votes import receipt_rejected

LETTERS_WORDS: Sequence[Words] = (
    Words(
        Reason.TABLE_REPLACED,
        "The table of dead letters now has UUID {table_uuid}; this query wrote to {known_uuid}.",
        "Start the query again: it writes batch {n} again, and its dead letters into this table.\n"
        "If the old table was dropped by mistake, restore it before. If this one is a copy of another table of dead"
        " letters, name another one with the option dead_letter_table.",
    ),
    Words(
        Reason.REWOUND,
        "The table of dead letters has just got those of batch {last}, and this is batch {n}.",
        "Look for a second query with the same sink id and stop it. Then start this one again.",
    ),
    Words(
        Reason.ROLLED_BACK,
        "The table of dead letters was rolled back behind those of batch {last}; the newest in it are of {newest}.",
        "If the query's table still has the batches of which letters are missing ({undone}), roll this table forward"
        " again.\n"
        "If these batches were written again, nothing is missing: accept as below.\n"
        "If the query's table was rolled back too, no accept overrules both: rewind with `lakesink rewind`,"
        " or name another table with the option dead_letter_table.",
    ),
)
"""All can be met by a query whose own table is as it was."""


DEAD_LETTERS = SideTable(
    "dead letters",
    "dead_letter_table",
    "DEAD_LETTERS_DIFFER",
    letters_key,
    LETTERS_WORDS,
    "Start the query again as it was, with the same expectations and the same columns of the table.",
    has_replays=True,
)
"""Rows that are put aside."""


def puts_aside(settings: Settings, expected: Sequence[Expected]) -> bool:
    """True if the query puts rows aside that cannot be written, or that do not meet an expectation."""
    quarantined = any(one.on_unmet is OnUnmet.QUARANTINE for one in expected)
    return quarantined or settings.on_malformed is OnMalformed.QUARANTINE


def letters_table(table: str, settings: Settings) -> str:
    """The table of dead letters of a table, or of a target without a name; raises SettingsError if it cannot be one."""
    own, name = parse_identifier(table) if table else None, settings.dead_letter_table
    if name is None and own is None:
        raise SettingsError.of("OPTION_MISSING", name="dead_letter_table", doc=BY_NAME["dead_letter_table"].doc)
    if name is None:
        return f"{table}{SUFFIX}"
    if parse_identifier(name) == own:
        raise option_invalid("dead_letter_table", f"The option dead_letter_table is {name!r}, the table itself.")
    return name


def check_letters(quality: Quality, rows: int, letters: SideTableSink, settings: Settings, batch_id: int) -> None:
    """Check that both receipts of the tasks say the same, and that not too many of so many rows are dead letters."""
    dead = quality.counts[measures.DEAD_LETTERS]
    if dead != (letters.voted[1] if letters.voted[0] == batch_id else 0):
        raise receipt_rejected("a task put another number of rows aside than it wrote as dead letters")
    limit = settings.max_dead_letters
    if limit is not None and dead > limit:
        raise _too_many(quality, rows, batch_id, f"max_dead_letters is {limit:,}", "max_dead_letters")
    ratio = settings.max_dead_letter_ratio
    if dead > ratio * rows:
        raise _too_many(quality, rows, batch_id, f"max_dead_letter_ratio is {ratio:g}", "max_dead_letter_ratio")


def other_letters(participant: str, letters: SideTableSink) -> WriteError:
    """The error for dead letters of a batch in another table than the query's."""
    other = shown(participant.removesuffix("@main"), 60)
    return WriteError.of("DEAD_LETTERS_DIFFER.other_table", other=other, table=letters.table)


def _too_many(quality: Quality, rows: int, batch_id: int, limit: str, option: str) -> WriteError:
    counts, dead = quality.counts, quality.counts[measures.DEAD_LETTERS]
    of_rules = [f"{name}: {in_words(unmet, 'row')}" for name, unmet in quality.unmet.items() if unmet]
    others = max(dead - counts[measures.UNMET_ROWS], 0)
    malformed = [f"malformed (lakesink explain VALUE_MALFORMED): {in_words(others, 'row')}"] if others else []
    return WriteError.of(
        "DEAD_LETTERS_TOO_MANY",
        details=[*malformed, *of_rules],
        dead=dead,
        rows=in_words(rows, "row"),
        batch_id=batch_id,
        limit=limit,
        option=option,
    )
