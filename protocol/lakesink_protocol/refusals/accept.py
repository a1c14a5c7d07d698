"""An operator's accept: it overrules one refusal of one batch, in one state of the ledger. Pure."""

import re
from dataclasses import dataclass

from lakesink_protocol.errors import Reason
from lakesink_protocol.identity import digest
from lakesink_protocol.situation import Situation

NEVER_OVERRULED = frozenset({Reason.UNSUPPORTED, Reason.BRANCH_MISSING, Reason.TABLE_REPLACED, Reason.LEDGER_DAMAGED})
NO_ENTRY = "none"
_TOO = f"+{Reason.INPUT_MISSING.value}"
_WORD = re.compile(
    r"\w*(?P<too>\+InputMissing)?:(?P<batch>[0-9]+)@(?P<against>[0-9a-z-]{1,40}):(?P<action>commit|skip)"
)


@dataclass(frozen=True, slots=True)
class Accept:
    """An operator's accept of one refusal of one batch.

    Attributes:
        adds_rows: True to commit the batch, False to skip it.
        against: The state of the ledger for which the accept is valid, see `ledger_state`. The commit changes that
            state, so an accept works once.
        without_inputs: True to also overrule the missing input files of the same batch.
    """

    reason: Reason
    batch_id: int
    adds_rows: bool
    against: str
    without_inputs: bool = False

    @classmethod
    def parse(cls, text: str) -> "Accept":
        """Parse ``<Verdict>:<batch id>@<ledger>:commit`` or ``:skip``, as a refusal prints it, or raise ValueError."""
        word = text.partition(":")[0].removesuffix(_TOO)
        overrulable = {reason.value: reason for reason in Reason if reason not in NEVER_OVERRULED}
        if word not in overrulable:
            raise ValueError(f"{word!r} is not one of {', '.join(overrulable)}")
        found = _WORD.fullmatch(text)
        too = found is not None and found["too"] is not None
        if found is None or not text.isascii() or (too and (found["action"] == "skip" or word == _TOO[1:])):
            raise ValueError(
                "expected <Verdict>:<batch id>@<ledger>:commit or <Verdict>:<batch id>@<ledger>:skip, as the refusal"
                " prints it"
            )
        return cls(
            overrulable[word],
            int(found["batch"]),
            adds_rows=found["action"] == "commit",
            against=found["against"],
            without_inputs=too,
        )

    def __str__(self) -> str:
        too, action = _TOO if self.without_inputs else "", "commit" if self.adds_rows else "skip"
        return f"{self.reason.value}{too}:{self.batch_id}@{self.against}:{action}"


def accept_of(reason: Reason, situation: Situation, *, adds_rows: bool) -> Accept:
    """The accept that overrules this refusal, only in the current state of the ledger."""
    return Accept(reason, situation.batch.batch_id, adds_rows, ledger_state(situation))


def ledger_state(situation: Situation) -> str:
    """Last batch of the ledger and six digits of a digest; without an entry, a digest of the newest mark's snapshot.

    Every commit of the sink changes it; commits of others do not.
    """
    entry = situation.entry
    if entry is not None:
        facts = [entry.query_id, entry.fingerprint, entry.snapshot_id, entry.table_uuid]
        return f"{entry.batch_id}-{digest(facts)[:6]}"
    newest = situation.newest_own_snapshot
    return NO_ENTRY if newest is None else f"{NO_ENTRY}-{digest(newest)[:6]}"
