"""The predicates in DataFusion's words."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from datafusion import Expr, col, functions, lit
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import IcebergType

from tests.readers.predicates import COMPARISONS, Predicate

CHECKS: Mapping[str, Callable[[Expr], Any]] = {
    "is null": lambda column: column.is_null(),
    "is not null": lambda column: column.is_not_null(),
    "is nan": functions.isnan,
    "is not nan": lambda column: ~functions.isnan(column),
}
PLAIN = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def expression(predicate: Predicate, kind: IcebergType) -> Any:
    """The condition over the column that `predicate` names."""
    column = col('"' + predicate.path[0].replace('"', '""') + '"')
    for name in predicate.path[1:]:
        column = column[name]
    operand = predicate.operand
    if predicate.operator in CHECKS:
        return CHECKS[predicate.operator](column)
    if predicate.operator in COMPARISONS:
        return COMPARISONS[predicate.operator][1](column, literal(operand, kind))
    if predicate.operator == "in":
        return functions.in_list(column, [literal(value, kind) for value in operand])
    return functions.starts_with(column, literal(operand, kind))


def literal(value: Any, kind: IcebergType) -> Expr:
    arrow = schema_to_pyarrow(kind, include_field_ids=False)
    if arrow == pa.uuid():
        return lit(pa.scalar(uuid.UUID(value).bytes, pa.binary(16)))
    return lit(pa.scalar(value, PLAIN.get(arrow, arrow)))
