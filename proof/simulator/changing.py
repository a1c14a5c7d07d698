"""What a seed draws where the rows of the stream are changes by key: the same worlds, and more happens in them."""

from dataclasses import replace
from random import Random

from lakesink_protocol.row_changes import Mode
from proof.changes import Changing
from proof.content import Content
from proof.simulator.scenario import ACTIONS, LIE, Scenario, draw

OF_CHANGES = (
    "foreign append",
    "foreign append",
    "compact",
    "compact",
    "compact",
    "merge",
    "merge",
    "delete",
    "change the partitioning",
    "roll back",
    "kill",
)
"""Actions beside those of a scenario, which change what a batch removes."""
MOST_OF_CHANGES = 5
OF_MAINTENANCE = 0, 0, 0, 1, 2
"""How many maintenances other processes start."""
OF_FEATURES = (
    *("kill between the commits", "kill after the evolution", "kill after the changelog"),
    *("replay", "replay", "replay", "twin", "forget a commit", "kill"),
)
"""Actions beside those where documents have changes and the table follows them, or some are put aside."""
NOT_WITH_FEATURES = (
    *("move the head", "restore the checkpoint", "lose the checkpoint"),
    *("replace the table", "lose the ledger", LIE),
)
"""The tables beside the stream's are not taken back with it: that is tried where rows are appended. With a changelog
there is no "roll back" either: it would be ahead of its table, and no operator here mends that."""


def draw_changes(random: Random) -> Scenario:
    """A scenario of a stream that replaces and deletes rows by key."""
    return _maintained(_changes(random))


def _maintained(scenario: Scenario) -> Scenario:
    """Sometimes other processes maintain the table, too."""
    own, actions = Random(f"maintenance {scenario}"), [*scenario.actions]  # the other draws of a seed stay
    for _ in range(own.choice(OF_MAINTENANCE)):
        actions.insert(own.randrange(len(actions) + 1), "maintain")
    return replace(scenario, actions=tuple(actions))


def _changes(random: Random) -> Scenario:
    scenario = draw(random)
    own = Random(f"changes {scenario}")
    actions = [action for action in scenario.actions if action in ACTIONS]
    for action in own.choices(OF_CHANGES, k=own.randrange(MOST_OF_CHANGES)):
        actions.insert(own.randrange(len(actions) + 1), action)
    changing = Changing(
        mode=own.choice([Mode.UPSERT, Mode.CHANGES, Mode.CHANGES]),
        has_sequence=own.random() < 0.75,
        keys=own.randrange(1, 5),
        salt=own.randrange(2**16),
    )
    end = tuple(last * own.choice([1, 1, 2]) for last in scenario.end)
    return replace(
        scenario,
        actions=tuple(actions),
        end=end,
        evolves=False,
        content=Content(changing=changing),
        maintenance={"min_input_files": own.choice([2, 2, 3, 6]), **own.choice([{}, {"min_input_files": 1_000}])},
    )


def draw_features(random: Random) -> Scenario:
    """A scenario of documents with changes: columns come, some changes are put aside, logged, and replayed."""
    scenario = _changes(random)
    own, changing = Random(f"features {scenario}"), scenario.content.changing
    assert changing is not None
    actions = [action for action in scenario.actions if action not in NOT_WITH_FEATURES]
    aside, follows = own.choice([(0, "add"), (0, "widen"), (2, ""), (2, "add"), (3, "widen"), (2, "widen")])
    for action in own.choices(OF_FEATURES, k=own.randrange(1, 5)):
        if aside or action != "replay":  # without letters there is nothing to replay
            actions.insert(own.randrange(len(actions) + 1), action)
    content = Content(
        aside_every=aside,
        follows=follows,
        salt=own.randrange(2**16),
        changing=replace(changing, has_sequence=changing.has_sequence or aside > 0, has_ties=not aside),
        logs=own.random() < 0.5,
        on_absent=own.choice(["fail", "insert"]),
        rescues=own.random() < 0.25,
    )
    chances = {fault: chance for fault, chance in scenario.chances.items() if fault not in NOT_WITH_FEATURES}
    if content.logs:
        actions = [action for action in actions if action != "roll back"]
    return _maintained(replace(scenario, chances=chances, actions=tuple(actions), content=content))
