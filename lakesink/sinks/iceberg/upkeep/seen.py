"""A table as it was loaded, its live files, and what a policy makes of them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind, expression_evaluator, extract_field_ids, inclusive_projection
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType
from pyparsing import ParseException
from pyroaring import BitMap64

from lakesink.keys.data_file import constants_of
from lakesink.keys.deleted_rows import KnownDeletes
from lakesink.parquet.files import FULL
from lakesink.parquet.filesystem import shareable_properties
from lakesink.parquet.locations import partition_path
from lakesink.parquet.partitions import partition_sources
from lakesink.parquet.positions import below
from lakesink.rows.plan import WritePlan
from lakesink.rows.schema import parse_schema
from lakesink.settings.parse import LEAST_TARGET
from lakesink.settings.table_settings import Effective, partition_fields
from lakesink.sinks.iceberg.table_layout import with_order
from lakesink.sinks.iceberg.upkeep.choose import Group, Limits, choose, sizes
from lakesink.sinks.iceberg.upkeep.health import Health, health_of
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink.sinks.iceberg.upkeep.replacing import deleted_in
from lakesink.sinks.iceberg.upkeep.rewrite import InputFile, Work
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_catalog.manifests.partitions import schema_for
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.redact import describe

FILE_STEM = "maintenance"
"""Start of the names of new files."""
_MAPPING = "schema.name-mapping.default"


@dataclass(frozen=True)
class Seen:
    """A table and its live files.

    Attributes:
        effective: The settings in force.
        most_bytes: Of one group; None for a run without a budget.
        is_spread: True if groups are rewritten at the same time, each in an executor.
    """

    table: Table
    live: LiveFiles
    plan: WritePlan
    policy: Policy
    effective: Effective
    most_bytes: int | None = None
    is_spread: bool = False

    @property
    def columns(self) -> tuple[object, ...]:
        """What decides whether a file can be rewritten: equal if schema, spec and name mapping are."""
        return self.table.schema().schema_id, self.table.spec().spec_id, self.table.properties.get(_MAPPING)

    @cached_property
    def target_bytes(self) -> int:
        """The target size of data files."""
        return max(LEAST_TARGET, self.policy.target_file_size or int(self.effective["write.target-file-size-bytes"]))

    def health(self) -> Health:
        """In figures; asks the storage for the size of the metadata file."""
        return health_of(self.live, self.target_bytes, len(self.table.io.new_input(self.table.metadata_location)))

    def choose(self, left: Mapping[str, str]) -> tuple[list[Group], dict[str, str]]:
        """The groups that are due; `left` has reasons of files that are known to be unsuitable."""
        may, spec_id = partitions_where(self.table, self.policy.where), self.table.spec().spec_id
        live = replace(self.live, data=tuple(filter(may, self.live.data)))  # it holds for whole partitions
        limits = Limits(self.target_bytes, self.policy.min_input_files, self.most_bytes, is_spread=self.is_spread)
        return choose(live, spec_id, limits, left)

    def partition(self, file: LiveFile) -> str:
        """The partition of a file as text."""
        spec = self.table.specs()[file.spec_id]
        schema = schema_for(spec, self.table.metadata)
        if schema is None or not file.partition:
            return ""
        return partition_path(
            partition_sources(parse_schema(schema.model_dump_json()), partition_fields(spec)), file.partition
        )

    def work(self, group: Group, known: KnownDeletes) -> Work:
        """The rewrite of a group; raises WriteError for an unreadable delete file."""
        deleted = deleted_in(self.table, group.files, self.live, known).positions
        first, files, none = group.files[0], [], BitMap64()
        fields = self.table.specs()[first.spec_id].fields
        for file in group.files:
            constants = dict(constants_of(file.partition, fields, {one.source_id for one in fields}))
            gone = below(deleted.get(file.path, none), file.record_count)
            files.append(InputFile(file.path, file.file_size_bytes, file.record_count, constants, gone))
        exact = Group(group.files, sum(len(file.deleted) for file in files))
        is_present = first.spec_id == self.plan.spec_id
        size = sizes(exact.live_bytes, self.target_bytes)[0] if is_present else self.target_bytes
        return Work(
            tuple(files),
            replace(self.plan, target_file_size_bytes=max(1, int(size / FULL))),
            first.partition if is_present else None,
            tuple(json.loads(self.table.properties.get(_MAPPING) or "[]")),
            self.policy.verify,
        )


def plan_of(table: Table, effective: Effective, batch_id: int) -> WritePlan:
    """How new files are written; raises CatalogError if a partition field belongs to a dropped column."""
    for part in table.spec().fields:
        if table.schema().find_column_name(part.source_id) is None:
            name = ".".join(table.name())
            raise CatalogError.of("UNSUPPORTED.dropped_source", shown=part.name, field=part.name, table=name)
    return with_order(effective.plan(table, FILE_STEM, batch_id, shareable_properties(table.io.properties)), table)


def partitions_where(table: Table, where: str) -> Callable[[LiveFile], bool]:
    """True for files of partitions that can have rows of this condition; a SettingsError if it has other columns."""
    if not where:
        return lambda _: True
    schema, present = table.schema(), {part.source_id for part in table.spec().fields}
    names = ", ".join(sorted(filter(None, map(schema.find_column_name, present)))) or "none"
    why = "it is not about partition columns only"
    try:
        condition = parse(where)
        used = extract_field_ids(bind(schema, condition, case_sensitive=True))
    except (ParseException, ValueError, TypeError) as error:
        why, used = describe(error), set()
    if not used or not used <= present:
        raise SettingsError.of("OPTION_INVALID.where", why=why, columns=names)

    def of_spec(spec: PartitionSpec) -> Callable[[LiveFile], bool]:
        of_schema = schema_for(spec, table.metadata)
        if of_schema is None or not used <= {part.source_id for part in spec.fields}:
            return lambda _: False
        fields = spec.partition_type(of_schema).fields
        projected = inclusive_projection(schema, spec)(condition)
        holds = expression_evaluator(Schema(*fields), projected, case_sensitive=True)
        kinds = [cast("PrimitiveType", field.field_type) for field in fields]

        def matches(file: LiveFile) -> bool:
            pairs = zip(kinds, file.partition, strict=True)
            return holds(Record(*(None if value is None else from_bytes(kind, value) for kind, value in pairs)))

        return matches

    specs = {spec_id: of_spec(spec) for spec_id, spec in table.specs().items()}
    return lambda file: specs[file.spec_id](file)
