"""A query that reads the batches of a sink."""

from lakesink_protocol.events.event import INFO, Event, SinkEvent


class ReadPlanned(SinkEvent):
    """The batches of a sink, and replays of its letters, that the next micro-batch of a reading query has."""

    level = INFO
    line = (
        "lakesink.read.planned table=%(table)s sink=%(sink)s first=%(first)s last=%(last)s batches=%(batches)d"
        " files=%(files)d rows=%(rows)d"
    )
    first: str
    last: str
    batches: int
    files: int
    rows: int


class OthersNotRead(SinkEvent):
    """Other writers added rows between the batches of the sink that a query reads; it does not read them."""

    line = (
        "lakesink.read.others table=%(table)s sink=%(sink)s snapshots=%(snapshots)d rows=%(rows)d: rows of other"
        " writers are not part of the sink's batches, and are not read"
    )
    snapshots: int
    rows: int


class ReadWaits(SinkEvent):
    """The table was rolled back behind the batches that a query has read; it waits until they are written again."""

    line = (
        "lakesink.read.waits table=%(table)s sink=%(sink)s: the table was rolled back behind the batches that were"
        " read; nothing is read until they are written again. If its sink went on otherwise, start this query again: it"
        " tells what to do"
    )


class ReplayLost(SinkEvent):
    """The table was rolled back behind a replay of dead letters that a query has read; batches are read on."""

    line = (
        "lakesink.read.replay-lost table=%(table)s sink=%(sink)s replay=%(replay)d: the table was rolled back behind a"
        " replay of dead letters that was read. Replay the same letters again: they are not read a second time"
    )
    replay: int


class HoldNotMoved(Event):
    """The branch that keeps unread batches of a reading query from expiry was not moved."""

    line = (
        "lakesink.read.hold-not-moved table=%(table)s reader=%(reader)s why=%(why)s: batches are read all the same; it"
        " is tried again with a later micro-batch"
    )
    table: str
    reader: str
    why: str
