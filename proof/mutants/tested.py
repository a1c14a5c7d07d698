"""Seeded bugs in places that neither the simulator nor the scenarios reach: one test of the product sees each.

The JVM's side of a batch is not simulated, and a pointer of another catalog shows in no rows. So the test runs in a
process of its own that has the bug, and has to fail there; without the bug it has to pass.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.typedef import Identifier
from pyspark.core.rdd import RDD
from pyspark.util import local_connect_and_auth

from lakesink.sinks.iceberg import checked_receipts as votes
from lakesink.sinks.iceberg.side import replay_loop, side_sink
from lakesink.spark.rows import batch_rows
from lakesink.spark.rows.task import RawBytes
from lakesink_catalog.commit import batch_commit
from lakesink_catalog.connect.caching_sql import CachingSqlCatalog
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION, Verdict
from proof.mutants import maintaining, told
from proof.mutants.mutant import Patches

ROOT = Path(__file__).parents[2]
VARIABLE = "LAKESINK_PROOF_TESTED"
FAILED = 1


@dataclass(frozen=True, slots=True)
class SeededBug:
    """One bug.

    Attributes:
        name: What it does wrong.
        breaks: What it breaks.
        test: The test that sees it.
        put_in: Puts it in.
    """

    name: str
    breaks: str
    test: str
    put_in: Callable[[Patches], None]


@dataclass(frozen=True, slots=True)
class SeededBugResult:
    """What came of one bug.

    Attributes:
        name: The bug.
        breaks: What it breaks.
        test: The test.
        seen: The test failed with the bug.
        sound: It passed without it.
    """

    name: str
    breaks: str
    test: str
    seen: bool
    sound: bool

    @property
    def broken(self) -> tuple[str, ...]:
        """Holes in the proof."""
        unseen = () if self.seen else (f"{self.name}: {self.test} does not see it",)
        return unseen if self.sound else (*unseen, f"{self.test} fails without a mutant")

    def to_json(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)


def gathered_batch_unchecked(patches: Patches) -> None:
    """The end of what came is taken for the end of what there is."""

    def collected(encoded: "RDD[bytes]") -> list[bytes]:
        jvm: Any = encoded.ctx._jvm  # noqa: SLF001 - as the product does
        sender = jvm.PythonRDD.collectAndServe(encoded._jrdd.rdd())  # noqa: SLF001 - as the product does
        stream, connection = local_connect_and_auth(sender[0], sender[1])
        with connection, stream:
            return list(RawBytes().load_stream(stream))  # type: ignore[no-untyped-call] # PySpark's has no types

    patches.put(batch_rows, "collected", collected)


def catalog_name_not_compared(patches: Patches) -> None:
    """A table's row in the database is found by namespace and table alone."""

    def row(_: CachingSqlCatalog, name: Identifier) -> tuple[Any, ...]:
        namespace = Catalog.namespace_to_string(Catalog.namespace_from(name))
        return IcebergTables.table_namespace == namespace, IcebergTables.table_name == Catalog.table_name_from(name)

    patches.put(CachingSqlCatalog, "_row", row)


def left_rows_uncounted(patches: Patches) -> None:
    """Rows that tasks left are in no file, and nobody misses them."""
    patches.put(votes, "_check_rest", lambda _rest, _of_job: None)


def letters_of_a_load_believed(patches: Patches) -> None:
    """No request asks whether the dead letters that a load shows are in the table, or that others are not."""
    patches.put(side_sink, "is_current", lambda _table, _branch: True)


def letters_of_a_load_replayed(patches: Patches) -> None:
    """The same in a replay."""
    patches.put(replay_loop, "is_current", lambda _table, _branch: True)


def upgraded_table_written(patches: Patches) -> None:
    """No attempt asks for the format version, which another engine can raise between locating and the commit."""

    def decide(situation: Situation, accept: str | None = None) -> Verdict:
        view = replace(situation.view, format_version=SUPPORTED_FORMAT_VERSION)
        verdict: Verdict = real(Situation(view, situation.key, situation.batch, situation.start_uuid), accept)
        return verdict

    real = patches.put(batch_commit, "decide", decide)


TESTED = (
    SeededBug(
        "gathered batch unchecked",
        "P8: rows that the JVM could not send are left out of the batch.",
        "tests/spark/test_batch_rows.py::test_messages_of_which_the_jvm_could_not_send_all_are_an_error",
        gathered_batch_unchecked,
    ),
    SeededBug(
        "catalog name not compared",
        "P2: a commit moves the table of another catalog in the same database.",
        "tests/catalog/test_caching_sql.py::test_two_catalogs_in_one_database_each_have_their_own_table",
        catalog_name_not_compared,
    ),
    SeededBug(
        "left rows uncounted",
        "P8: rows that tasks left, and nobody asked for or wrote, are not in the batch.",
        "tests/faults/test_votes.py::test_a_vote_cast_on_other_premises_fails_the_batch"
        "[with rows that it left, though nobody asked]",
        left_rows_uncounted,
    ),
    SeededBug(
        "letters of a load believed",
        "P2: rows whose dead letters were dropped with their table are in no table.",
        "tests/faults/test_dead_letters.py"
        "::test_letters_in_a_table_that_was_dropped_are_not_taken_for_those_in_the_table",
        letters_of_a_load_believed,
    ),
    SeededBug(
        "letters of a load replayed",
        "P1: dead letters that were rolled back are replayed, although their rows may be in the table.",
        "tests/faults/test_letter_replays.py::test_letters_are_not_replayed_from_an_older_state_of_their_table"
        "[behind1-rolled back]",
        letters_of_a_load_replayed,
    ),
    SeededBug(
        "upgraded table written",
        "U2: delete files of version 2 are sent to a table of version 3, which prohibits new ones.",
        "tests/upsert/test_evolution.py::test_deletes_that_were_located_before_an_upgrade_are_not_committed_after_it",
        upgraded_table_written,
    ),
    *(
        SeededBug(
            bug.__name__.replace("_", " "),
            breaks,
            "tests/proof/test_simulator.py::test_events_are_put_aside_whole_logged_and_replayed_whatever_happens",
            bug,
        )
        for breaks, bug in told.BUGS.items()
    ),
    *(
        SeededBug(bug.__name__.replace("_", " "), breaks, f"tests/upkeep/{test}", bug)
        for (breaks, test), bug in maintaining.BUGS.items()
    ),
)


def run_tested(bugs: Sequence[SeededBug] = TESTED) -> tuple[SeededBugResult, ...]:
    """Each test with its bugs, and once without."""
    sound = {test: _ends(test, "") == 0 for test in {bug.test for bug in bugs}}
    return tuple(
        SeededBugResult(bug.name, bug.breaks, bug.test, _ends(bug.test, bug.name) == FAILED, sound[bug.test])
        for bug in bugs
    )


def pytest_configure() -> None:
    """As a plugin of pytest: put the bug in for good that a variable names."""
    for bug in TESTED:
        if bug.name == os.environ.get(VARIABLE):
            bug.put_in(Patches())


def _ends(test: str, name: str) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", __name__, "-p", "no:cacheprovider", test]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {VARIABLE: name}, capture_output=True, check=False)
    return done.returncode
