"""The promises of a sink by name, with the place that states each; every failure of the suite names one. Pure."""

from enum import Enum

DOCUMENT = "docs/use/custom-sinks.md"
SEAM = "lakesink.two_phase"


class Promise(Enum):
    """A promise of the seam: the text, and the part of the seam that demands it."""

    ONCE = ("each row of each batch is in the target once", "TwoPhaseCommitSink")
    WHOLE = ("readers see all of a batch or nothing of it, and nothing before commit", "TwoPhaseCommitSink.commit")
    REPLAY = ("a batch that is there is found in the target itself", "TwoPhaseCommitSink.begin")
    BEGIN = ("begin changes nothing, and may be called any number of times", "TwoPhaseCommitSink.begin")
    HISTORY = ("a batch that does not follow the target's history is refused", "TwoPhaseCommitSink.begin")
    CRASH = ("whoever dies wherever, the replay completes the batch", "TwoPhaseCommitSink")
    DURABILITY = ("what durability says survives a crash is used again; nothing else is", "Durability")
    PAYLOAD = ("a payload is JSON for the record, and checked when it comes back", "TwoPhaseCommitSink.recover")
    RIVAL = ("of two drivers with one batch, one commits it", "TwoPhaseCommitSink.commit")
    AGAIN = ("commit may be called again for what is committed", "TwoPhaseCommitSink.commit")
    VOTES = ("only a sound receipt of every task makes a batch", "TwoPhaseCommitSink.pre_commit")
    ATTEMPTS = ("of the attempts of a task, only the one whose receipt came counts", "TaskWriter.write")
    EMPTY = ("a batch without rows is a batch like any other", "TwoPhaseCommitSink.commit")
    ABORT = ("abort deletes nothing that could be used", "TwoPhaseCommitSink.abort")
    TRAVELS = ("writers travel to other processes and receipts come back from them", "TaskWriter")

    def __init__(self, says: str, seam: str) -> None:
        self.says = says
        self.seam = seam  # the part of `lakesink_protocol.two_phase` that demands it

    @property
    def anchor(self) -> str:
        """Its anchor in `DOCUMENT`."""
        return self.name.lower()


class BrokenPromise(AssertionError):
    """A check of the suite failed: the promise, and how it was broken."""

    def __init__(self, promise: Promise, found: BaseException) -> None:
        self.promise = promise
        told = str(found) if isinstance(found, AssertionError) and str(found) else f"{type(found).__name__}: {found}"
        super().__init__(
            f"broken promise {promise.name}: {promise.says}.\n"
            f"  Found: {told}\n"
            f"  Asked for by: {SEAM}.{promise.seam}, see {DOCUMENT}#{promise.anchor}"
        )


def promises_table_markdown() -> str:
    """The table of promises for the documentation."""
    lines = ["| name | what a sink promises | asked for by |", "|---|---|---|"]
    lines += [f'| <a id="{kept.anchor}"></a>`{kept.name}` | {kept.says} | `{kept.seam}` |' for kept in Promise]
    return "\n".join(lines) + "\n"
