"""Random histories of one commit, in step with a reference: the batch is there at most once, and no outcome is false.

The reference knows a head that only grows, the head on which each request was sent, and that a request lands only on
this head. So it tells the outcome of a commit for any answer of the catalog.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyiceberg.table import CommitTableResponse, Table

from lakesink_catalog.commit.table_change import Located
from lakesink_protocol.errors import CatalogError, CommitUnresolved
from lakesink_protocol.ledger import mark_of
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.retry import RetryPolicy
from testkit.answers import ERRORS, lands_but_says, refuses_with, says_yes_and_shows_what_was
from testkit.builders import Apply, Fault, Lake
from tests.catalog.keyed import SCHEMA, Keyed, keyed_lake
from tests.catalog.test_located_commits import insert

HOUR_MS = 3_600_000
ATTEMPTS = 5
EVENTS = {
    "nothing": 4,
    "another writer commits": 2,
    "a rival commits the batch": 1,
    "a late request arrives": 3,
    "a day passes": 1,
    "the catalog is away": 1,
    "the table is missing": 3,
}
ANSWERS = {"yes": 1, "yes, not landed": 1, "lost, landed": 1, "lost": 2, "lost, lands late": 3, "conflict": 1}
MISSING = CatalogError("TABLE_MISSING", "The table is missing.", action="Look for it.")


@dataclass
class History:
    """The commit of one batch by the real fence, and what the reference knows of it.

    Attributes:
        has_changes: The batch also removes rows, so each head needs its own request.
        gone: A cleaner took the batch's files.
        age_hours: Time since the files were written; negative if the clock went back.
        due: How many requests should have been sent.
        sent_on: The head of each request that was sent.
        late: The same of those that are still under way.
        ended: What the commit must come to if nothing landed.
    """

    keyed: Keyed
    chance: random.Random
    has_changes: bool
    gone: bool
    age_hours: int
    head: int = 0
    landed: type | None = None
    due: int = 0
    sent_on: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    ended: type | None = None
    located_on: int | None = None

    def lands(self, on: int, as_seen: type = Committed) -> bool:
        if on != self.head or self.landed is not None:
            return False
        self.head, self.landed = self.head + 1, as_seen
        return True

    def sleep(self, _: float) -> None:
        if self.chance.random() < 0.3:
            self.move_head()

    def move_head(self) -> None:
        insert(self.keyed, 1, 1)
        self.head += 1

    @contextmanager
    def turn(self) -> Iterator[None]:
        """An attempt: something happens before it reads the table, and the next request has some answer."""
        if self.ended:
            pytest.fail("the commit has gone on after its end")
        self.keyed.lake.catalog.faults = []
        catalog, (event,) = self.keyed.lake.catalog, self.chance.choices([*EVENTS], [*EVENTS.values()])
        if event == "another writer commits":
            self.move_head()
        elif event == "a late request arrives" and self.late:
            self.arrive()
        elif self.landed is None:
            self.happen(event)
        if self.landed is None and not catalog.load_faults and self.gone and not 0 <= self.age_hours <= 20:
            self.ended = type(None)
        self.due += not (self.landed or self.ended or catalog.load_faults)
        catalog.faults = [self.answer(*self.chance.choices([*ANSWERS], [*ANSWERS.values()]))]
        yield

    def happen(self, event: str) -> None:
        catalog = self.keyed.lake.catalog
        if event == "a rival commits the batch":
            rival = Keyed(self.keyed.lake)
            rival.commit(*rival.prepare({}))
            self.lands(self.head, AlreadyCommitted)
        elif event == "a day passes":
            self.keyed.chance.move_ms(24 * HOUR_MS)
            self.age_hours, self.ended = self.age_hours + 24, CommitUnresolved
        elif event == "the catalog is away":
            catalog.load_faults = [ERRORS["reset"]]
        elif event == "the table is missing":
            catalog.load_faults = [MISSING]
            may_land = self.head in self.sent_on if self.has_changes else self.sent_on
            self.ended = None if may_land else CatalogError

    def answer(self, answer: str) -> Fault:
        faults: dict[str, Fault] = {
            "yes": lambda apply: apply(),
            "yes, not landed": says_yes_and_shows_what_was(self.keyed.lake),
            "lost, landed": lands_but_says(ERRORS["time-out"]),
            "lost": refuses_with(ERRORS["time-out"]),
            "lost, lands late": self.keyed.lake.catalog.arrives_late,
            "conflict": refuses_with(ERRORS["409 conflict"]),
        }

        def fault(apply: Apply) -> CommitTableResponse:
            if self.landed or self.ended:
                pytest.fail("nothing may be sent")
            if self.has_changes and self.located_on != self.keyed.lake.table().metadata.current_snapshot_id:
                pytest.fail("the rows to remove were located on another head")
            self.sent_on.append(self.head)
            if answer == "lost, lands late":
                self.late.append(self.head)
            elif answer in {"yes", "lost, landed"}:
                self.lands(self.head)
            return faults[answer](apply)

        return fault

    def arrive(self) -> None:
        """The oldest request that is under way arrives; the real catalog agrees with the reference whether it lands."""
        arrives = self.keyed.lake.catalog.late.pop(0)
        if self.lands(self.late.pop(0)):
            arrives()
        else:
            with pytest.raises(Exception, match=r"Requirement failed|already exists|sequence number"):
                arrives()

    def located(self, _: Table, head: int | None) -> Located:
        self.located_on = head
        return Located(head)

    def outcome(self) -> Any:
        keyed = self.keyed
        keyed.options = {"retry": RetryPolicy(ATTEMPTS - 1), "prepared_max_age_ms": 20 * HOUR_MS}
        prepared, _ = keyed.prepare({})
        files = ((f"file://{keyed.lake.folder}/gone.parquet", 1),) if self.gone else ()
        prepared = replace(prepared, files=files, changes=prepared.changes if self.has_changes else None)
        keyed.chance.move_ms(self.age_hours * HOUR_MS)
        fence = replace(keyed.fence, turn=self.turn, effects=replace(keyed.fence.effects, sleep_ms=self.sleep))
        try:
            return fence.commit(keyed.batch, prepared, self.located)
        except (CatalogError, CommitUnresolved) as error:
            return error


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return keyed_lake(tmp_path_factory.mktemp("lake"))


@pytest.mark.parametrize("seed", range(40))
def test_a_commit_comes_to_what_the_reference_tells_whatever_happens(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    table = replace(lake, name=f"demo.orders{seed}")
    table.create(SCHEMA)
    history = History(
        Keyed(table), chance, chance.random() < 0.7, chance.random() < 0.3, chance.choice([0, 0, 0, 19, 21, -1])
    )
    outcome = history.outcome()
    assert type(outcome) is (history.landed or history.ended or CommitUnresolved)
    assert len(history.sent_on) == history.due
    while history.late:
        history.arrive()
    assert history.landed is None or not isinstance(outcome, CatalogError), "the error was not final"
    snapshots = table.table().metadata.snapshots
    assert sum(mark_of(snapshot.summary) is not None for snapshot in snapshots) == (history.landed is not None)
