"""An outbox waits for what may pass, with growing pauses, and ends with every other error."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from click.testing import CliRunner

from lakesink.observe.metrics import Numbers
from lakesink_protocol.errors import CatalogError
from lakesink_tools.cli.main import main
from lakesink_tools.cli.run.outbox import LONGEST_SECONDS, Done, may_pass

if TYPE_CHECKING:
    from lakesink_tools.operate.outbox.produce import Producing


def test_pauses_grow_to_a_limit_and_begin_again_after_a_success() -> None:
    done = Done(Numbers())
    assert [done.pause_after_error() for _ in range(8)] == [
        1,
        2,
        4,
        8,
        16,
        LONGEST_SECONDS,
        LONGEST_SECONDS,
        LONGEST_SECONDS,
    ]
    done.tell(cast("Producing", SimpleNamespace(position=None, outbox=None)))
    assert done.pause_after_error() == 1


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("KAFKA_UNREACHABLE", True),
        ("KAFKA_FAILED", True),
        ("COMMIT_UNRESOLVED", True),
        ("CATALOG_UNREACHABLE", True),
        ("STORAGE_UNREACHABLE", True),
        ("CATALOG_REJECTED", False),
        ("KAFKA_NOT_PERMITTED", False),
        ("KAFKA_RECORD_REFUSED", False),
        ("OUTBOX_REFUSED", False),
        ("READ_ROLLED_BACK", False),
    ],
)
def test_only_a_server_that_is_away_is_waited_for(code: str, *, passes: bool) -> None:
    assert may_pass(CatalogError(code, "It happened.", action="Start again.")) is passes


@pytest.mark.parametrize("topic", ["a topic", "x" * 250, "", "..", "ä", "a/b"])
def test_a_topic_that_cannot_exist_is_refused_before_anything_is_connected(topic: str) -> None:
    asked = ["outbox", "shop.orders", "--topic", topic, "--bootstrap-servers", "127.0.0.1:1", "--catalog", "nowhere"]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 2
    assert "[LAKESINK_OPTION_INVALID] The option --topic" in result.stderr
