"""Measures the code and holds its bounds: `make house`. `--list MEASURE` prints what stands behind a figure.

The bounds are in `house.toml`. They may only fall. Standard library only, and each file is parsed once.
"""

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).parents[1]
BOUNDS = Path(__file__).with_suffix(".toml")
PACKAGES = {
    "lakesink": ".",
    "lakesink_catalog": "catalog",
    "lakesink_protocol": "protocol",
    "lakesink_tools": "tools",
    "pyspark_lakesink": ".",
}
"""The packages of the product, and the folders that they are in."""
TOOLS = "lakesink_tools"
"""The package that runs in no query."""
COUNTED = (
    *("dead_letters", "unknown_keys", "superseded", "malformed_rows"),
    *("rescued_rows", "tombstones", "unmet_rows"),
)
"""The counted facts of a batch whose files are counted."""
FOR_USERS = ("start", "use", "operate", "reference")
"""The groups of `docs` whose words are counted."""
MOST_LINES = 6
"""Of a function that might as well stand in its one caller."""
MOST_NAMESAKES = 2

Graph = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Module:
    """One parsed file. An `__init__` has the name of its package."""

    path: str
    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @property
    def is_init(self) -> bool:
        return self.path.endswith("/__init__.py")

    @property
    def room(self) -> str:
        """The first part of the name within the package; an `__init__` of a package is a room too."""
        return self.name.split(".")[1] if "." in self.name else "__init__"

    @property
    def functions(self) -> Iterator[ast.FunctionDef]:
        return (node for node in self.nodes if isinstance(node, ast.FunctionDef))

    def imported(self) -> Iterator[tuple[str, str]]:
        """Module and name of every import, in functions and for types alone too."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((one.name, "") for one in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((node.module or "", one.name) for one in node.names)

    def reads(self) -> Counter[str]:
        """How often each name or attribute is read."""
        names = (node for node in self.nodes if isinstance(node, ast.Name | ast.Attribute))
        read = (node for node in names if isinstance(node.ctx, ast.Load))
        return Counter(node.id if isinstance(node, ast.Name) else node.attr for node in read)

    def words(self) -> set[str]:
        """All words of identifiers and strings, but none of docstrings, comments and names of modules."""
        documents = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        fields = ("id", "attr", "arg", "name", "asname", "value")
        texts = (getattr(node, field, None) for node in self.nodes if id(node) not in documents for field in fields)
        return {word for text in texts if isinstance(text, str) for word in re.findall(r"\w+", text)}


@dataclass(frozen=True)
class House:
    """The files of the product below a root: modules by name, and the lines of each file."""

    root: Path
    modules: Mapping[str, Module]
    lines: Mapping[str, int]

    @classmethod
    def read(cls, root: Path) -> "House":
        modules, lines = {}, {}
        for package, folder in PACKAGES.items():
            home = root / folder
            for path in sorted((home / package).rglob("*.*")):
                if path.suffix in (".py", ".toml"):
                    text, shown = path.read_text(), path.relative_to(root).as_posix()
                    lines[shown] = len(text.splitlines())
                if path.suffix == ".py":
                    name = ".".join(path.relative_to(home).with_suffix("").parts).removesuffix(".__init__")
                    modules[name] = Module(shown, name, text)
        return cls(root, modules, lines)

    @cached_property
    def imports(self) -> Graph:
        """The modules of the product that each module imports."""
        return {name: frozenset(self._homes(module)) - {name} for name, module in self.modules.items()}

    @cached_property
    def arrows(self) -> Graph:
        """The rooms of `lakesink` that each of them imports."""
        inside = {name: module.room for name, module in self.modules.items() if name.split(".")[0] == "lakesink"}
        pairs = {(inside[name], inside[one]) for name in inside for one in self.imports[name] if one in inside}
        return graph_of((room, other) for room, other in pairs if room != other)

    def _homes(self, module: Module) -> Iterator[str]:
        for home, name in module.imported():
            if f"{home}.{name}" in self.modules:
                yield f"{home}.{name}"
            elif home in self.modules:
                yield home


Arrow = tuple[str, str]


def graph_of(arrows: Iterable[Arrow]) -> Graph:
    """What each end of an arrow points to."""
    found: dict[str, frozenset[str]] = {}
    for start, end in arrows:
        found[start] = found.get(start, frozenset()) | {end}
        found.setdefault(end, frozenset())
    return found


def arrows_of(graph: Graph) -> list[Arrow]:
    return sorted((start, end) for start, ends in graph.items() for end in ends)


def circles_of(graph: Graph) -> list[list[str]]:
    """The largest sets of nodes that all reach each other."""
    ahead = {node: reached(graph, node) for node in graph}
    circles = {frozenset(one for one in ahead[node] if node in ahead[one]) for node in graph if node in ahead[node]}
    return sorted(sorted(circle) for circle in circles)


def reached(graph: Graph, node: str) -> set[str]:
    """What a node points to, over any number of arrows."""
    found: set[str] = set()
    waiting = [node]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return found


def longest_chain(graph: Graph) -> list[str]:
    """The longest chain of arrows, without the fewest that close a circle: those that leave the shortest chain."""
    in_circles = [{*circle} for circle in circles_of(graph)]
    arrows = arrows_of(graph)
    closing = [arrow for arrow in arrows if any(circle.issuperset(arrow) for circle in in_circles)]
    for count in range(len(closing) + 1):
        rests = (graph_of({*arrows} - {*left_out}) for left_out in combinations(closing, count))
        if chains := [_longest(rest) for rest in rests if not circles_of(rest)]:
            return min(chains, key=len)
    raise AssertionError


def _longest(graph: Graph) -> list[str]:
    chains: dict[str, list[str]] = {}

    def chain(node: str) -> list[str]:
        if node not in chains:
            chains[node] = [node, *max(map(chain, sorted(graph[node])), key=len, default=[])]
        return chains[node]

    return max(map(chain, sorted(graph)), key=len, default=[])


# What is measured. A measure returns its figure, and the things behind it; its docstring says what counts.

Found = tuple[int, Sequence[str]]


def lines(house: House) -> Found:
    """Lines of `.py` and `.toml` files of the product."""
    return sum(house.lines.values()), largest(house.lines)


def lines_of_queries(house: House) -> Found:
    """Of these, lines outside the tools: what a query can run."""
    of_queries = {path: count for path, count in house.lines.items() if f"/{TOOLS}/" not in path}
    return sum(of_queries.values()), largest(of_queries)


def largest_room(house: House) -> Found:
    """Modules that stand directly in one folder, its `__init__` among them."""
    rooms = Counter(module.path.rpartition("/")[0] for module in house.modules.values())
    return max(rooms.values()), largest(rooms)


def longest_file(house: House) -> Found:
    """Lines of one module."""
    of_modules = {module.path: house.lines[module.path] for module in house.modules.values()}
    return max(of_modules.values()), largest(of_modules)


def floors(house: House) -> Found:
    """Rooms on the longest chain of arrows in `lakesink`, without the fewest arrows that close a circle."""
    chain = longest_chain(house.arrows)
    return len(chain), chain


def arrows(house: House) -> Found:
    """Pairs of rooms of which one imports the other; a room is a module or package in `lakesink`, or its `__init__`."""
    return counted(f"{start} -> {end}" for start, end in arrows_of(house.arrows))


def circles(house: House) -> Found:
    """Sets of modules that import each other, directly or over others."""
    return counted(", ".join(circle) for circle in circles_of(house.imports))


def one_importer(house: House) -> Found:
    """Modules that exactly one other module imports; an `__init__` is neither."""
    named = {name for name, module in house.modules.items() if not module.is_init}
    importers: dict[str, list[str]] = {}
    for name in sorted(named):
        for one in house.imports[name] & named:
            importers.setdefault(one, []).append(name)
    alone = sorted(one for one, by in importers.items() if len(by) == 1)
    return counted(f"{one} ({house.lines[house.modules[one].path]} lines) in {importers[one][0]}" for one in alone)


def one_caller(house: House) -> Found:
    """Private functions and methods of at most six lines below their `def`, whose name is read once in their file."""
    found = []
    for module in house.modules.values():
        reads = module.reads()
        for function in module.functions:
            name, length = function.name, (function.end_lineno or 0) - function.lineno
            if re.match("_[^_]", name) and reads[name] == 1 and length <= MOST_LINES:
                found.append(f"{module.path}:{function.lineno} {name}")
    return counted(found)


def files_of_a_measure(house: House) -> Found:
    """Modules with the name of one counted fact of a batch, as a word of an identifier or a string."""
    words = {module.path: module.words() for module in house.modules.values()}
    files = {name: sorted(path for path in words if name in words[path]) for name in COUNTED}
    return max(map(len, files.values())), [f"{len(files[name])} {name}: {', '.join(files[name])}" for name in COUNTED]


def relations_by_hand(house: House) -> Found:
    """Calls of functions named `...option_invalid`: each words what is wrong with an option."""
    return counted(
        f"{module.path}:{node.lineno}"
        for module in house.modules.values()
        for node in module.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("option_invalid")
    )


def file_names(house: House) -> Found:
    """Names that more than two modules have; `__init__` and `__main__` are not counted."""
    return repeated(Path(one.path).stem for one in house.modules.values())


def class_names(house: House) -> Found:
    """Names that more than two classes have."""
    nodes = (node for module in house.modules.values() for node in module.nodes)
    return repeated(node.name for node in nodes if isinstance(node, ast.ClassDef))


def words_of_docs(house: House) -> Found:
    """Words of the pages for users, as `wc -w` counts them: docs/start, use, operate and reference."""
    pages = (page for group in FOR_USERS for page in (house.root / "docs" / group).rglob("*.md"))
    words = {page.relative_to(house.root).as_posix(): len(page.read_text().split()) for page in pages}
    return sum(words.values()), largest(words)


def largest(counts: Mapping[str, int]) -> list[str]:
    """One line for each, from the largest."""
    return [f"{count} {name}" for name, count in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]


def repeated(names: Iterable[str]) -> Found:
    counts = Counter(name for name in names if not name.startswith("__"))
    return counted(largest({name: count for name, count in counts.items() if count > MOST_NAMESAKES}))


def counted(things: Iterable[str]) -> Found:
    found = list(things)
    return len(found), found


_MEASURES: tuple[Callable[[House], Found], ...] = (
    *(lines, lines_of_queries, largest_room, longest_file, floors, arrows, circles, one_importer, one_caller),
    *(files_of_a_measure, relations_by_hand, file_names, class_names, words_of_docs),
)
MEASURES = {measure.__name__.replace("_", "-"): measure for measure in _MEASURES}


@dataclass(frozen=True)
class Bound:
    """What a figure may be today, and what it is to become."""

    at_most: int
    goal: int

    def trouble(self, name: str, now: int) -> str:
        """A sentence if the figure is above its bound."""
        if now <= self.at_most:
            return ""
        return f"{name} is {now}, above its bound of {self.at_most}: see `make house ARGS='--list {name}'`."

    def advice(self, name: str, now: int) -> str:
        """A sentence if the bound can fall: by more than a fiftieth."""
        may_fall = self.at_most > self.goal and now < self.at_most - self.at_most // 50
        return f"{name} is {now}: lower its bound of {self.at_most}, in testkit/house.toml." if may_fall else ""


def read_bounds() -> dict[str, Bound]:
    """The bounds of all measures, those of `testkit.executed` too."""
    return {name: Bound(**bound) for name, bound in tomllib.loads(BOUNDS.read_text()).items()}


def main() -> int:
    """Print the figures; returns 1 if one is above its bound."""
    bounds = read_bounds()
    parser = argparse.ArgumentParser(prog="python -m testkit.house", description=__doc__)
    parser.add_argument("--list", metavar="MEASURE", choices=bounds, help="say what counts, and print all of it")
    parser.add_argument("--executed", action="store_true", help="measure what runs in a batch, in a session of Spark")
    parser.add_argument(
        "--of",
        metavar="FOLDER",
        type=Path,
        default=ROOT,
        help="another checkout; if executed, the one that Python imports",
    )
    asked = parser.parse_args()
    house = House.read(asked.of.absolute())
    if asked.list in MEASURES:
        print(MEASURES[asked.list].__doc__, *MEASURES[asked.list](house)[1], sep="\n")
        return 0
    if asked.executed or asked.list:
        from testkit.executed import measured_by_running  # noqa: PLC0415 - all else needs the standard library only

        found = measured_by_running(house)
    else:
        found = {name: measure(house) for name, measure in MEASURES.items()}
    if asked.list:
        print(*found[asked.list][1], sep="\n")
        return 0
    return shown({name: now for name, (now, _) in found.items()}, bounds)


def shown(figures: Mapping[str, int], bounds: Mapping[str, Bound]) -> int:
    """Print figures beside their bounds, and what to do; returns 1 if one is above its bound."""
    print(f"{'':20}{'now':>8}{'at most':>9}{'goal':>8}")
    for name, now in figures.items():
        print(f"{name:20}{now:8}{bounds[name].at_most:9}{bounds[name].goal:8}")
    troubles = [bounds[name].trouble(name, now) for name, now in figures.items()]
    advice = [bounds[name].advice(name, now) for name, now in figures.items()]
    for sentence in filter(None, (*troubles, *advice)):
        print(sentence)
    return int(any(troubles))


if __name__ == "__main__":
    sys.exit(main())
