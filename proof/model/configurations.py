"""What spin explores: who acts how often, and which rule of the protocol is switched off.

One state space with everything in it would be too large for any machine. So each configuration has a few kinds of
trouble, each a bounded number of times, and all that can come of those in any order is explored.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from proof.model.spin import Defines


@dataclass(frozen=True, slots=True)
class Configuration:
    """Budgets of those who act.

    Attributes:
        name: Short name.
        what: What is in it, in words.
        defines: The budgets.
        long: True if it takes much of a minute.
    """

    name: str
    what: str
    defines: Defines
    long: bool = False


@dataclass(frozen=True, slots=True)
class Switch:
    """One rule of the protocol, switched off.

    Attributes:
        name: As ``lakesink.pml`` spells it.
        rule: As the protocol numbers it.
        instead: What the driver, or the catalog, does then.
        defines: The smallest budgets with which that goes wrong.
        harmless: Why nothing goes wrong, if so; empty if something does.
        long: True if it takes much of a minute.
    """

    name: str
    rule: str
    instead: str
    defines: Defines
    harmless: str = ""
    long: bool = False

    @property
    def switched(self) -> Defines:
        """Budgets and switch."""
        return {**self.defines, self.name: 1}


def _with(**defines: int) -> Mapping[str, int]:
    return defines


CONFIGURATIONS = (
    Configuration("network", "two drivers, two faults, a crash", _with(DRIVERS=2, FAULTS=2, CRASHES=1), long=True),
    Configuration(
        "storm", "one driver, three faults, two crashes", _with(DRIVERS=1, FAULTS=3, CRASHES=2, SNAPSHOTS=10)
    ),
    Configuration(
        "others",
        "two drivers, a fault, a foreign commit, two expiries",
        _with(DRIVERS=2, FAULTS=1, FOREIGN=1, EXPIRE=2),
        long=True,
    ),
    Configuration(
        "rollback",
        "two drivers, a fault, a crash, a rollback and an expiry while they run",
        _with(DRIVERS=2, FAULTS=1, CRASHES=1, ROLLBACKS=1, EXPIRE=1, SNAPSHOTS=10),
        long=True,
    ),
    Configuration(
        "mended",
        "a fault, a crash, a rollback, the checkpoint mended, a foreign commit, an expiry",
        _with(DRIVERS=1, FAULTS=1, CRASHES=1, ROLLBACKS=1, MENDS=1, FOREIGN=1, EXPIRE=1, SNAPSHOTS=10),
        long=True,
    ),
    Configuration(
        "mended, two drivers",
        "two drivers, two batches, a fault, a rollback, the checkpoint mended, two expiries",
        _with(DRIVERS=2, BATCHES=2, FAULTS=1, ROLLBACKS=1, MENDS=1, EXPIRE=2, SNAPSHOTS=10),
    ),
    Configuration(
        "restored",
        "two drivers, a fault, a crash, an older checkpoint restored",
        _with(DRIVERS=2, FAULTS=1, CRASHES=1, RESTORES=1, SNAPSHOTS=10),
        long=True,
    ),
    Configuration(
        "restored and rolled back",
        "a fault, a rollback, two older checkpoints restored, a foreign commit, two expiries",
        _with(DRIVERS=1, FAULTS=1, ROLLBACKS=1, RESTORES=2, FOREIGN=1, EXPIRE=2, SNAPSHOTS=10),
        long=True,
    ),
    Configuration(
        "renewed",
        "a fault, a crash, a new checkpoint, a rollback",
        _with(DRIVERS=1, FAULTS=1, CRASHES=1, RENEWALS=1, ROLLBACKS=1, SNAPSHOTS=12),
    ),
    Configuration(
        "returned",
        "two drivers, a fault, the catalog restored from a backup",
        _with(DRIVERS=2, FAULTS=1, RETURNS=1),
    ),
    Configuration(
        "aged",
        "a fault, a crash, twice hours that pass, a cleaner, a cleaner in haste, a foreign commit",
        _with(DRIVERS=1, FAULTS=1, CRASHES=1, AGES=2, HASTY=1, FOREIGN=1, SNAPSHOTS=12),
        long=True,
    ),
    Configuration(
        "aged, two drivers",
        "two drivers, two batches, a fault, twice hours that pass, a cleaner",
        _with(DRIVERS=2, BATCHES=2, FAULTS=1, AGES=2, SNAPSHOTS=10),
    ),
    Configuration(
        "empty",
        "two drivers, batches 0 and 1 without rows, a fault, a foreign commit",
        _with(DRIVERS=2, FAULTS=1, FOREIGN=1, EMPTY=3),
    ),
    Configuration(
        "turns",
        "two drivers that take turns, pass them over or take none, two batches, a fault, a crash, a foreign commit",
        _with(DRIVERS=2, BATCHES=2, FAULTS=1, CRASHES=1, FOREIGN=1, TURNS=2),
        long=True,
    ),
    Configuration(
        "upserts",
        "batches that replace and delete rows by key, a fault, a crash, two compactions",
        _with(DRIVERS=1, UPSERTS=1, FAULTS=1, CRASHES=1, COMPACTIONS=2, SNAPSHOTS=10),
    ),
    Configuration(
        "upserts, two drivers",
        "two drivers, two batches of upserts, a fault, a compaction",
        _with(DRIVERS=2, BATCHES=2, UPSERTS=1, FAULTS=1, COMPACTIONS=1),
    ),
    Configuration(
        "upserts, two drivers and expiry",
        "two drivers, two batches of upserts, a fault, a crash, a compaction, an expiry",
        _with(DRIVERS=2, BATCHES=2, UPSERTS=1, FAULTS=1, CRASHES=1, COMPACTIONS=1, EXPIRE=1, SNAPSHOTS=10),
        long=True,
    ),
    Configuration(
        "upserts, rolled back",
        "batches of upserts, a fault, a crash, a compaction, a rollback, the checkpoint mended, an expiry",
        _with(DRIVERS=1, UPSERTS=1, FAULTS=1, CRASHES=1, COMPACTIONS=1, ROLLBACKS=1, MENDS=1, EXPIRE=1, SNAPSHOTS=10),
        long=True,
    ),
    Configuration(
        "letters",
        "batches of upserts with a changelog and dead letters, replays of these, two crashes",
        _with(DRIVERS=1, UPSERTS=1, LETTERS=1, CRASHES=2, SNAPSHOTS=10),
    ),
    Configuration(
        "letters, two replays",
        "the same, two replays at once, a crash",
        _with(DRIVERS=1, UPSERTS=1, LETTERS=1, REPLAYERS=2, CRASHES=1, SNAPSHOTS=10),
    ),
    Configuration(
        "letters and a compaction",
        "batches of upserts with a changelog and dead letters, replays of these, a crash, a compaction",
        _with(DRIVERS=1, UPSERTS=1, LETTERS=1, CRASHES=1, COMPACTIONS=1, SNAPSHOTS=10),
    ),
)
"""Each is explored whole; nothing of what must hold may break."""

LIVENESS = (
    Configuration(
        "ends: network",
        "two drivers, two batches, a fault, a crash",
        _with(DRIVERS=2, BATCHES=2, FAULTS=1, CRASHES=1, LIVENESS=1),
    ),
    Configuration(
        "ends: storm",
        "one driver, two faults, a crash, a foreign commit",
        _with(DRIVERS=1, FAULTS=2, CRASHES=1, FOREIGN=1, LIVENESS=1),
    ),
    Configuration(
        "ends: rollback",
        "one driver, two faults, a crash, a rollback, the checkpoint mended, an expiry",
        _with(DRIVERS=1, FAULTS=2, CRASHES=1, ROLLBACKS=1, MENDS=1, EXPIRE=1, SNAPSHOTS=12, LIVENESS=1),
    ),
    Configuration(
        "ends: restored",
        "two drivers, a fault, an older checkpoint restored",
        _with(DRIVERS=2, FAULTS=1, RESTORES=1, SNAPSHOTS=10, LIVENESS=1),
    ),
    Configuration(
        "ends: turns",
        "two drivers that wait for their turns without a limit, two batches, a fault, a crash, a foreign commit",
        _with(DRIVERS=2, BATCHES=2, FAULTS=1, CRASHES=1, FOREIGN=1, TURNS=1, LIVENESS=1),
        long=True,
    ),
    Configuration(
        "ends: upserts",
        "batches of upserts, a fault, a crash, a compaction",
        _with(DRIVERS=1, UPSERTS=1, FAULTS=1, CRASHES=1, COMPACTIONS=1, LIVENESS=1),
    ),
)
"""In each the run ends, or has stopped with a refusal, if whoever can act does so in the end (weak fairness)."""

SWITCHES = (
    Switch(
        "CHECK_OUTSIDE",
        "P1, P2",
        "decides once, before the attempts, and re-bases on whatever head there is",
        _with(DRIVERS=2),
    ),
    Switch("NO_HEAD_ASSERTED", "P3", "a request does not assert the head", _with(DRIVERS=1, FOREIGN=1)),
    Switch(
        "NO_TAG",
        "P3",
        "no ledger tag",
        _with(DRIVERS=1, FAULTS=1, FOREIGN=1, ROLLBACKS=1, EXPIRE=1),
    ),
    Switch(
        "NO_TAG_ASSERTED",
        "P3",
        "the ledger tag is set, but no request asserts it",
        _with(DRIVERS=1, FAULTS=1, CRASHES=1, FOREIGN=1, ROLLBACKS=1, EXPIRE=2, SNAPSHOTS=10),
        long=True,
    ),
    Switch(
        "NO_LEDGER", "P3", "the mark in the snapshot is all there is", _with(DRIVERS=1, FAULTS=1, FOREIGN=2, EXPIRE=1)
    ),
    Switch("SKIP_BY_MAX", "P4, 7-19", "what is not above the ledger's batch is skipped", _with(DRIVERS=1, RESTORES=1)),
    Switch(
        "MARK_BY_EXISTENCE",
        "P4, 7, 18",
        "a batch is skipped if any snapshot bears its mark, under the head or not",
        _with(DRIVERS=1, CRASHES=1, ROLLBACKS=1),
    ),
    Switch("MARK_BY_ID", "P4, 7, 18", "a mark is known by its batch id alone", _with(DRIVERS=1, RESTORES=1)),
    Switch("NO_GONE", "P4, 7-11", "a rollback is not looked for", _with(DRIVERS=1, CRASHES=1, ROLLBACKS=1)),
    Switch(
        "NO_EVIDENCE",
        "decision 0001",
        "a walk that expiry has cut counts as a rollback",
        _with(DRIVERS=1, FOREIGN=2, EXPIRE=1),
    ),
    Switch(
        "R8_ANY_START",
        "P4, 8",
        "after a rollback batch M+1 is committed wherever it starts",
        _with(DRIVERS=1, CRASHES=1, ROLLBACKS=1, RESTORES=1),
    ),
    Switch(
        "R9_CUT_WALK",
        "P4, 9",
        "after a rollback batch 0 is committed although expiry has cut the walk",
        _with(DRIVERS=1, FOREIGN=1, EXPIRE=1, ROLLBACKS=1, RESTORES=1, SNAPSHOTS=10),
    ),
    Switch(
        "TAKE_OVER_ANYWHERE",
        "P4, 10, 12",
        "another query takes over wherever its batch 0 starts",
        _with(DRIVERS=1, RENEWALS=1),
    ),
    Switch("NO_QUERY", "P4, 10-13", "batches of another query count as this one's", _with(DRIVERS=1, RENEWALS=1)),
    Switch("NO_FINGERPRINT", "P4, 14-17", "a batch is known by its id alone", _with(DRIVERS=1, RESTORES=1)),
    Switch(
        "NO_GAP",
        "P4, 20",
        "a batch far ahead of the ledger is committed",
        _with(DRIVERS=1, FAULTS=1, CRASHES=1, RETURNS=1),
    ),
    Switch(
        "NO_READ_BACK", "P5", "a yes is believed without looking at what the answer shows", _with(DRIVERS=1, FAULTS=1)
    ),
    Switch("UNKNOWN_IS_LANDED", "P5", "no answer counts as a yes", _with(DRIVERS=1, FAULTS=1)),
    Switch(
        "UNKNOWN_IS_REJECTED",
        "P5",
        "no answer counts as a no: the next attempt re-bases without deciding",
        _with(DRIVERS=2, FAULTS=1),
    ),
    Switch(
        "EMPTY_AS_PROPERTIES",
        "P5",
        "a batch without rows changes the ledger property and moves no head",
        _with(DRIVERS=1, FAULTS=1, EMPTY=3),
    ),
    Switch("ABORT_DELETES", "P6", "a driver that gives up deletes its files", _with(DRIVERS=1, FAULTS=2)),
    Switch("REUSED_NAMES", "P7", "files are named by their batch", _with(DRIVERS=2)),
    Switch("ABSENCE_IS_A_VOTE", "P8", "a batch is prepared although a receipt is missing", _with(DRIVERS=1, FAULTS=1)),
    Switch("TORN_BELIEVED", "P9", "a record that was cut short is believed", _with(DRIVERS=1, CRASHES=1)),
    Switch(
        "NO_FOLLOWS",
        "P9",
        "what is prepared does not say which entry it follows",
        _with(DRIVERS=1, FAULTS=1, CRASHES=1, ROLLBACKS=1, MENDS=1, EXPIRE=2, SNAPSHOTS=10),
        long=True,
    ),
    Switch(
        "NO_FOLLOWS_IN_ATTEMPTS",
        "P9",
        "the entry that is followed is checked when a record is found, and not in every attempt",
        _with(DRIVERS=2, FAULTS=1, ROLLBACKS=1, EXPIRE=1),
        long=True,
    ),
    Switch(
        "NO_AGE_LIMIT",
        "P9",
        "a record is used however old it is",
        _with(DRIVERS=1, CRASHES=1, AGES=2),
        harmless="each attempt looks whether files that are old are still there (decision 0016), and no request is"
        " under way for as long as a cleaner takes. The rule keeps that look from coming too close to a cleaner",
    ),
    Switch(
        "NO_EXISTENCE_CHECK",
        "P9",
        "a record is used without looking whether its files are there",
        _with(DRIVERS=1, CRASHES=1, HASTY=1),
    ),
    Switch(
        "NO_AGE_IN_ATTEMPTS",
        "decision 0016",
        "the age is asked for when a record is found, and not in every attempt",
        _with(DRIVERS=1, AGES=2),
    ),
    Switch(
        "HELD_UP_SENDS",
        "decision 0016",
        "a commit that was held up for longer than prepared-max-age goes on",
        _with(DRIVERS=1, AGES=2),
    ),
    Switch(
        "STALLS",
        "assumption",
        "a request is under way for longer than it takes until cleaners delete what it refers to",
        _with(DRIVERS=1, FAULTS=1, AGES=2),
    ),
    Switch(
        "NO_RESTART",
        "section 1",
        "nobody starts the query again after a crash: what was pre-committed is never committed",
        _with(DRIVERS=1, CRASHES=1, LIVENESS=1),
    ),
    Switch(
        "TURN_OUTLIVES",
        "decision 0059",
        "the turn of a driver that died is never free again, and nobody passes it over",
        _with(DRIVERS=1, CRASHES=1, TURNS=1, LIVENESS=1),
    ),
    Switch(
        "OLDER_POSITIONS",
        "upserts, one head",
        "the positions of deletes are those of an older head than the request asserts",
        _with(DRIVERS=1, UPSERTS=1, COMPACTIONS=1),
    ),
    Switch(
        "AS_APPEND",
        "upserts, the operation",
        "a snapshot with deletes says that it is an append, so that a compaction does not see them",
        _with(DRIVERS=1, UPSERTS=1, COMPACTIONS=1),
    ),
    Switch(
        "NOT_MERGED",
        "upserts, one delete file",
        "a delete file replaces the older one of its data file without the positions in that",
        _with(DRIVERS=1, UPSERTS=1),
    ),
    Switch(
        "TABLE_FIRST",
        "P15, side tables first",
        "the table commits before its changelog and its dead letters",
        _with(DRIVERS=1, UPSERTS=1, LETTERS=1, CRASHES=1),
    ),
    Switch(
        "SIDES_NOT_ASKED",
        "P15, a ledger each",
        "a side table is not asked whether it has the batch",
        _with(DRIVERS=1, UPSERTS=1, LETTERS=1, CRASHES=1),
    ),
    Switch(
        "ASIDE_REMOVES",
        "decision 0107",
        "a change that is put aside still removes the older row of its key",
        _with(DRIVERS=1, UPSERTS=1, LETTERS=1),
    ),
    Switch(
        "REPLAYS_UNORDERED",
        "decision 0107",
        "a replay replaces the row of its key, whatever its sequence is",
        _with(DRIVERS=1, UPSERTS=1, LETTERS=1),
    ),
    Switch(
        "BRINGS_BACK",
        "decision 0107",
        "a replay inserts a row whose key has none",
        _with(DRIVERS=1, UPSERTS=1, LETTERS=1),
    ),
    Switch(
        "ASSIGNED_AFTER",
        "decision 0071",
        "letters are assigned to a replay once its rows have landed",
        _with(DRIVERS=1, UPSERTS=1, LETTERS=1, CRASHES=1),
    ),
    Switch(
        "RIVALS_ASSIGN",
        "decision 0071",
        "two replays at once assign letters to one number",
        _with(DRIVERS=1, UPSERTS=1, LETTERS=1, REPLAYERS=2),
    ),
    Switch(
        "ANY_SNAPSHOT_ID",
        "P9",
        "what is prepared is sent again although its snapshot is in the table",
        _with(DRIVERS=1, FAULTS=1, CRASHES=1, ROLLBACKS=1, MENDS=1, EXPIRE=1, SNAPSHOTS=10),
        harmless="the entry would have to be the one that it follows although it landed, and the ledger never goes back"
        " but by a person's hand; and the catalog refuses an id that it has. A second line of defence",
        long=True,
    ),
    Switch(
        "NO_SKIP_BEFORE_WRITING",
        "P10",
        "the ledger is asked in the attempts only, not before the rows are written",
        _with(DRIVERS=1, FAULTS=2, CRASHES=1),
        harmless="each attempt decides anew. The rule spares the job and the orphans, not the table",
    ),
)
"""Every rule, switched off once."""

COUNTED = (
    _with(DRIVERS=2, BATCHES=2, FAULTS=1),
    _with(DRIVERS=2, BATCHES=2, ROLLBACKS=1),
    _with(DRIVERS=1, BATCHES=2, FAULTS=3, CRASHES=1),
    _with(DRIVERS=1, BATCHES=2, FAULTS=1, FOREIGN=1, ROLLBACKS=1),
    _with(DRIVERS=1, BATCHES=2, FAULTS=1, FOREIGN=1, ROLLBACKS=1, AGES=1),
)
"""Together they hold every step that a driver takes."""

SIMULATED = tuple(configuration for configuration in CONFIGURATIONS if configuration.name != "returned")
"""Of these the checker accepts every story; of a catalog that comes from a backup no driver has a line."""
