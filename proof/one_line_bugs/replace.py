"""The kinds of one-line bugs: which other nodes a place of the syntax tree can have. Pure.

Left out are changes that a type checker reports, and constants of tuning: only small whole numbers are changed.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Replacement = tuple[str, ast.AST]
LARGEST = 10
"""Larger numbers are sizes and limits in time: no test can, or should, see that they differ by one."""

OTHER_OPERATORS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OTHER_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
SIZES = (ast.Pow, ast.Mult, ast.LShift)
"""A number beside such an operator is a size."""

CONDITIONS = ("test", "ifs", "guard")


@dataclass(frozen=True, slots=True)
class Place:
    """A place of a syntax tree: a field of a node, or an item of the field's list, and what is there."""

    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST

    def put(self, node: ast.AST) -> None:
        """Put a node there."""
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def in_replacements(place: Place, *, at_module: bool) -> Iterator[Replacement]:
    """The nodes that can be there instead, each with its kind."""
    node, parent = place.node, place.parent
    if isinstance(node, ast.stmt):
        yield from _statements(node)
        return
    if isinstance(node, ast.expr) and not isinstance(node, ast.Constant | ast.UnaryOp):
        if place.field in CONDITIONS and not isinstance(node, ast.Compare):
            yield "negated", ast.UnaryOp(ast.Not(), node)
        if isinstance(parent, ast.Slice):
            yield "slice", ast.BinOp(node, ast.Add(), ast.Constant(1))
    is_size = isinstance(node, ast.Constant) and isinstance(parent, ast.BinOp) and isinstance(parent.op, SIZES)
    if not is_size:
        yield from _expressions(node, at_module=at_module)


def _statements(node: ast.stmt) -> Iterator[Replacement]:
    match node:
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Raise():
            yield "dropped", ast.Pass()
        case ast.Break():
            yield "loop", ast.Continue()
        case ast.Continue():
            yield "loop", ast.Break()


def _expressions(node: ast.AST, *, at_module: bool) -> Iterator[Replacement]:
    match node:
        case ast.Compare(left, operators, others):
            yield from _comparisons(left, operators, others)
        case ast.BoolOp(operator, values):
            yield "boolean", ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for left_out in range(len(values)):
                rest = values[:left_out] + values[left_out + 1 :]
                yield "operand", rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest)
        case ast.UnaryOp(ast.Not(), operand):
            yield "not", operand
        case ast.Constant(bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(int(value)) if not at_module and value <= LARGEST:
            yield "constant", ast.Constant(value + 1)
            yield "constant", ast.Constant(value - 1)
        case ast.BinOp(left, ast.BitOr() | ast.BitAnd() as operator, right) if not at_module and not _is_type(node):
            yield "sets", ast.BinOp(left, ast.BitAnd() if isinstance(operator, ast.BitOr) else ast.BitOr(), right)
            yield "operand", left
            yield "operand", right
        case ast.BinOp(left, ast.Sub(), _):
            yield "operand", left
        case ast.Call(ast.Name(name), arguments, keywords) if name in OTHER_FUNCTIONS:
            kept = [] if name == "sorted" else keywords
            yield "function", ast.Call(ast.Name(OTHER_FUNCTIONS[name], ast.Load()), arguments, kept)


def _comparisons(left: ast.expr, operators: list[ast.cmpop], others: list[ast.expr]) -> Iterator[Replacement]:
    for index, operator in enumerate(operators):
        for other in OTHER_OPERATORS[type(operator)]:
            yield "compare", ast.Compare(left, [*operators[:index], other(), *operators[index + 1 :]], others)


def _is_type(node: Any) -> bool:
    """Whether it is ``A | B`` of types."""
    match node:
        case ast.BinOp(left, ast.BitOr(), right):
            return _is_type(left) or _is_type(right)
        case ast.Name(name) | ast.Attribute(attr=name):
            return name[:1].isupper() and not name.isupper()
        case ast.Subscript(value=value):
            return _is_type(value)
        case ast.Constant(value):
            return value is None
    return False
