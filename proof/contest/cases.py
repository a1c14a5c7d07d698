"""The cases: what sinks break on in the field, each as a story of steps."""

from dataclasses import replace

from proof.contest.case import Case
from proof.contest.steps import (
    arrive,
    back_up,
    executors_killed,
    expire,
    killed_at_each_point,
    killed_at_the_answer,
    lose_checkpoint,
    main_moves,
    others_append,
    publish,
    restore,
    run,
    spoil,
    tidy_up,
    two_drivers,
    unlog,
)
from servers.fault_proxy import HttpFault, Kind

AUDIT_BRANCH = "aud"
KILLED = ("at-most-once", "at-least-once", "key-value", "write-ahead-log", "folders", "lakesink", "kafka", "pravega")


def _lost_answer(name: str, title: str, fault: HttpFault) -> Case:
    return Case(
        name,
        title,
        f"The commit of batch 1 reaches a REST catalog: {fault.name}. The stream is started again until it ends well.",
        (arrive(0, 1), run(), arrive(1, 2), spoil(fault), run(), arrive(2, 3), run()),
        needs_rest=True,
    )


_ON_A_BRANCH = (arrive(0, 3), run(), main_moves, unlog, run())

CONTRAST = (
    Case(
        "replay",
        "replay on main",
        "Spark runs the last batch again, since its commit log does not have it.",
        (arrive(0, 3), run(), unlog, run()),
    ),
    Case(
        "replay-expired",
        "replay after expiry, others having committed",
        "Another writer appends a row, every snapshot but the last is expired, and the last batch runs again.",
        (arrive(0, 3), run(), others_append, expire, unlog, run()),
    ),
    Case(
        "killed",
        "SIGKILL between the sink's commit and Spark's",
        "The driver is killed when its commit has landed and before Spark could log that, and is started again.",
        (arrive(0, 2), run(), arrive(2, 4), killed_at_the_answer, run()),
        needs_rest=True,
    ),
    Case(
        "two-drivers",
        "two drivers of one checkpoint",
        "A driver is stopped (SIGSTOP) inside its commit and taken for dead; a second one is started and runs to its "
        "end; the first one wakes up (SIGCONT).",
        (arrive(0, 2), run(), arrive(2, 4), two_drivers, run()),
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
        (arrive(0, 4), executors_killed, run(files=4)),
        sinks=("iceberg", "lakesink"),
    ),
    Case(
        "batch-changed",
        "checkpoint restored, source changed",
        "The checkpoint is restored to before batch 2, and the file that batch 2 had read is not in the source any "
        "more: batch 2 now reads a newer one.",
        (arrive(0, 2), run(), back_up, arrive(2, 3), run(), restore, tidy_up(2, 3), arrive(3, 4), run()),
        refusals=("LAKESINK_BATCH_CHANGED",),
    ),
    Case(
        "checkpoint-lost",
        "checkpoint lost, the same source read again",
        "The checkpoint is lost and the stream started anew; the source still has every file, and one more.",
        (arrive(0, 3), run(), lose_checkpoint, arrive(3, 4), run()),
        refusals=("LAKESINK_NEW_CHECKPOINT",),
    ),
    Case(
        "checkpoint-lost-larger",
        "checkpoint lost, read again in larger batches",
        "The same, but the new stream reads everything in its first batch.",
        (arrive(0, 3), run(), lose_checkpoint, arrive(3, 4), run(files=10)),
        refusals=("LAKESINK_NEW_CHECKPOINT",),
    ),
    Case(
        "checkpoint-new",
        "new checkpoint, only new files in the source",
        "The checkpoint is lost and the stream started anew; the source has been emptied, and gets a new file.",
        (arrive(0, 3), run(), lose_checkpoint, tidy_up(0, 3), arrive(3, 4), run()),
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
        branch_by="session",
    ),
    Case(
        "branch-name",
        "branch in the table's name as `toTable` takes it, replayed",
        'The same, the target being `toTable("table.branch_aud")`.',
        _ON_A_BRANCH,
        sinks=("iceberg",),
        branch=AUDIT_BRANCH,
        branch_by="toTable",
    ),
    Case(
        "branch-path",
        "branch in the table's name as `path`, replayed",
        'The same, the target being given as `option("path", "table.branch_aud")` and `start()`.',
        _ON_A_BRANCH,
        sinks=("iceberg",),
        branch=AUDIT_BRANCH,
        branch_by="path",
    ),
    Case(
        "wap-id",
        "`spark.wap.id`, replayed and published",
        "A batch is staged under an id, runs again, and what was staged is published.",
        (arrive(0, 1), run(), unlog, run(), publish),
        sinks=("iceberg",),
        wap_id="audit-1",
    ),
)

_KILLED = Case(
    "replays",
    "source can replay",
    "A driver is killed at each bad moment of the sink, each time in another batch, and another one is started.",
    (killed_at_each_point, run()),
    sinks=KILLED,
    rows=20,
    watched=True,
)
GUARANTEES = (_KILLED, replace(_KILLED, name="forgets", title="source cannot replay", replays=False))
"""Played side by side: their streams share the drivers of a sink."""

PARTED = {
    ("write-ahead-log", "forgets"): (
        "theory calls this at most once, since rows that were not logged are gone with the source. But what *was*"
        " logged survives and is sent again, so that both holes are there too, and rows are doubled."
    ),
}
"""Where what happens is known to be something else than what theory calls it, and why."""

CASES = {case.name: case for case in (*CONTRAST, *GUARANTEES)}
