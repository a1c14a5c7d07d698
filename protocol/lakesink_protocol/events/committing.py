"""The commit of a batch: located rows, requests and their answers."""

from typing import Any

from lakesink_protocol.events.event import INFO, BatchEvent, Event, SinkEvent, TableBatchEvent
from lakesink_protocol.outcome import Outcome
from lakesink_protocol.situation import Situation


class ChangesLocated(BatchEvent):
    """The rows that the batch replaces or deletes were located on a head of the branch.

    `files` is the number of delete files for them, `rows` that of the rows.
    """

    head: int | None
    files: int
    rows: int


class ChangesLocatedAgain(BatchEvent):
    """Another writer has moved the branch to this head, so the batch's rows are located on it before the commit."""

    level = INFO
    line = "lakesink.changes.located-again batch=%(batch_id)d head=%(head)s"
    head: int | None


class CommitDue(BatchEvent):
    """A commit is about to be sent, with these assertions; a directory has none of them."""

    snapshot_id: int | None = None
    head: int | None = None
    tag: int | None = None


class CommitAnswered(BatchEvent):
    """The answer to the commit has arrived; it is not checked yet."""


class CommitShown(BatchEvent):
    """The answer shows the batch."""


class BatchInTable(TableBatchEvent):
    """A table has the batch: it is committed, or was found committed. A side table tells it of its own commits.

    Attributes:
        situation: The batch, and the table as it was decided on.
        snapshot_id: The batch's own snapshot; None if it is not known which.
        metadata: PyIceberg's; without this snapshot if it has expired.
    """

    situation: Situation
    snapshot_id: int | None
    metadata: Any


class CommitNotShown(BatchEvent):
    """The answer does not show the batch."""

    line = "lakesink.commit.not-shown batch=%(batch_id)d attempt=%(attempt)d"
    attempt: int


class CommitUnknown(BatchEvent):
    """The result of an attempt is unknown."""

    line = "lakesink.commit.unknown batch=%(batch_id)d attempt=%(attempt)d %(trouble)s"
    attempt: int
    trouble: str


class ChangeUnknown(Event):
    """The result of an attempt is unknown, for a command that changes no row."""

    line = "lakesink.%(command)s.unknown attempt=%(attempt)d %(trouble)s"
    command: str
    attempt: int
    trouble: str


class CommittedByAnother(BatchEvent):
    """The batch is in the table with the rows of another driver."""

    line = (
        "lakesink.commit.by-another batch=%(batch_id)d snapshot=%(snapshot_id)s: its rows are in the table, and the"
        " rows of this run are not"
    )
    snapshot_id: int | None


class CommitEnded(BatchEvent):
    """The end of a commit: an outcome, None if the batch must be written again, or the error."""

    ended: Outcome | BaseException | None


class TagTaken(Event):
    """The batch gets no audit tag, because another tag or branch has its name."""

    line = "lakesink.tag.taken tag=%(tag)s: another tag or branch has this name, so the batch gets no tag"
    tag: str


class TagsLeftOut(SinkEvent):
    """For the first time in a run, the table shows a batch and not the tags of its commit."""

    line = (
        "lakesink.catalog.without-tags table=%(table)s sink=%(sink)s code=LAKESINK_CATALOG_WITHOUT_TAGS: the catalog"
        " accepts commits and leaves out their tags; lakesink cannot detect a rollback that expiry hides, or a late"
        " request on an old head; ledger_tag=False sends no tag"
    )
