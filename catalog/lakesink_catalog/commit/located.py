"""What the changes of a batch mean on one head: the files of position deletes to add, and those that they replace.

The rows of a batch never depend on the table's content; its deletes do. So they are valid for one head only, and a
commit on another head locates the rows again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pyiceberg.table import Table

from lakesink_catalog.manifests.live import LiveFile
from lakesink_protocol.change import ContentFile
from lakesink_protocol.row_changes import ChangeCounts


@dataclass(frozen=True, slots=True)
class Located:
    """The deletes of a batch on one head.

    Attributes:
        head: The snapshot that they are valid for; None for an empty branch.
        deletes: New files of position deletes, one for each data file that loses rows.
        replaced: Older delete files whose positions the new ones contain; their entries become DELETED.
        masked: Rows of the batch itself that the new delete files remove: late or superseded ones.
    """

    head: int | None
    deletes: tuple[ContentFile, ...] = ()
    replaced: tuple[LiveFile, ...] = ()
    counts: ChangeCounts = field(default_factory=ChangeCounts)
    masked: int = 0


Locate = Callable[[Table, int | None], Located]
"""Locates the changes of one batch on a head of the loaded table. It may be called again for another head."""
