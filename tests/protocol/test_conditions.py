"""No condition of the verdict is without a case: each is changed in turn, and some case must get another verdict.

A condition is an operand of ``and`` and ``or``, a comparison, a ``not``, the filter of a comprehension or a number.
"""

import ast
import inspect
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

from lakesink_protocol import situation, verdict
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import STREAM_RULES, TRANSACTION_RULES, decide
from tests.protocol.verdict_cases import EVERY, Case

ONLY_FOR_MESSAGES = {"rollback_is_proven", "forgotten", "later_landed", "marked_with_other_data"}
NARROWED = "for the type checker: what is tested was tested before"
DECIDED = "an earlier rule has decided it"
EQUIVALENT = {
    "_other_query: without s.entry is not None": NARROWED,
    "_retained_marks: without one is not None": NARROWED,
    "_taken_over: without end is not None": "both callers give an end, and no start equals None",
    **{f"_ahead: {number} for 1 in -1": "no rule asks how far ahead of no entry a batch is" for number in (0, 2)},
    "_snapshot_of_batch: without entry": NARROWED,
    "_snapshot_of_batch: without entry.batch_id == situation.batch.batch_id": "only rule 14 skips a batch without mark",
    **{f"stream rule {number}: without s.entry is not None": NARROWED for number in (12, 14, 16)},
    "stream rule 18: 1 for 0 in _ahead(s) < 0": DECIDED,
    "stream rule 19: 1 for 0 in _ahead(s) < 0": DECIDED,
    "stream rule 20: 0 for 1 in _ahead(s) > 1": DECIDED,
    "transaction rule 5: without s.entry is None": "every version is ahead of no entry",
    "transaction rule 9: without s.rolled_back": "a complete ancestry without the entry's snapshot was rolled back",
    "transaction rule 9: without _ahead(s) <= 0": "a version that was undone, the entry's, is then below",
    "transaction rule 9: 1 for 0 in _ahead(s) <= 0": "a version that was undone, the entry's, is then below",
    "transaction rule 16: -1 for 0 in _ahead(s) > 0": DECIDED,
    "transaction rule 19: 1 for 0 in _ahead(s) < 0": DECIDED,
    "rolled_back: without self.entry is None": "no rule asks it without an entry",
    "undone: 2 for 1 in -1": "no batch is below 0",
    "shows_the_batch_before: without snapshot.snapshot_id in self._ancestry_ids": "with such a mark, rule 4 decides",
    "shows_the_batch_before: LtE in mark.ledger_batch_id == mark.batch_id < self.batch.batch_id": DECIDED,
    **{f"unread_version: {number} for 1 in -1": "the first sequence number is 1" for number in (0, 2)},
    "unread_version: 0 for 1 in above + 1": "an entry whose own mark is unread is contradicted: the same rule 3",
    "starts_at: without self.batch.start is not None": "no end equals None",
    "_is_of_stream: without mark.key.kind is SinkKind.STREAM": "an application's mark names no query",
}
NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    one: other
    for pair in ((ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn), (ast.Lt, ast.GtE), (ast.Gt, ast.LtE))
    for one, other in (pair, pair[::-1])
}
MOVED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}

Function = ast.FunctionDef | ast.Lambda
Change = tuple[str, ast.AST, dict[str, Any]]


def test_some_case_needs_every_condition_of_the_verdict() -> None:
    without_effect, cases = set[str](), [*EVERY.values()]
    for name, function, node in _functions():
        right = function.__code__
        for what, place, fields in _changes(node, node):
            before = {field: getattr(place, field) for field in fields}
            try:
                vars(place).update(fields)
                function.__code__ = _compiled(node, function.__name__)
                seen = next((at for at, case in enumerate(cases) if not _is_as_written(case)), None)
            finally:
                vars(place).update(before)
                function.__code__ = right
            if seen is None:
                without_effect.add(f"{name}: {what}")
            else:
                cases.insert(0, cases.pop(seen))  # it is likely to see the next mistake too
    assert without_effect == EQUIVALENT.keys()


def _functions() -> Iterator[tuple[str, FunctionType, Function]]:
    """Every function that the verdict depends on, with its name and its syntax."""
    rules = {"stream": STREAM_RULES, "transaction": TRANSACTION_RULES}
    named: list[tuple[str, Any]] = [
        *((f"{kind} rule {rule.number}", rule.applies) for kind, table in rules.items() for rule in table),
        *((name, getattr(one, "func", getattr(one, "fget", one))) for name, one in vars(Situation).items()),
        *vars(verdict).items(),
        *vars(situation).items(),
    ]
    for module in (verdict, situation):
        tree = ast.parse(inspect.getsource(module))
        nodes = [node for node in ast.walk(tree) if isinstance(node, Function)]
        at_line = {min(part.lineno for part in (node, *getattr(node, "decorator_list", ()))): node for node in nodes}
        found = {
            one.__code__.co_firstlineno: (name, one)
            for name, one in named
            if isinstance(one, FunctionType) and one.__module__ == module.__name__ and name not in ONLY_FOR_MESSAGES
        }
        yield from ((*one, at_line[line]) for line, one in found.items())


def _changes(node: ast.AST, above: ast.AST) -> Iterator[Change]:
    """Small mistakes in the conditions under this node: what, where, and the changed fields."""
    match node:
        case ast.BoolOp(op=ast.Or(), values=[*conditions, ast.Constant() | ast.Dict()]):
            children: Iterable[ast.AST] = conditions  # the last one is a default
        case _:
            children = ast.iter_child_nodes(node)
            yield from ((f"without {ast.unparse(what)}", node, fields) for what, fields in _left_out(node))
            yield from ((what, node, fields) for what, fields in _turned(node, above))
    for child in children:
        yield from _changes(child, node)


def _left_out(node: ast.AST) -> Iterator[tuple[ast.AST, dict[str, Any]]]:
    match node:
        case ast.BoolOp(values=values):
            yield from ((value, {"values": _put(values, at, values[at - 1])}) for at, value in enumerate(values))
        case ast.comprehension(ifs=values):
            yield from ((value, {"ifs": _put(values, at)}) for at, value in enumerate(values))
        case ast.Compare(left=ast.Tuple(elts=left), comparators=[ast.Tuple(elts=right)]):
            for at, value in enumerate(left):
                sides = [ast.Tuple(_put(side, at), ast.Load()) for side in (left, right)]
                yield value, {"left": sides[0], "comparators": sides[1:]}


def _turned(node: ast.AST, above: ast.AST) -> Iterator[tuple[str, dict[str, Any]]]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            tables = [NEGATED] if any(isinstance(side, ast.Constant) for side in (left, *others)) else [NEGATED, MOVED]
            for at, op in enumerate(ops):
                for other in (table[type(op)] for table in tables if type(op) in table):
                    yield f"{other.__name__} in {ast.unparse(node)}", {"ops": _put(ops, at, other())}
        case ast.UnaryOp(op=ast.Not(), operand=tested):
            yield f"not {ast.unparse(node)}", {"operand": ast.UnaryOp(ast.Not(), tested)}
        case ast.If(test=tested) | ast.IfExp(test=tested) if isinstance(tested, ast.Call | ast.Attribute):
            yield f"not {ast.unparse(tested)}", {"test": ast.UnaryOp(ast.Not(), tested)}
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            for number in (value - 1, value + 1):
                yield f"{number} for {value} in {ast.unparse(above)}", {"value": number}


def _put(values: Sequence[Any], at: int, *new: Any) -> list[Any]:
    return [*values[:at], *new, *values[at + 1 :]]


def _compiled(node: Function, name: str) -> CodeType:
    tree = ast.Module([ast.Expr(node) if isinstance(node, ast.Lambda) else node], [])
    made = compile(ast.fix_missing_locations(tree), "<changed>", "exec")
    return next(part for part in made.co_consts if isinstance(part, CodeType) and part.co_name == name)


def _is_as_written(case: Case) -> bool:
    try:
        return decide(case.situation, case.accept) == case.verdict
    except Exception:  # noqa: BLE001 - no verdict at all
        return False
