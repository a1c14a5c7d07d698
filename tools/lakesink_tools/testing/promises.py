"""The promises of a sink, each with the part of the seam that requires it. Every failure names one. Pure."""

from enum import Enum

DOCUMENT = "docs/use/custom-sinks.md"
SEAM = "lakesink.two_phase"


class Promise(Enum):
    """A promise of the seam: the text, and the part of the seam that requires it."""

    ONCE = ("each row of each batch is in the target once", "TwoPhaseCommitSink")
    WHOLE = ("readers see a whole batch or no row of it, and no row before commit", "TwoPhaseCommitSink.commit")
    REPLAY = ("begin finds a committed batch in the target itself", "TwoPhaseCommitSink.begin")
    BEGIN = ("begin changes nothing, and may be called any number of times", "TwoPhaseCommitSink.begin")
    HISTORY = ("a batch that does not follow the target's history is refused", "TwoPhaseCommitSink.begin")
    CRASH = ("after a crash of any process at any point, the replay completes the batch", "TwoPhaseCommitSink")
    DURABILITY = ("a prepared batch is used again after a crash only if durability says that it survives", "Durability")
    PAYLOAD = ("a payload is JSON for the record, and is checked when it is read back", "TwoPhaseCommitSink.recover")
    RIVAL = ("if two drivers run one batch, one of them commits it", "TwoPhaseCommitSink.commit")
    AGAIN = ("commit may be called again for a committed batch", "TwoPhaseCommitSink.commit")
    VOTES = ("a batch needs a valid receipt of every task", "TwoPhaseCommitSink.pre_commit")
    ATTEMPTS = ("only the attempt of a task whose receipt arrives counts", "TaskWriter.write")
    EMPTY = ("a batch without rows is committed like any other batch", "TwoPhaseCommitSink.commit")
    ABORT = ("abort deletes nothing that a later commit could use", "TwoPhaseCommitSink.abort")
    TRAVELS = ("writers can be pickled for other processes, which return receipts as bytes", "TaskWriter")

    def __init__(self, says: str, seam: str) -> None:
        self.says = says
        self.seam = seam  # the part of `lakesink_protocol.two_phase` that requires it

    @property
    def anchor(self) -> str:
        """The anchor of the promise in `DOCUMENT`."""
        return self.name.lower()


class BrokenPromise(AssertionError):
    """A failed check of the suite: the promise, and how it was broken."""

    def __init__(self, promise: Promise, found: BaseException) -> None:
        self.promise = promise
        reason = str(found) if isinstance(found, AssertionError) and str(found) else f"{type(found).__name__}: {found}"
        super().__init__(
            f"broken promise {promise.name}: {promise.says}.\n"
            f"  SeenRows: {reason}\n"
            f"  Required by: {SEAM}.{promise.seam}, see {DOCUMENT}#{promise.anchor}"
        )
