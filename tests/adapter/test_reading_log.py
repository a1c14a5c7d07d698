"""A reading query tells what it waits for, as often as one would look."""

from lakesink.read.steps import Unread
from lakesink.spark.source.source_readers import WAITS_SECONDS, Progress
from lakesink_catalog.listeners import LISTENERS
from lakesink_catalog.read.past import Past
from lakesink_protocol import events

PAST, WAITING = Past("demo.mid", "a-uuid", ()), Unread((), is_rolled_back=True)


def test_a_query_that_waits_after_a_rollback_says_so_each_minute_until_the_table_has_come_back() -> None:
    told: list[events.Event] = []
    now = [1000.0]
    progress = Progress("demo.mid", "events", LISTENERS.also(told.append), clock=lambda: now[0])

    def after(seconds: float, unread: Unread) -> int:
        now[0] += seconds
        progress.found(PAST, unread)
        return len(told)

    assert after(0, WAITING) == 1
    assert after(WAITS_SECONDS - 1, WAITING) == 1
    assert after(1, WAITING) == 2
    assert after(1, Unread(())) == 2
    assert after(1, WAITING) == 3
    assert set(told) == {events.ReadWaits("demo.mid", "events")}
