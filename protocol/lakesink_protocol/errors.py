"""The errors that lakesink raises on purpose. Each message has a stable code, the facts, and the action to take.

The first line travels inside a Java stack trace, so it contains the code and stays short. Broken promises are raised;
expected results of a batch are values (see `outcome`).
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Self

from lakesink_protocol.catalogue import PREFIX, DataState, state_of, text_of, where_explained
from lakesink_protocol.redact import shown

LONGEST_FIRST_LINE = 199
LONGEST_DETAIL = 800
LONGEST_PART = 8_000
"""Limit for the texts `data` and `action`: an action may quote 4 KiB of offsets."""
MOST_CHOICES = 6
_CHOOSE = "Choose one of these."


class LakesinkError(Exception):
    """An error with the state of the data and the action to take.

    Attributes:
        code: Stable identifier for a search in logs, for example ``LAKESINK_BATCH_CHANGED``.
        what: One sentence: what happened.
        data: One sentence: which data is in the table now; by default, the text of the catalogue for the code.
        action: One or more sentences: what the reader should do; with choices, all of them as one text.
        choices: The ways to go on, if there are several. Each one is a line of the message.
        more: Where the code is explained; empty for a code that is not lakesink's.
        details: Lines after the first one, for example one for each malformed value.
    """

    def __init__(
        self,
        code: str,
        what: str,
        *,
        action: str | Sequence[str],
        data: DataState | str | None = None,
        details: Iterable[str] = (),
    ) -> None:
        self.code = f"{PREFIX}{code}"
        data = state_of(code) if data is None else data
        self.data = shown(data.value if isinstance(data, DataState) else data, LONGEST_PART)
        ways = tuple(_bounded([action] if isinstance(action, str) else action))
        self.choices = ways if len(ways) > 1 else ()
        self.action = f"{_CHOOSE} {' Or: '.join(ways)}" if self.choices else "".join(ways)
        self.more = where_explained(code)
        self.details = tuple(shown(line, LONGEST_DETAIL) for line in details)
        super().__init__()
        self._set_what(what)

    @classmethod
    def of(
        cls, name: str, /, *, data: DataState | str | None = None, details: Iterable[str] = (), **facts: object
    ) -> Self:
        """The error in the words of the catalogue for ``CODE`` or ``CODE.situation``, with these facts."""
        text = text_of(name).told(facts)
        code = name.partition(".")[0]
        return cls(code, text.says, data=text.data if data is None else data, action=text.do, details=details)

    def reworded(
        self,
        *,
        what: str | None = None,
        data: DataState | str | None = None,
        action: str | Sequence[str] = (),
        details: Iterable[str] | None = None,
    ) -> Self:
        """This error with other words in some of its parts."""
        return type(self)(
            self.code.removeprefix(PREFIX),
            what or self.what,
            data=data or self.data,
            action=action or self.choices or self.action,
            details=self.details if details is None else details,
        )

    def name_target(self, target: str) -> None:
        """Put the target that failed in front of the first line, for a batch with several, unless the line names it."""
        if target not in (word.strip(".,:;'") for word in self.what.split()):
            self._set_what(f"{target}: {self.what}")

    def name_batch(self, batch_id: int) -> None:
        """Put the number of the batch in the place of "this batch": an error of its rows does not know it."""
        self.data = self.data.replace("this batch", f"batch {batch_id}")
        self._set_what(self.what)

    def name_checkpoint(self, checkpoint: str) -> None:
        """Put the checkpoint where the texts have ``<checkpoint>``, so that commands can be copied."""

        def named(text: str) -> str:
            return shown(text.replace("<checkpoint>", checkpoint), LONGEST_PART)

        self.data, self.action = named(self.data), named(self.action)
        self.choices = tuple(map(named, self.choices))
        self._set_what(self.what)

    def advice(self) -> list[str]:
        """The lines of the message that say what to do: one, or one more for each choice."""
        return [f"  Do: {_CHOOSE if self.choices else self.action}", *(f"    - {choice}" for choice in self.choices)]

    def leave_details_to_log(self) -> None:
        """Take a list of details out of the message, once the log has it: Spark prints an error three times."""
        if len(self.details) > 1:
            self.details, self.data = (), f"{self.data} The driver's log has the complete list."
            self._set_what(self.what)

    def leave_message_to_log(self) -> None:
        """Leave only the first line of the message, once the log has all of it."""
        self._set_message("  The driver's log has the whole message, with what to do.")

    def _set_what(self, what: str) -> None:
        # Names in tables are untrusted text: limit its length, and allow no line breaks or terminal controls.
        room = LONGEST_FIRST_LINE - len(f"[{self.code}] ")
        self.what = shown(what if len(what) <= room else f"{what[: room - 1]}…", room)
        self._set_message(*(f"  - {line}" for line in self.details), f"  Data: {self.data}", *self.advice())

    def _set_message(self, *lines: str) -> None:
        more = [f"  More: {self.more}"] if self.more else []
        self.args = ("\n".join([f"[{self.code}] {self.what}", *lines, *more]),)


def _bounded(texts: Iterable[str]) -> Iterator[str]:
    """Each text without line breaks, so that none forges another choice, and all together at most `LONGEST_PART`."""
    room = LONGEST_PART
    for text in islice(texts, MOST_CHOICES):
        yield shown(text, room)
        room = max(room - len(text), 0)


class SettingsError(LakesinkError):
    """An option is unknown, malformed, or contradicts another."""


class CatalogError(LakesinkError):
    """The catalog or the table cannot be used: unreachable, unsupported, missing, not permitted."""


class QueryError(LakesinkError):
    """The Spark query itself cannot keep the promise: output mode, checkpoint, Spark Connect."""


class WriteError(LakesinkError):
    """Rows could not become data files: schema mismatch, lossy cast, executor without lakesink, storage."""


class Reason(Enum):
    """Why a batch is refused. The name is the stable code, the value the word used in ``accept``."""

    UNSUPPORTED = "Unsupported"
    BRANCH_MISSING = "BranchMissing"
    TABLE_REPLACED = "TableReplaced"
    LEDGER_DAMAGED = "LedgerDamaged"
    LEDGER_LOST = "LedgerLost"
    UNKNOWN_HISTORY = "UnknownHistory"
    ROLLED_BACK = "RolledBack"
    NEW_CHECKPOINT = "NewCheckpoint"
    BATCH_CHANGED = "BatchChanged"
    REWOUND = "Rewound"
    GAP = "Gap"
    INPUT_MISSING = "InputMissing"


class BatchRefused(LakesinkError):
    """The table's ledger does not allow this batch; nothing of it was committed.

    Attributes:
        reason: The refusal, see `Reason`.
    """

    def __init__(
        self,
        reason: Reason | str,
        what: str,
        *,
        action: str | Sequence[str],
        data: DataState | str | None = None,
        details: Iterable[str] = (),
    ) -> None:
        self.reason = reason if isinstance(reason, Reason) else Reason[reason]
        super().__init__(self.reason.name, what, action=action, data=data, details=details)


class CommitUnresolved(LakesinkError):
    """Attempts ran out before the table showed the batch; nothing was deleted, and a restart resolves it."""


class PartialBatch(LakesinkError):
    """Some participants of a batch committed and a later one did not; the replay skips those that committed.

    Attributes:
        landed: Names of the participants that committed.
    """

    landed: tuple[str, ...] = ()
