"""The condition of a policy on partitions, by the present names of columns."""

from collections.abc import Callable
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

from lakesink_catalog.manifests.live import LiveFile
from lakesink_catalog.manifests.partitions import schema_for
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import describe


def partitions_where(table: Table, where: str) -> Callable[[LiveFile], bool]:
    """True for files of partitions that can have rows of this condition; files of specs without its columns have none.

    Raises:
        SettingsError: It is no condition on columns of the present partition spec.
    """
    if not where:
        return lambda _: True
    schema, present = table.schema(), {part.source_id for part in table.spec().fields}
    names = ", ".join(sorted(filter(None, map(schema.find_column_name, present))))
    try:
        condition = parse(where)
        used = extract_field_ids(bind(schema, condition, case_sensitive=True))
    except (ParseException, ValueError, TypeError) as error:
        raise SettingsError.of("OPTION_INVALID.where", why=describe(error), columns=names) from None
    if not used or not used <= present:
        raise SettingsError.of("OPTION_INVALID.where", why="it is not about partition columns only", columns=names)

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
