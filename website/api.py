"""The page of the Python API, from signatures and docstrings of the public names, which griffe reads."""

from collections.abc import Iterator

import griffe
from griffe import DocstringSection, DocstringSectionKind

from website.staging import ROOT
from website.tables import PUBLIC_MODULES

PLACE = "<!-- api -->"
_WIDTH = 100


def api_markdown() -> str:
    """Every public name by its module."""
    loader = griffe.GriffeLoader(
        search_paths=[ROOT, ROOT / "catalog", ROOT / "protocol", ROOT / "tools"], docstring_parser=griffe.Parser.google
    )
    for package in ("lakesink_protocol", "lakesink_catalog", "lakesink_tools", "lakesink"):
        loader.load(package)
    loader.resolve_aliases()
    return "\n".join(line for name in PUBLIC_MODULES for line in _module(loader.modules_collection[name]))


def _module(module: griffe.Module) -> Iterator[str]:
    yield from (f"## {module.path}", "", module.docstring.value if module.docstring else "", "")
    for export in module.exports or ():
        name = str(export)
        if not name.startswith("__"):
            member = module[name]
            yield from _member(member.final_target if member.is_alias else member, f"{module.path}.{name}")


def _member(member: griffe.Object, path: str) -> Iterator[str]:
    yield from (f"### {path.rpartition('.')[2]} {{#{path}}}", "")
    match member:
        case griffe.Class():
            yield from _fenced(_class_head(member))
            yield from _docstring(member)
            for method in _methods(member):
                yield from (f"#### {member.name}.{method.name} {{#{path}.{method.name}}}", "")
                yield from _fenced(_signature(method))
                yield from _docstring(method)
        case griffe.Function():
            yield from _fenced(_signature(member))
            yield from _docstring(member)
        case griffe.Attribute():
            yield from _fenced(f"{member.name} = {member.value}")
            yield from _docstring(member)


def _class_head(found: griffe.Class) -> str:
    bases = ", ".join(str(base) for base in found.bases)
    fields = [
        f"    {member.name}: {member.annotation}" if member.annotation else f"    {member.name} = {member.value}"
        for member in found.members.values()
        if isinstance(member, griffe.Attribute) and _is_field(member)
    ]
    return "\n".join([f"class {found.name}{f'({bases})' if bases else ''}:", *(fields or ["    ..."])])


def _is_field(member: griffe.Attribute) -> bool:
    """Not an attribute that `__init__` sets: the docstring of the class lists those that are public."""
    stated = member.annotation is not None or "instance-attribute" not in member.labels
    return stated and not member.name.startswith("_") and "property" not in member.labels


def _methods(found: griffe.Class) -> list[griffe.Function]:
    members = (member for member in found.members.values() if not member.is_alias)
    return [
        member
        for member in members
        if isinstance(member, griffe.Function) and not member.name.startswith("_") and member.docstring
    ]


def _signature(function: griffe.Function) -> str:
    """On one line if it fits, else one parameter a line."""
    parameters = list(_parameters(function))
    returns = f" -> {function.returns}" if function.returns else ""
    short = f"{function.name}({', '.join(parameters)}){returns}"
    if len(short) <= _WIDTH:
        return short
    return "\n".join([f"{function.name}(", *(f"    {parameter}," for parameter in parameters), f"){returns}"])


def _parameters(function: griffe.Function) -> Iterator[str]:
    marked = False
    for parameter in function.parameters:
        if parameter.name in ("self", "cls"):
            continue
        kind = parameter.kind
        if kind is griffe.ParameterKind.keyword_only and not marked:
            yield "*"
        marked = marked or kind in (griffe.ParameterKind.keyword_only, griffe.ParameterKind.var_positional)
        stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(kind, "")
        default = f" = {parameter.default}" if parameter.default is not None and not stars else ""
        yield f"{stars}{parameter.name}{f': {parameter.annotation}' if parameter.annotation else ''}{default}"


def _fenced(code: str) -> list[str]:
    return ["```python", code, "```", ""]


def _docstring(member: griffe.Object) -> Iterator[str]:
    for section in member.docstring.parsed if member.docstring else ():
        yield from _section(section)
        yield ""


def _section(section: DocstringSection) -> Iterator[str]:
    match section.kind:
        case DocstringSectionKind.text:
            yield str(section.value)
        case DocstringSectionKind.parameters | DocstringSectionKind.attributes:
            yield from (f"| {section.kind.value[:-1]} | meaning |", "|---|---|")
            for item in section.value:
                yield f"| `{item.name}` | {_line(item.description)} |"
        case DocstringSectionKind.raises:
            yield from ("| raises | when |", "|---|---|")
            for item in section.value:
                yield f"| `{item.annotation}` | {_line(item.description)} |"
        case DocstringSectionKind.returns | DocstringSectionKind.yields:
            for item in section.value:
                yield f"**{section.kind.value.title()}:** {_line(item.description)}"
        case _:
            yield str(section.value)


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
