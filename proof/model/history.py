"""What all drivers of one sink have done to its ledger, gathered from their steps."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from proof.model.lines import Line, Written


@dataclass(frozen=True, slots=True)
class Made:
    """A prepared batch.

    Attributes:
        snapshot: Id of its snapshot to be.
        batch: The batch.
        follows: Snapshot of the ledger entry that was seen; None if there was none.
        depth: Commits of the sink that the log knows below it, and this one.
    """

    snapshot: int
    batch: Written
    follows: int | None
    depth: int


@dataclass(frozen=True, slots=True)
class Sight:
    """Somebody saw the ledger at an entry.

    Attributes:
        line: Of the log.
        driver: Who.
        snapshot: Of the entry; None if there was none.
        since: Line after which the look began; 0 if unknown.
    """

    line: int
    driver: str
    snapshot: int | None
    since: int


@dataclass(slots=True)
class History:
    """One sink of one table.

    Attributes:
        first_line: Where the log begins to speak of it.
        prepared: All that was prepared, by snapshot.
        sent: Snapshots that were sent.
        sights: What was seen of the ledger, in the order of the log.
        earlier: The entry before the log begins.
    """

    first_line: int
    prepared: dict[int, Made] = field(default_factory=dict)
    sent: set[int] = field(default_factory=set)
    sights: list[Sight] = field(default_factory=list)
    earlier: int | None = None

    def prepare(self, snapshot: int, batch: Written, follows: int | None) -> bool:
        """Somebody has prepared a batch; False if its snapshot's id is not a new one."""
        if snapshot in self.prepared or snapshot == self.earlier:
            return False
        self.prepared[snapshot] = Made(snapshot, batch, follows, self._depth(follows) + 1)
        return True

    def attempt(self, snapshot: int) -> None:
        """Somebody is about to send what was prepared."""
        self.sent.add(snapshot)

    def landed(self, line: Line, snapshot: int) -> None:
        """An answer shows the ledger at what was sent."""
        self.sights.append(Sight(line.number, line.driver, snapshot, since=0))

    def wrong_sight(self, line: Line, *, since: int) -> str | None:
        """What nobody can have seen, when `line` says what a look showed that began after line `since`."""
        facts = line.facts
        assert facts is not None
        seen = facts.entry_snapshot
        if line.number == self.first_line:
            self.earlier = seen
        self.sights.append(Sight(line.number, line.driver, seen, since))
        if facts.rule >= 5 and facts.tag != seen:
            return "the ledger tag is not at the ledger's snapshot"
        if seen is None or seen == self.earlier:
            return None
        made = self.prepared.get(seen)
        if made is None or seen not in self.sent:
            return "the ledger shows a commit that nobody has sent"
        return None if made.batch == facts.entry else "the ledger shows another batch than was sent"

    def troubles(self) -> Iterator[tuple[int, str, str]]:
        """Line, driver, and what is wrong with the history as a whole."""
        first_seen: dict[int, Sight] = {}
        for sight in self.sights:
            if sight.snapshot is not None:
                first_seen.setdefault(sight.snapshot, sight)
        yield from self._forks(first_seen)
        yield from self._steps_back()

    def _forks(self, first_seen: dict[int, Sight]) -> Iterator[tuple[int, str, str]]:
        """One commit only follows an entry: two that did have both passed the fence."""
        followers: dict[int | None, int] = {}
        for snapshot, sight in first_seen.items():
            made = self.prepared.get(snapshot)
            if made is not None and followers.setdefault(made.follows, snapshot) != snapshot:
                yield sight.line, sight.driver, "two commits have followed the same ledger entry"

    def _steps_back(self) -> Iterator[tuple[int, str, str]]:
        """A look shows at least what had been seen before it began."""
        lines, deepest = [0], [0]
        for sight in self.sights:
            depth = self._depth(sight.snapshot)
            if depth < deepest[bisect_right(lines, sight.since) - 1]:
                yield sight.line, sight.driver, "the ledger shows less than was seen before this look"
            lines.append(sight.line)
            deepest.append(max(deepest[-1], depth))

    def _depth(self, snapshot: int | None) -> int:
        made = None if snapshot is None else self.prepared.get(snapshot)
        return 0 if made is None else made.depth
