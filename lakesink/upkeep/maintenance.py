"""Maintains one branch of one table: looks at its files, rewrites groups of them, and commits each group by itself."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg.table import Table
from pyroaring import BitMap64

from lakesink.keys.data_file import constants_of
from lakesink.keys.deleted_rows import KnownDeletes
from lakesink.parquet.filesystem import NewFiles, shareable_properties
from lakesink.parquet.locations import partition_path
from lakesink.parquet.partitions import partition_sources
from lakesink.rows.plan import PartitionField, WritePlan
from lakesink.rows.schema import parse_schema
from lakesink.settings.table_settings import Effective, metrics_modes
from lakesink.upkeep.choose import Choice, Chooser, Group, Pace, sizes
from lakesink.upkeep.columns import Unsuitable
from lakesink.upkeep.health import Health, health_of
from lakesink.upkeep.policy import Policy
from lakesink.upkeep.replacing import LOST, Replacement, deleted_in, opener
from lakesink.upkeep.reports import BUDGET, NOTHING_DUE, REST, TURN, GroupDone, GroupDue, LeftFile, Plan, Report
from lakesink.upkeep.rewrite import InputFile, Work, rewrite
from lakesink.upkeep.where import partitions_where
from lakesink_catalog.commit.effects import Effects
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_catalog.manifests.live_reading import LiveMemory, live_files
from lakesink_catalog.manifests.partitions import schema_for
from lakesink_catalog.tables.locations import data_location
from lakesink_protocol import events
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.ledger import COMPACTED, MAINTENANCE
from lakesink_protocol.redact import describe
from lakesink_protocol.verdict import SUPPORTED_FORMAT_VERSION

FILE_STEM = "maintenance"
"""Start of the names of new files."""
ROUNDS = 4
"""Of one run: files of older specs become small ones of the present spec, which then become larger."""
FAILED = "failed"
_MAPPING = "schema.name-mapping.default"
_LARGEST = 1.25
"""No file is larger, by the target size."""


@dataclass(slots=True)
class UpkeepMemory:
    """What maintenances of one branch remember from run to run.

    Attributes:
        live: Decoded manifests; a stream shares those of its sink.
        deletes: Delete files that were read; likewise.
        left: Reasons of files that are not tried again while the table's columns stay, by path.
        columns: The schema and spec that these reasons are about.
    """

    live: LiveMemory = field(default_factory=LiveMemory)
    deletes: KnownDeletes = field(default_factory=KnownDeletes)
    left: dict[str, str] = field(default_factory=dict)
    columns: tuple[Any, ...] = ()
    pace: Pace = field(default_factory=Pace)


@dataclass(slots=True)
class Maintenance:
    """The maintenance of one branch of one table.

    Attributes:
        says: What the summary of each snapshot says beside its counts.
        batch_id: The batch after which a stream maintains its table, for failpoints.
    """

    load: Callable[[], Table]
    branch: str = MAIN_BRANCH
    policy: Policy = field(default_factory=Policy)
    effects: Effects = field(default_factory=Effects)
    memory: UpkeepMemory = field(default_factory=UpkeepMemory)
    says: Mapping[str, str] = field(default_factory=dict)
    batch_id: int = -1

    def look(self) -> Plan:
        """What a run would do; writes nothing.

        Raises:
            CatalogError: The table cannot be loaded, or a manifest cannot be read.
            SettingsError: `where` is no condition on partitions, or a table property is malformed.
        """
        seen = self._see()
        choice, health, expected = seen.choose({}), seen.health, seen.health
        groups = []
        for group in choice.groups:
            groups.append(GroupDue(seen.partition(group), len(group.files), group.bytes, group.rows))
            expected = _after(expected, group, seen.target_bytes)
        return Plan(tuple(groups), _listed(choice.left), health, expected)

    def run(self, progress: Callable[[GroupDone], None] = lambda _: None) -> Report:
        """Rewrite what is due, group by group, until the budget ends.

        A group that fails or loses a race is left, and the others go on. Raises as `look` does, before any change.
        """
        if not self.memory.pace.is_due():
            return Report(Health(), Health(), (), (), REST)
        run = _Run(self, self._see(), progress)
        before = run.seen.health
        ended = run.all_groups()
        if run.done:
            run.seen = self._see()
        if run.done or run.left:
            self.memory.pace.note(done=bool(run.done))
        left = {**run.seen.choose({}).left, **run.left}
        return Report(before, run.seen.health, tuple(run.done), _listed(left), ended)

    def _see(self) -> "Seen":
        table = self.load()
        if table.metadata.format_version != SUPPORTED_FORMAT_VERSION:
            name, version = ".".join(table.name()), table.metadata.format_version
            raise CatalogError.of("UNSUPPORTED", table=name, format_version=version)
        seen = Seen(self, table, self.head_files(table))
        columns = (table.schema().schema_id, table.spec().spec_id, table.properties.get(_MAPPING))
        paths = {file.path for file in seen.live.data} if columns == self.memory.columns else set()
        self.memory.columns = columns
        self.memory.left = {path: why for path, why in self.memory.left.items() if path in paths}
        return seen

    def head_files(self, table: Table) -> LiveFiles:
        """The live files of the branch's head."""
        head = table.metadata.refs.get(self.branch)
        at_once, snapshot_id = self.effects.at_once, None if head is None else head.snapshot_id
        return live_files(table, snapshot_id, self.memory.live, at_once=at_once, equality=True)


def _listed(left: Mapping[str, str]) -> tuple[LeftFile, ...]:
    return tuple(LeftFile(path, why) for path, why in left.items())


def _after(health: Health, group: Group, target_bytes: int) -> Health:
    """The health after a group was rewritten, about."""
    new = sizes(group.live_bytes, target_bytes)
    small = lambda size: size < SMALL * target_bytes
    return replace(
        health,
        files=health.files - len(group.files) + len(new),
        small_files=health.small_files - sum(small(one.file_size_bytes) for one in group.files) + sum(map(small, new)),
        bytes=health.bytes - group.bytes + int(group.live_bytes),
        rows=health.rows - int(group.deleted),
        deleted_rows=max(0, health.deleted_rows - int(group.deleted)),
        delete_files=max(0, health.delete_files - group.delete_files),
    )


@dataclass(slots=True)
class Seen:
    """A table and its live files, as they were loaded, and what follows from its settings."""

    maintenance: Maintenance
    table: Table
    live: LiveFiles

    @property
    def effective(self) -> Effective:
        """The table's settings."""
        return Effective.of({}, self.table.properties)

    @property
    def target_bytes(self) -> int:
        """The target size of data files."""
        return self.maintenance.policy.target_file_size or int(self.effective["write.target-file-size-bytes"])

    @property
    def health(self) -> Health:
        """In figures; asks the storage for the size of the metadata file."""
        metadata = len(self.table.io.new_input(self.table.metadata_location))
        return health_of(self.live, self.target_bytes, metadata)
