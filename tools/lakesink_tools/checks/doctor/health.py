"""Checks how healthy a table is: small files, deleted rows, manifests, metadata; and what a maintenance would save."""

from collections.abc import Iterator

from pyiceberg.table import Table

from lakesink_catalog.read.history import sinks
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing
from lakesink_tools.operate.maintain import health_in_words, seen_in

_LEAST_SECONDS, _LEAST_SHARE = 1.0, 0.2
"""A run that saves less of a full scan is worth no warning."""


def check_health(arguments: str, table: Table) -> Iterator[Finding]:
    """One finding for each branch that a sink writes; `arguments` are those of a command for the table."""
    for branch, seen in seen_in(table, sinks(table), arguments):
        if isinstance(seen, str):
            yield Finding(Part.TABLE, "health", Standing.SKIPPED, f"{branch}: {seen}")
            continue
        is_worth_it = seen.saved_seconds >= max(_LEAST_SECONDS, _LEAST_SHARE * seen.plan.health.scan_seconds)
        standing = Standing.WARNING if is_worth_it else Standing.OK
        found = f"{branch}: {health_in_words(seen.plan.health)}"
        yield Finding(Part.TABLE, "health", standing, found, seen.offer, seen.document)
