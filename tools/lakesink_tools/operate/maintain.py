"""Maintains a table by its name, and says how healthy it is, what a run would save, and by which command."""

import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakesink.settings.table_settings import Effective
from lakesink.sinks.iceberg.upkeep.health import Health
from lakesink.sinks.iceberg.upkeep.maintenance import Maintenance
from lakesink.sinks.iceberg.upkeep.policy import Manager, Policy, Verify, manager_of
from lakesink.sinks.iceberg.upkeep.reports import Plan, Report
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.read.history import SinkState
from lakesink_catalog.tables.tables import load_table
from lakesink_catalog.words import counted, number, size
from lakesink_protocol.catalogue import DataState
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.redact import describe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run would do to one branch.

    Attributes:
        command: That does it.
        manager: The service that maintains the table instead, if a property says so.
    """

    command: str
    manager: Manager | None
    plan: Plan

    @property
    def health(self) -> str:
        """``120 of 140 files small, 12% of 5,000 rows deleted, 34 manifests, 1.2 MiB of metadata``."""
        found = self.plan.health
        return (
            f"{number(found.small_files)} of {counted(found.files, 'file')} small, {found.deleted_share:.0%} of"
            f" {counted(found.rows, 'row')} deleted, {counted(found.manifests, 'manifest')},"
            f" {size(found.metadata_bytes)} of metadata"
        )

    @property
    def saved_seconds(self) -> float:
        """Of a full scan; 0 if lakesink leaves the table alone."""
        return 0.0 if self.manager else self.plan.health.scan_seconds - self.plan.expected.scan_seconds

    @property
    def offer(self) -> str:
        """What a run would save, and the command; empty if nothing is due."""
        if self.manager is not None:
            return f"{self.manager.name} maintains this table ({self.manager.said_by}): lakesink leaves it alone."
        if not self.plan.groups:
            return ""
        return f"{self.command} would save {saving_in_words(self.plan.health, self.plan.expected)}."

    @property
    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "managed_by": None if self.manager is None else self.manager.name,
            "groups": len(self.plan.groups),
            "now": figures(self.plan.health),
            "expected": figures(self.plan.expected),
        }


def maintenance_of(catalog: Catalog, table: str, branch: str, policy: Policy) -> Maintenance:
    """The maintenance of a table by its name; the policy's size of new files overrides the table's property."""
    given = {"write.target-file-size-bytes": policy.target_file_size}
    load = partial(load_table, catalog, table)
    return Maintenance(load, branch, policy, effective_of=partial(Effective.of, given))


def maintain_table(  # noqa: PLR0913 - the options of the command
    table: str,
    *,
    catalog: str | None = None,
    catalog_properties: Mapping[str, Any] | None = None,
    branch: str = MAIN_BRANCH,
    budget: timedelta | None = None,
    target_file_size: int | None = None,
    min_input_files: int = 5,
    where: str = "",
    verify: str = "digest",
    spark: "SparkSession | None" = None,
) -> Report | None:
    """Compact a table's small files, and leave out its deleted rows; ``lakesink maintain`` as a function.

    Where there is a session, its executors rewrite files from 64 MiB on, several groups at the same time.

    Args:
        table: Table identifier, ``namespace.table``.
        catalog: Name of a PyIceberg catalog; None for the configured default, else the embedded one.
        catalog_properties: Added to the configured properties; they take precedence.
        branch: Branch whose files are compacted.
        budget: End after about this time.
        target_file_size: Bytes of a new file; None for the table's ``write.target-file-size-bytes``.
        min_input_files: Fewer small files of a partition stay.
        where: Only partitions that match, ``region = 'us'``.
        verify: ``digest`` or ``rows``: compare rows by CRC-32, or by SHA-256.
        spark: Its executors rewrite; None for the active session, if there is one. Not used with a budget.

    Returns:
        What was done and left; None if a property says that another service maintains the table.

    Raises:
        SettingsError: The identifier, or `where`, is malformed.
        CatalogError: The catalog is unusable, or has no such table or branch.
    """
    policy = Policy(target_file_size, min_input_files, where, budget, verify=Verify(verify))
    maintenance = maintenance_of(connect(catalog, catalog_properties, create=False), table, branch, policy)
    if spark is not None or "pyspark.sql" in sys.modules:  # only such a process can have a session
        from lakesink.spark.rows.job import Executors  # noqa: PLC0415 - the command line needs no PySpark

        maintenance.run_in_executors = Executors.of(spark)
    return None if seen_by(maintenance, table).manager else maintenance.run()


def seen_by(maintenance: Maintenance, arguments: str) -> Seen:
    """What a run would do; `arguments` are those of a command for this table."""
    table, branch = maintenance.load(), maintenance.branch
    of_branch = "" if branch == MAIN_BRANCH else f" --branch {shlex.quote(branch)}"
    manager = manager_of(table.catalog.properties, table.metadata.properties)
    try:
        plan = maintenance.look()
    except SettingsError as error:  # no batch is behind it
        raise error.reworded(data=DataState.UNCHANGED) from None
    return Seen(f"lakesink maintain {arguments}{of_branch}", manager, plan)


def seen_in(table: Table, states: Iterable[SinkState], arguments: str) -> Iterator[tuple[str, Seen | str]]:
    """What a run would do to the branches that these sinks write, else to main; or why that is unknown."""
    for branch in sorted({state.branch for state in states} or {MAIN_BRANCH}):
        if branch in table.metadata.refs:
            try:
                yield branch, seen_by(Maintenance(lambda: table, branch), arguments)
            except (CatalogError, SettingsError) as error:
                yield branch, error.what
            except OSError as error:
                yield branch, describe(error, table.io.properties)


def saving_in_words(before: Health, after: Health) -> str:
    """``119 files, 0.2 MiB, and about 3.1 s of 4.2 s of a full scan``."""
    fewer = before.bytes - after.bytes
    less = f", {size(fewer)}," if fewer > 0 else ""
    saved, whole = seconds(before.scan_seconds - after.scan_seconds), seconds(before.scan_seconds)
    return f"{counted(before.files - after.files, 'file')}{less} and about {saved} of {whole} of a full scan"


def figures(found: Health) -> dict[str, Any]:
    """The health for JSON."""
    share, scan = round(found.deleted_share, 4), round(found.scan_seconds, 3)
    return {**asdict(found), "deleted_share": share, "scan_seconds": scan}


def seconds(value: float) -> str:
    """``0.02 s``, ``4.2 s``, ``1,234 s``."""
    return f"{value:,.{2 if value < 1 else 1 if value < 100 else 0}f} s"
