"""The cases: what sinks for Iceberg break on in the field, each as a story of steps."""

from dataclasses import dataclass

from proof.contrast.sinks import BranchBy
from proof.contrast.steps import (
    Arrive,
    BackUp,
    ExecutorsKilled,
    Expire,
    KilledAtTheAnswer,
    LoseCheckpoint,
    MainMoves,
    OthersAppend,
    Publish,
    Restore,
    Run,
    Spoil,
    Step,
    TidyUp,
    TwoDrivers,
    Unlog,
)
from servers.fault_proxy import HttpFault, Kind

AUDIT_BRANCH = "aud"
EVERY_SINK = ("append", "marker", "iceberg", "lakesink")


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        name: Short, for the command line.
        title: For the table.
        story: What happens, in words.
        steps: What happens, as data.
        sinks: Who has what the case is about.
        branch: Branch that the rows are to be on.
        branch_by: How the sink is told.
        wap_id: `spark.wap.id` of the session; empty for none.
        needs_rest: True if the catalog is a REST server behind a proxy; else it is a SQLite file.
        refusals: Codes of lakesink that the protocol names for the case.
    """

    name: str
    title: str
    story: str
    steps: tuple[Step, ...]
    sinks: tuple[str, ...] = EVERY_SINK
    branch: str = "main"
    branch_by: BranchBy = BranchBy.OPTION
    wap_id: str = ""
    needs_rest: bool = False
    refusals: tuple[str, ...] = ()

    @property
    def has_own_drivers(self) -> bool:
        """True if drivers of their own are killed or stopped in it, which takes its time."""
        return any(isinstance(step, KilledAtTheAnswer | TwoDrivers | ExecutorsKilled) for step in self.steps)


def _lost_answer(name: str, title: str, fault: HttpFault) -> Case:
    return Case(
        name,
        title,
        f"The commit of batch 1 reaches a REST catalog: {fault.name}. The stream is started again until it ends well.",
        (Arrive(0, 1), Run(), Arrive(1, 2), Spoil(fault), Run(), Arrive(2, 3), Run()),
        needs_rest=True,
    )


_ON_A_BRANCH = (Arrive(0, 3), Run(), MainMoves(), Unlog(), Run())

CASES = (
    Case(
        "replay",
        "replay on main",
        "Spark runs the last batch again, since its commit log does not have it.",
        (Arrive(0, 3), Run(), Unlog(), Run()),
    ),
    Case(
        "replay-expired",
        "replay after expiry, others having committed",
        "Another writer appends a row, every snapshot but the last is expired, and the last batch runs again.",
        (Arrive(0, 3), Run(), OthersAppend(), Expire(), Unlog(), Run()),
    ),
    Case(
        "killed",
        "SIGKILL between the sink's commit and Spark's",
        "The driver is killed when its commit has landed and before Spark could log that, and is started again.",
        (Arrive(0, 2), Run(), Arrive(2, 4), KilledAtTheAnswer(), Run()),
        needs_rest=True,
    ),
    Case(
        "two-drivers",
        "two drivers of one checkpoint",
        "A driver is stopped (SIGSTOP) inside its commit and taken for dead; a second one is started and runs to its "
        "end; the first one wakes up (SIGCONT).",
        (Arrive(0, 2), Run(), Arrive(2, 4), TwoDrivers(), Run()),
        needs_rest=True,
    ),
    _lost_answer("answer-lost", "commit applied, connection dropped", HttpFault(Kind.DROP)),
    _lost_answer("answer-503", "commit applied, answer 503", HttpFault(Kind.STATUS, status=503)),
    _lost_answer("answer-500", "commit applied, answer 500", HttpFault(Kind.STATUS, status=500)),
    _lost_answer("twice", "commit delivered twice, the second answer returned", HttpFault(Kind.TWICE)),
    Case(
        "executors-killed",
        "executors killed after an upload",
        "A batch of four tasks on two executors; both are killed when the first data file is whole.",
        (Arrive(0, 4), ExecutorsKilled(), Run(files=4)),
        sinks=("iceberg", "lakesink"),
    ),
    Case(
        "batch-changed",
        "checkpoint restored, source changed",
        "The checkpoint is restored to before batch 2, and the file that batch 2 had read is not in the source any "
        "more: batch 2 now reads a newer one.",
        (Arrive(0, 2), Run(), BackUp(), Arrive(2, 3), Run(), Restore(), TidyUp(2, 3), Arrive(3, 4), Run()),
        refusals=("LAKESINK_BATCH_CHANGED",),
    ),
    Case(
        "checkpoint-lost",
        "checkpoint lost, the same source read again",
        "The checkpoint is lost and the stream started anew; the source still has every file, and one more.",
        (Arrive(0, 3), Run(), LoseCheckpoint(), Arrive(3, 4), Run()),
        refusals=("LAKESINK_NEW_CHECKPOINT",),
    ),
    Case(
        "checkpoint-lost-larger",
        "checkpoint lost, read again in larger batches",
        "The same, but the new stream reads everything in its first batch.",
        (Arrive(0, 3), Run(), LoseCheckpoint(), Arrive(3, 4), Run(files=10)),
        refusals=("LAKESINK_NEW_CHECKPOINT",),
    ),
    Case(
        "checkpoint-new",
        "new checkpoint, only new files in the source",
        "The checkpoint is lost and the stream started anew; the source has been emptied, and gets a new file.",
        (Arrive(0, 3), Run(), LoseCheckpoint(), TidyUp(0, 3), Arrive(3, 4), Run()),
        refusals=("LAKESINK_NEW_CHECKPOINT",),
    ),
    Case(
        "branch-option",
        "branch as an option of the stream, replayed",
        "The stream is to write a branch, main moves on, and the last batch runs again. Iceberg has this option "
        "for batch jobs; a stream takes it without a word.",
        _ON_A_BRANCH,
        branch=AUDIT_BRANCH,
    ),
    Case(
        "branch-session",
        "branch by `spark.wap.branch`, replayed",
        "The same, the branch being named by the session of a table with `write.wap.enabled`.",
        _ON_A_BRANCH,
        sinks=("iceberg",),
        branch=AUDIT_BRANCH,
        branch_by=BranchBy.SESSION,
    ),
    Case(
        "branch-name",
        "branch in the table's name as `toTable` takes it, replayed",
        'The same, the target being `toTable("table.branch_aud")`.',
        _ON_A_BRANCH,
        sinks=("iceberg",),
        branch=AUDIT_BRANCH,
        branch_by=BranchBy.NAME,
    ),
    Case(
        "branch-path",
        "branch in the table's name as `path`, replayed",
        'The same, the target being given as `option("path", "table.branch_aud")` and `start()`.',
        _ON_A_BRANCH,
        sinks=("iceberg",),
        branch=AUDIT_BRANCH,
        branch_by=BranchBy.PATH,
    ),
    Case(
        "wap-id",
        "`spark.wap.id`, replayed and published",
        "A batch is staged under an id, runs again, and what was staged is published.",
        (Arrive(0, 1), Run(), Unlog(), Run(), Publish()),
        sinks=("iceberg",),
        wap_id="audit-1",
    ),
)
