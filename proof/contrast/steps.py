"""What happens in a case, step by step: data, which `proof.contrast.play` carries out."""

from dataclasses import dataclass

from servers.fault_proxy import HttpFault


@dataclass(frozen=True, slots=True)
class Arrive:
    """Files arrive at the source: ``first`` to ``last - 1``, each with a hundred numbered rows."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class TidyUp:
    """Files that were read long ago are removed from the source."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Run:
    """The stream runs until its source is used up; if it fails, it is started again, as a supervisor would.

    Attributes:
        files: Most files in a batch.
    """

    files: int = 1


@dataclass(frozen=True, slots=True)
class Unlog:
    """The newest entry of Spark's commit log is not there: the driver died before it wrote that."""


@dataclass(frozen=True, slots=True)
class BackUp:
    """The checkpoint is copied."""


@dataclass(frozen=True, slots=True)
class Restore:
    """The copy of the checkpoint takes the place of the checkpoint."""


@dataclass(frozen=True, slots=True)
class LoseCheckpoint:
    """The checkpoint is gone."""


@dataclass(frozen=True, slots=True)
class OthersAppend:
    """Another writer commits a row on the stream's branch."""


@dataclass(frozen=True, slots=True)
class MainMoves:
    """Another writer commits a row on ``main``, while the stream writes a branch."""


@dataclass(frozen=True, slots=True)
class Expire:
    """Every snapshot that no branch and no tag holds is expired."""


@dataclass(frozen=True, slots=True)
class Spoil:
    """Something goes wrong with the next commit request."""

    fault: HttpFault


@dataclass(frozen=True, slots=True)
class KilledAtTheAnswer:
    """A driver of its own is killed when its next commit has landed and the answer is on its way."""


@dataclass(frozen=True, slots=True)
class TwoDrivers:
    """A driver is stopped when it sends its next commit; a second one runs to its end; the first one goes on."""


@dataclass(frozen=True, slots=True)
class ExecutorsKilled:
    """A stream on a cluster of two executors; both are killed when the first data file of the batch is whole."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Iceberg's procedure `publish_changes` is called for what was staged."""


Happening = Arrive | TidyUp | Unlog | BackUp | Restore | LoseCheckpoint | OthersAppend | MainMoves | Expire
"""What happens to the source, the checkpoint or the table while no driver runs."""

Step = Happening | Run | Spoil | KilledAtTheAnswer | TwoDrivers | ExecutorsKilled | Publish
