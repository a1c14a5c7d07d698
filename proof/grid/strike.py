"""One cell on drivers without Spark: strike, let others act, start drivers until one gets through, and judge."""

import resource
import signal
import time
from collections.abc import Callable
from dataclasses import replace

from lakesink_protocol.outcome import Committed
from proof.grid.cells import IN_CALL, NOWHERE, REPLAYED, Blow, Cell
from proof.grid.place import Place, stream_makes_the_table
from proof.grid.story import Story
from proof.processes.evidence import Reader, judge, orphans
from proof.processes.harness import PATIENCE_SECONDS, Driver
from servers.fault_proxy import HttpFault, Kind

MAX_RESTARTS = 4
TORN_BYTES = 600
"""Room that a disk has left which fills in the middle of a file."""
HELD_SECONDS = 1.0
"""How long the proxy holds a request while its driver is struck."""


def strike(cell: Cell, at: Place) -> Story:
    """Run a cell."""
    story = Story()
    if not stream_makes_the_table(cell):
        at.others.make_table()
    with Reader(at.stream).reading() as reader:
        _strike(cell, at, story)
        _restart(at, story)
        if at.proxy is not None:
            at.proxy.over.wait(PATIENCE_SECONDS)
    story.broken = judge(at.stream, at.others.rows, reader)
    story.orphans = orphans(at.stream)
    if cell.kind in REPLAYED:
        _replay(cell, at, story)
    story.reader_failures = reader.failures
    story.trace = at.trace.lines()
    return story


def _strike(cell: Cell, at: Place, story: Story) -> None:
    if cell.point == IN_CALL:
        _strike_in_call(cell, at, story)
    elif isinstance(cell.fault, HttpFault):
        _spoil(cell.fault, cell, at, story)
    else:
        assert isinstance(cell.fault, Blow)
        _BLOWS[cell.fault](cell, at, story)


def _replay(cell: Cell, at: Place, story: Story) -> None:
    """All dead letters are replayed: in vain, as long as nobody says that rows are new; then by struck processes."""
    careful = replace(at.stream, replays=True)
    stream = replace(careful, content=replace(careful.content, on_absent="insert"))
    story.refused = careful.run().code
    story.broken += judge(at.stream, at.others.rows)
    then, story.replay = replace(at, stream=stream, killed_ns=0), Story()
    _strike(cell, then, story.replay)
    _restart(then, story.replay)
    story.kills += story.replay.kills
    story.broken += judge(stream, at.others.rows)


def _failpoint(cell: Cell, at: Place, action: str) -> str:
    """Replays are numbered from 1, and there is one."""
    batch = 1 if at.stream.replays else cell.position.value
    return "" if cell.point == NOWHERE else f"{cell.point}@{batch}={action}"


def _kill(cell: Cell, at: Place, story: Story) -> None:
    _ended(at, story, _killed(cell, at))
    at.others.act()


def _killed(cell: Cell, at: Place) -> Driver:
    """A driver that kills itself; or waits at each passage of the point, and is killed at the last that counts."""
    if cell.passage == 1:
        return at.stream.run(_failpoint(cell, at, "kill"))
    window = at.stream.root / "window"
    with at.stream.driver(_failpoint(cell, at, f"pause:{window}")) as driver:
        for passage in range(1, cell.passage + 1):
            if driver.wait_for(window) and passage == cell.passage:
                driver.kill()
            window.unlink(missing_ok=True)
        driver.wait()
    return driver


def _raise(cell: Cell, at: Place, story: Story) -> None:
    story.struck = at.stream.run(_failpoint(cell, at, "raise")).code
    at.others.act()


def _zombie(cell: Cell, at: Place, story: Story) -> None:
    with at.stream.driver(_failpoint(cell, at, "stop")) as zombie:
        if zombie.wait_until_stopped():
            _second_driver(zombie, at, story)
        else:
            assert at.stream.replays, f"it never came to {cell.point}"
            story.struck = zombie.code


def _fill_disk(cell: Cell, at: Place, story: Story) -> None:
    window = at.stream.root / "window"
    with at.stream.driver(_failpoint(cell, at, f"pause:{window}")) as driver:
        assert driver.wait_for(window), f"it never came to {cell.point}"
        _no_more_room(driver, cell)
        window.unlink()
        driver.wait()
        story.struck = driver.code
    at.others.act()


def _spoil(fault: HttpFault, cell: Cell, at: Place, story: Story) -> None:
    assert at.proxy is not None
    at.proxy.arm(cell.request, fault, at.others.act)
    _ended(at, story, at.stream.run(_failpoint(cell, at, "kill")))


def _strike_in_call(cell: Cell, at: Place, story: Story) -> None:
    """The proxy has the request, and holds it or its answer, while the driver is struck."""
    assert at.proxy is not None
    held = HttpFault(Kind.SLOW, seconds=HELD_SECONDS)
    at.proxy.arm(cell.request, cell.fault if isinstance(cell.fault, HttpFault) else held, at.others.act)
    with at.stream.driver() as driver:
        assert at.proxy.met.wait(PATIENCE_SECONDS), "no commit came"
        if isinstance(cell.fault, HttpFault) or cell.fault is Blow.KILL:
            at.killed_ns = driver.kill()
            story.kills = 1
        elif cell.fault is Blow.ZOMBIE:
            driver.signal(signal.SIGSTOP)
            _second_driver(driver, at, story)
        else:
            _no_more_room(driver, cell)
            driver.wait()
            story.struck = driver.code


def _second_driver(zombie: Driver, at: Place, story: Story) -> None:
    """It takes over while the first one stands still; then that one goes on, and others have been there meanwhile."""
    at.others.act()
    story.restarts.append(at.stream.run().code)
    at.others.act()
    zombie.go_on()
    story.struck = zombie.code


def _no_more_room(driver: Driver, cell: Cell) -> None:
    """Files of this process grow no more, or no further than a little: the system's own word is EFBIG for ENOSPC."""
    most = 0 if cell.fault is Blow.DISK_FULL else TORN_BYTES
    resource.prlimit(driver.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def _ended(at: Place, story: Story, driver: Driver) -> None:
    story.struck = driver.code
    if driver.process.exitcode == -signal.SIGKILL:
        at.killed_ns = time.monotonic_ns()
        story.kills = 1


def _restart(at: Place, story: Story) -> None:
    """Start drivers until one ends well, as whoever operates the stream does."""
    ended_well = story.struck is None or None in story.restarts
    while not ended_well and len(story.restarts) < MAX_RESTARTS:
        driver = at.stream.run()
        landed = [report.at_ns for report in driver.reports if report.outcome == Committed.__name__]
        if at.killed_ns and landed and story.recovery_ms is None:
            story.recovery_ms = (landed[0] - at.killed_ns) / 1e6
        story.restarts.append(driver.code)
        ended_well = driver.code is None


_BLOWS: dict[Blow, Callable[[Cell, Place, Story], None]] = {
    Blow.KILL: _kill,
    Blow.EXCEPTION: _raise,
    Blow.ZOMBIE: _zombie,
    Blow.DISK_FULL: _fill_disk,
    Blow.DISK_FULL_LATER: _fill_disk,
}
