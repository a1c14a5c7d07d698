"""What lakesink depends on: the catalog, the storage, their clocks."""

from lakesink_protocol.events.event import DEBUG, Event


class CatalogNotCertified(Event):
    """The tests of lakesink do not cover this catalog; `by` names its property: ``type`` or ``class``."""

    line = "lakesink.catalog.not-certified name=%(name)s %(by)s=%(value)s"
    name: str
    by: str
    value: str


class FirstSnapshotUnproven(Event):
    """The scratch table that shows whether the catalog protects first snapshots failed; it may be left."""

    line = "lakesink.first-snapshot.unproven name=%(name)s scratch=%(scratch)s error=%(error)s"
    name: str
    scratch: str
    error: str


class ClockBehind(Event):
    """The time of the table's last change is later than this driver's clock."""

    line = "lakesink.clock.behind seconds=%(seconds)d"
    seconds: int


class ClockAhead(Event):
    """This driver's clock is ahead of the storage's."""

    line = "lakesink.clock.ahead seconds=%(seconds)d: until then, Java writers refuse the table"
    seconds: int


class ClockUnknown(Event):
    """The storage's time of a file could not be read."""

    level = DEBUG
    line = "lakesink.clock.untold error=%(error)s"
    error: str


class MetricsNotServed(Event):
    """The port for metrics cannot be opened; the stream runs without them."""

    line = "lakesink.metrics.not-served place=%(place)s error=%(error)s: the stream runs without metrics"
    place: str
    error: str


class LineageNotSent(Event):
    """An event for OpenLineage could not be sent. Those that follow are lost without a line, until one is sent."""

    line = "lakesink.lineage.not-sent error=%(error)s: the stream runs on"
    error: str


class LineageSentAgain(Event):
    """Events for OpenLineage are sent again, after so many were lost."""

    line = "lakesink.lineage.sent-again lost=%(lost)d"
    lost: int


class TurnPassedOver(Event):
    """A turn at the table could not be had; commits go on without turns for some minutes."""

    line = "lakesink.turn.passed-over table=%(table)s error=%(error)s: commits go on without turns for ten minutes"
    table: str
    error: str
