"""The order of the checks. A check that depends on a failed one is reported as skipped."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from pyiceberg.table import Table

from lakesink_catalog.tables.tables import load_table
from lakesink_catalog.words import as_arguments
from lakesink_tools.audit.scan import last_change_ms
from lakesink_tools.checks.doctor.catalog import SWAP, CatalogChecks, check_catalog, check_commits
from lakesink_tools.checks.doctor.checkpoint import NextBatch, check_checkpoint, coming_from
from lakesink_tools.checks.doctor.clock import Sighting, check_clock
from lakesink_tools.checks.doctor.expirations import check_expirations, check_request_keys
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing, attempt, attempt_all
from lakesink_tools.checks.doctor.spark import check_spark
from lakesink_tools.checks.doctor.storage import check_storage, now_ms
from lakesink_tools.checks.doctor.table import check_health, check_table

Say = Callable[[str], None]
"""Receives progress messages."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to check."""

    table: str | None = None
    catalog: str | None = None
    checkpoint: str | None = None  # path or URI
    spark: bool = True  # False to start no Spark
    write_probe: bool | None = None  # whether to write scratch objects; None: only in the embedded catalog


def examine(wanted: Wanted, say: Say, *, java: bool) -> Iterator[Finding]:
    """Run every check after the machine's own; without `java`, Spark cannot start. Masks the catalog's secrets."""
    say("looking at the catalog")
    checked = check_catalog(wanted.catalog)
    known = checked.found.properties if checked.found else {}
    for finding in (*_spark(wanted, say, java=java), *_setup(wanted, say, checked)):
        yield finding.without_secrets(known)


def _spark(wanted: Wanted, say: Say, *, java: bool) -> Iterator[Finding]:
    if not wanted.spark:
        yield Finding(Part.SPARK, "session", Standing.SKIPPED, "not started: --no-spark")
    elif not java:
        yield Finding(Part.SPARK, "session", Standing.SKIPPED, "not started: repair Java first")
    else:
        say("starting Spark and running two small jobs; this takes some seconds")
        yield from attempt_all(Part.SPARK, "session", check_spark)


def _setup(wanted: Wanted, say: Say, checked: CatalogChecks) -> Iterator[Finding]:
    embedded = checked.found is not None and checked.found.home is not None
    may_write = embedded if wanted.write_probe is None else wanted.write_probe
    yield from checked.findings
    if checked.opened is not None:
        yield from attempt_all(Part.CATALOG, "request keys", partial(check_request_keys, checked.opened))
    say("proving the catalog")
    yield from attempt_all(Part.CATALOG, SWAP, lambda: check_commits(checked, may_write=may_write))
    table: Table | Finding | None = None
    if wanted.table is not None:
        say("looking at the table")
        found, named = checked.found, wanted.table
        if found is None or checked.failed:
            table = Finding(Part.TABLE, "loads", Standing.SKIPPED, "not tried: repair the catalog first")
        else:
            catalog = checked.opened
            table = attempt(Part.TABLE, "loads", lambda: load_table(catalog or found.open(create=False), named))
        if isinstance(table, Finding):
            yield table
        else:
            coming = coming_from(wanted.checkpoint) if wanted.checkpoint else None
            yield from _table(named, table, coming, may_write=may_write)
            check = partial(check_health, as_arguments(named, wanted.catalog), table)
            yield from attempt_all(Part.TABLE, "health", check)
    if wanted.checkpoint is not None:
        say("looking at the checkpoint")
        root, beside = wanted.checkpoint, table if isinstance(table, Table) else None
        yield from attempt_all(Part.CHECKPOINT, "readable", lambda: check_checkpoint(root, beside))


def _table(identifier: str, table: Table, coming: NextBatch | Finding | None, *, may_write: bool) -> Iterator[Finding]:
    yield from check_table(identifier, table, coming)
    looked_ms = now_ms()
    yield from check_expirations(table, looked_ms)
    sightings: list[Sighting] = []
    yield from check_storage(Part.TABLE, table, sightings, may_write=may_write)
    sightings.append(Sighting("the table's newest change", None, last_change_ms(table), looked_ms))
    yield check_clock(Part.TABLE, sightings)
