"""Messages of refusals for tables of dead letters: their batches are those of a stream, whose table has the rows."""

from collections.abc import Sequence

from lakesink_protocol.errors import Reason
from lakesink_protocol.refusal_words import Words

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
        "If these batches were written again, or were rolled back too, nothing is missing: accept as below.",
    ),
)
"""All can be met by a query whose own table is as it was."""
