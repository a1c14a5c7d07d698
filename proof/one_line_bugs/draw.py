"""Draws one-line bugs from sources. Pure: the same sources and the same seed give the same bugs.

A bug puts one other node into a place of the syntax tree, so that the changed source always compiles. Its id has the
file, the function and a digest of the change, and no line number: it stays valid when other lines change.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import zip_longest
from os.path import commonprefix
from pathlib import PurePath
from typing import Any

from proof.one_line_bugs.replace import Place, in_replacements

ROOMS = (
    "protocol/lakesink_protocol",
    "catalog/lakesink_catalog/commit",
    "catalog/lakesink_catalog/manifests",
    "lakesink/keys",
    "lakesink/sinks/iceberg",
    "lakesink/parquet",
)
OF_WORDS = frozenset(
    {
        "batch_warnings.py",
        "catalogue.py",
        "documentation.py",
        "errors.py",
        "events",
        "refusal_words.py",
        "refusals.py",
        "schema_advice.py",
        "suggest.py",
    }
)
"""Modules and folders of messages: a bug in them is a wrong word."""

NOT_RUN_OR_WORDS = ("annotation", "returns", "decorator_list", "bases", "keywords", "type_params", "exc", "cause")
"""Fields of nodes without bugs. `exc` is the error of a `raise`."""

FUNCTIONS_OF_WORDS = ("__repr__", "__str__")
CALLS_OF_WORDS = ("emit", "assert_never", "cast")
STATEMENTS = (ast.stmt, ast.match_case, ast.ExceptHandler, ast.Lambda)
"""Nodes that a bug is shown in. Rules of the verdict are lambdas."""

SHOWN = 60
"""Characters on both sides of a change that show where it is."""

NOT_IMPLEMENTED = ("abstractmethod", "overload")


@dataclass(frozen=True, slots=True)
class Bug:
    """One bug.

    Attributes:
        file: The file, from the root of the repository.
        function: The function, with its classes; empty at the level of the module.
        kind: The kind of the change, see `proof.one_line_bugs.replace`.
        before: The changed part of the statement, or of the head of a compound statement, on one line.
        after: The same with the bug.
        same: How many equal changes of this function come before it.
        lines: First and last line of the statement or the head.
        at_import: Whether it runs when the module is imported, and only then.
    """

    file: str
    function: str
    kind: str
    before: str
    after: str
    same: int
    lines: tuple[int, int]
    at_import: bool

    @property
    def id(self) -> str:
        """The name of the bug, which stays the same when other lines change."""
        digest = hashlib.sha256(f"{self.before}\n{self.after}".encode()).hexdigest()[:8]
        which = f"#{self.same + 1}" if self.same else ""
        return f"{self.file} {self.function or '<module>'} {self.kind} {digest}{which}"

    @property
    def room(self) -> str:
        """The folder of the file."""
        return str(PurePath(self.file).parent)

    @property
    def diff(self) -> str:
        """Both forms of the statement."""
        return f"{self.file}:{self.lines[0]} in {self.function or '<module>'}\n- {self.before}\n+ {self.after}"


def bugs_in(sources: Mapping[str, str]) -> list[Bug]:
    """All bugs of these sources by their paths, in their order."""
    return [
        bug
        for file, source in sources.items()
        if OF_WORDS.isdisjoint(PurePath(file).parts)
        for bug, _, _ in _found(file, ast.parse(source))
    ]


def draw(bugs: Iterable[Bug], seed: str, count: int) -> list[Bug]:
    """So many of the bugs, of all rooms in turn."""
    rooms: dict[str, list[Bug]] = {}
    for bug in sorted(bugs, key=lambda bug: hashlib.sha256(f"{seed}\n{bug.id}".encode()).digest()):
        rooms.setdefault(bug.room, []).append(bug)
    turns = zip_longest(*(rooms[room] for room in sorted(rooms)))
    return [bug for turn in turns for bug in turn if bug is not None][:count]


def changed(bug: Bug, source: str) -> ast.Module:
    """The source with the bug. Raises `LookupError` if the source has no such bug."""
    tree = ast.parse(source)
    for found, place, node in _found(bug.file, tree):
        if found.id == bug.id:
            place.put(ast.copy_location(node, place.node))
            return ast.fix_missing_locations(tree)
    raise LookupError(bug.id)


def _found(file: str, tree: ast.Module) -> Iterator[tuple[Bug, Place, ast.AST]]:
    seen: Counter[tuple[str, ...]] = Counter()
    heads: dict[ast.AST, str] = {}
    for place, function, statement, at_import in _places(tree, "", tree, at_import=True):
        for kind, node in in_replacements(place, at_module=not function):
            if statement not in heads:
                heads[statement] = _head(statement)
            before = heads[statement]
            place.put(node)
            after = _head(node if statement is place.node else statement)
            place.put(place.node)
            shown = _near(before, after)
            key = function, kind, *shown
            yield Bug(file, function, kind, *shown, seen[key], _lines(statement), at_import), place, node
            seen[key] += 1


def _places(
    node: ast.AST, function: str, statement: ast.AST, *, at_import: bool
) -> Iterator[tuple[Place, str, ast.AST, bool]]:
    """Every place for a bug below the node, with its function, its statement, and whether only an import runs it."""
    for place in _children(node):
        child = place.node
        if place.field in NOT_RUN_OR_WORDS or _has_no_bugs(child):
            continue
        inner = function
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{function}.{child.name}".lstrip(".")
        own = child if isinstance(child, STATEMENTS) else statement
        imported = at_import and not (isinstance(node, ast.FunctionDef | ast.Lambda) and place.field == "body")
        yield place, inner, own, imported
        yield from _places(child, inner, own, at_import=imported)


def _children(node: ast.AST) -> Iterator[Place]:
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield Place(node, field, None, value)
        elif isinstance(value, list):
            for index, one in enumerate(value):
                if isinstance(one, ast.AST):
                    yield Place(node, field, index, one)


def _has_no_bugs(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.Expr(ast.Constant()) | ast.keyword(arg="strict"):
            return True
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return True
        case ast.Expr(value) if isinstance(value, ast.Call):
            return _has_no_bugs(value)
        case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)):
            return name in CALLS_OF_WORDS
        case ast.FunctionDef(name=name, decorator_list=decorators):
            return name in FUNCTIONS_OF_WORDS or any(ast.unparse(one) in NOT_IMPLEMENTED for one in decorators)
    return False


def _head(statement: ast.AST) -> str:
    """The statement without its block, on one line."""
    head: Any = copy(statement)
    for block in ("body", "orelse", "finalbody", "handlers", "cases", "decorator_list"):
        if isinstance(getattr(head, block, None), list):
            setattr(head, block, [ast.Pass()] if block == "body" else [])
    if isinstance(head, ast.Try):
        return "try:"
    return " ".join(line.strip() for line in ast.unparse(head).splitlines()).removesuffix(" pass").strip()


def _near(before: str, after: str) -> tuple[str, str]:
    """Both without what is far from the change."""
    start = _same(before, after)
    end = _same(before[start:][::-1], after[start:][::-1])
    first, last = max(0, start - SHOWN), max(0, end - SHOWN)
    marks = "…" if first else "", "…" if last else ""
    was, now = (f"{marks[0]}{text[first : len(text) - last]}{marks[1]}" for text in (before, after))
    return was, now


def _same(one: str, other: str) -> int:
    return len(commonprefix((one, other)))  # noqa: RUF071 - of characters


def _lines(statement: Any) -> tuple[int, int]:
    """First and last line of the head."""
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if isinstance(statement, ast.match_case):
        return statement.pattern.lineno, (statement.guard or statement.pattern).end_lineno or statement.pattern.lineno
    if isinstance(body, list) and hasattr(statement, "lineno"):
        first = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
        return statement.lineno, max(statement.lineno, first.lineno - 1)
    return statement.lineno, statement.end_lineno
