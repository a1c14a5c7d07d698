"""Unique names for the fixed types of an Avro schema, for compatibility with all readers. Pure.

Avro allows one definition of a name, and references to it later. PyIceberg defines the name at every use, which
fastavro, DuckDB and Avro for Java refuse, and PyIceberg cannot read references. Iceberg for Java writes references. A
definition at each use under its own name needs no reference and repeats no name.
"""

from itertools import chain, count
from typing import Any


def with_inline_types(schema: Any) -> Any:
    """The schema with every fixed and enum type defined where it is used; the first use of a name keeps the name.

    Raises:
        KeyError, TypeError, RecursionError: It is not a schema.
    """
    return _with_inline_types(schema, {}, set())


def _with_inline_types(schema: Any, known: dict[str, Any], taken: set[str]) -> Any:
    def inner(part: Any) -> Any:
        return _with_inline_types(part, known, taken)

    match schema:
        case str() if schema in known:
            found = inner(known[schema])
        case list():
            found = [inner(branch) for branch in schema]
        case {"type": "fixed" | "enum", "name": str(name)}:
            known[name] = schema
            names = chain([name], (f"{name}_{number}" for number in count(2)))
            free = next(each for each in names if each not in taken)
            taken.add(free)
            found = {**schema, "name": free}
        case {"type": "record", "fields": fields}:
            found = {**schema, "fields": [{**field, "type": inner(field["type"])} for field in fields]}
        case {"type": "array", "items": items}:
            found = {**schema, "items": inner(items)}
        case {"type": "map", "values": values}:
            found = {**schema, "values": inner(values)}
        case {"type": wrapped}:
            meant = inner(wrapped)
            found = {**schema, **(meant if isinstance(meant, dict) else {"type": meant})}
        case _:
            found = schema
    return found
