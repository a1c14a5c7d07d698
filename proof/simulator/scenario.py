"""What a seed draws: which faults there are and how often, who else is at the table, and what its operator does."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from proof.content import PLAIN, Content

FAULTS = {
    "request lost": 0.2,
    "request late": 0.25,
    "request delivered twice": 0.25,
    "answer lost": 0.3,
    "sent twice by the transport": 0.2,
    "load failed": 0.1,
    "load stale": 0.15,
    "read failed": 0.03,
    "write failed": 0.03,
    "write torn": 0.03,
    "write done, said to have failed": 0.03,
    "executor lost after upload": 0.15,
    "speculative twin": 0.2,
}
"""How likely each fault is where it can happen, if the scenario has it."""

LIE = "yes, and nothing done"
WITH_LETTERS, WITH_DOCUMENTS = 0.2, 0.2
"""How likely rows are put aside, and the table follows documents."""

ACTIONS = {
    "kill": 5,
    "freeze": 4,
    "twin": 3,
    "hours pass": 2,
    "foreign append": 5,
    "compact": 2,
    "expire": 7,
    "clean orphans": 6,
    "roll back": 3,
    "move the head": 1,
    "forget a commit": 3,
    "restore the checkpoint": 1,
    "lose the checkpoint": 1,
    "replace the table": 1,
    "lose the ledger": 1,
}
"""How often each action is drawn, relative to the others."""


THEMES: tuple[tuple[tuple[str, ...], dict[str, float]], ...] = (
    (("roll back", "roll back", "expire", "kill"), {"request late": 0.4, "request delivered twice": 0.5}),
    (("roll back", "expire", "roll back", "expire", "forget a commit"), {"answer lost": 0.3}),
    (("foreign append", "compact", "expire", "forget a commit", "foreign append"), {"answer lost": 0.3}),
    (("twin", "foreign append", "freeze", "twin", "kill"), {"request late": 0.3, "answer lost": 0.3}),
    (("kill", "freeze", "hours pass", "clean orphans"), {"request lost": 0.5, "executor lost after upload": 0.3}),
    (("restore the checkpoint", "expire", "lose the checkpoint"), {}),
)
"""Actions that do harm in this order only, with the faults that go with them."""


OF_LETTERS = (
    "kill between the commits",
    "kill between the commits",
    "kill between the commits",
    "drop the letters",
    "put other rows aside",
    "forget a commit",
    "twin",
)
"""Actions beside those of a scenario in which rows are put aside."""
OF_DOCUMENTS = ("kill after the evolution", "kill after the evolution", "twin", "forget a commit")
"""Actions beside those of a scenario in which the table follows documents."""
NOT_WITH_LETTERS = ("move the head", LIE)
"""The letters of batches that were rolled back are rolled back too, so a head that goes forward again misses them. And
their ledger has gaps by design: in it nobody can see that a catalog has said yes, and done nothing."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One drawn world.

    Attributes:
        chances: Chance of each fault where it can happen.
        actions: What others do, in order.
        end: Records in each source partition.
        most: Most records of a partition in one batch.
        branch: Branch that the stream writes.
        evolves: True if each driver brings some of `NEW_COLUMNS`.
        content: What the rows are.
        maintenance: The option of a stream into a table with a key.
    """

    chances: dict[str, float]
    actions: tuple[str, ...]
    end: tuple[int, ...]
    most: int
    branch: str = "main"
    evolves: bool = False
    content: Content = PLAIN
    maintenance: Mapping[str, Any] | bool = field(
        default_factory=dict, repr=False
    )  # draws begin with a scenario's text


def draw(random: Random) -> Scenario:
    """A scenario: a few kinds of faults and of actions at a time, for all at once hide each other.

    The idea is swarm testing (Groce and others, 2012).
    """
    end = tuple(random.randrange(1, 5) for _ in range(2))
    most = random.randrange(1, 4)
    branch = "audited" if random.random() < 0.2 else "main"
    chances, actions = _theme(random) if random.random() < 0.4 else _swarm(random)
    of_schema = Random(f"{end} {most} {actions}")  # of its own: the other draws of a seed stay what they were
    evolves = of_schema.random() < 0.3
    if evolves:
        actions = [act for action in actions for act in (action, "change the schema")[: of_schema.randrange(1, 3)]]
    scenario = Scenario(chances, tuple(actions), end, most, branch, evolves)
    return _with_content(scenario, Random(f"content {end} {most} {actions}"))  # of its own, too


def _with_content(scenario: Scenario, random: Random) -> Scenario:
    """Some scenarios have dead letters, or documents that the table follows, or both."""
    aside = random.choice([2, 3]) if random.random() < WITH_LETTERS else 0
    follows = random.choice(["add", "widen"]) if not scenario.evolves and random.random() < WITH_DOCUMENTS else ""
    content = Content(aside, follows, random.randrange(2**16))
    chances, actions = dict(scenario.chances), [*scenario.actions]
    for deeds, happen in ((OF_LETTERS, aside), (OF_DOCUMENTS, follows)):
        if happen:
            actions[:0] = random.sample(deeds, k=random.randrange(3))
    if follows:
        actions = [act for action in actions for act in (action, "change the schema")[: random.randrange(1, 3)]]
    if aside:
        actions = [action for action in actions if action not in NOT_WITH_LETTERS]
        chances = {fault: chance for fault, chance in chances.items() if fault not in NOT_WITH_LETTERS}
    return replace(scenario, chances=chances, actions=tuple(actions), content=content)


def _theme(random: Random) -> tuple[dict[str, float], list[str]]:
    actions, chances = random.choice(THEMES)
    return chances, [action for action in actions if random.random() < 0.9]


def _swarm(random: Random) -> tuple[dict[str, float], list[str]]:
    chances = {fault: chance for fault, chance in FAULTS.items() if random.random() < 0.3}
    if random.random() < 0.03:
        chances[LIE] = 0.3
    kinds = [action for action in ACTIONS if random.random() < 0.4]
    weights = [ACTIONS[kind] for kind in kinds]
    actions = random.choices(kinds, weights, k=random.randrange(1, 6)) if kinds else []
    return chances, actions
