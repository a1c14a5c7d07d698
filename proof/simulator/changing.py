"""What a seed draws where the rows of the stream are changes by key: the same worlds, and more happens in them."""

from dataclasses import replace
from random import Random

from lakesink.compact.choose import SMALL_BYTES
from lakesink_protocol.row_changes import Mode
from proof.changes import Changing
from proof.content import Content
from proof.simulator.scenario import ACTIONS, Scenario, draw

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


def draw_changes(random: Random) -> Scenario:
    """A scenario of a stream that replaces and deletes rows by key."""
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
        enough_files=own.choice([2, 2, 3, 6]),
        small_bytes=own.choice([SMALL_BYTES, 0]),
    )
