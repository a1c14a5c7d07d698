"""Takes events out of the wrapper of Kafka Connect's JSON converter: ``{"schema": ..., "payload": ...}``. Pure.

The schema is the longer part of such a document, and the same in many of them. So it is read once, and cut off as a
prefix from all texts that begin with it. This changes no document: a text is ``{"schema":S,"payload":P}`` exactly if it
begins and ends so, and S and P are JSON. Whether P is, the reader of the payloads finds out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.debezium.connect_types import Types, types_in
from lakesink.decode.json_raw import end_of_nested, members

_SCHEMA, _PAYLOAD = '{"schema":', ',"payload":'
_MOST_SCHEMAS = 32
"""Schemas that are cut off as prefixes. Documents with others are opened one by one."""


@dataclass(frozen=True, slots=True)
class Payloads:
    """Events with types in common, and the positions of their documents."""

    positions: pa.Array
    texts: pa.StringArray
    types: Types


def unwrapped(texts: pa.StringArray) -> list[Payloads]:
    """The events in compact wrappers, by schema, and all other documents as they are."""
    wrapped = pc.fill_null(pc.starts_with(texts, _SCHEMA), False)  # noqa: FBT003 - Arrow takes it by position
    left = pc.indices_nonzero(wrapped).cast(pa.int64())
    found: list[Payloads] = []
    while len(left) and len(found) < _MOST_SCHEMAS:
        chosen = texts if len(left) == len(texts) else texts.take(left)
        prefix, types = _wrapper(chosen[0].as_py())
        fits = pc.and_(pc.starts_with(chosen, prefix), pc.ends_with(chosen, "}"))
        if not prefix or not fits[0].as_py():
            break
        others = left.filter(pc.invert(fits))
        chosen, positions = (chosen.filter(fits), left.filter(fits)) if len(others) else (chosen, left)
        payloads = pc.binary_slice(chosen.cast(pa.binary()), len(prefix.encode()), -1)
        found.append(Payloads(positions, payloads.cast(pa.string()), types))
        left = others
    others = pa.concat_arrays([pc.indices_nonzero(pc.invert(wrapped)).cast(pa.int64()), left])
    if len(others) or not found:
        found.append(Payloads(others, texts if len(others) == len(texts) else texts.take(others), None))
    return found


def opened(texts: Sequence[str], positions: Sequence[int]) -> list[Payloads]:
    """The events in wrappers of any spelling, by schema; the texts are JSON objects, some of them no wrappers."""
    groups: dict[str, tuple[list[int], list[str]]] = {}
    for text, position in zip(texts, positions, strict=True):
        parts = dict(reversed(members(text)))
        if "schema" in parts and "payload" in parts:
            places, payloads = groups.setdefault(parts["schema"], ([], []))
            places.append(position)
            payloads.append(parts["payload"])
    return [
        Payloads(pa.array(places, pa.int64()), pa.array(payloads, pa.string()), _types(schema))
        for schema, (places, payloads) in groups.items()
    ]


def _wrapper(text: str) -> tuple[str, Types]:
    """The prefix of a document, up to its payload, and the types; an empty prefix if it is no compact wrapper."""
    start = len(_SCHEMA)
    if not text.startswith("{", start):
        return "", None
    try:
        end = end_of_nested(text, start)
        types = types_in(text[start:end])
    except ValueError:
        return "", None
    return (text[:end] + _PAYLOAD, types) if text.startswith(_PAYLOAD, end) else ("", None)


def _types(schema: str) -> Types:
    """The types in a schema. One that cannot be read is one without columns: no value is guessed."""
    if not schema.startswith("{"):
        return None
    try:
        return types_in(schema)
    except ValueError:
        return {}
