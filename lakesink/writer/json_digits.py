"""Which JSON documents DuckDB would respell where it matters: their numbers are more than a double holds.

DuckDB reads a number with a fraction or an exponent as a double and hands out the double's shortest text. Up to 15
digits that is the same number. So documents are searched for longer ones, and for exponents, where a column keeps
digits: one of decimals, or one of text, which takes any JSON. The search may find too much, never too little; what it
finds is then read as it is written, see `json_raw`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.writer.schema import ListOf, MapOf, Nested, Primitive, Struct, Type

_EXACT_DIGITS = 15
"""Of a decimal number that survives being a double."""

_BLANKS = r"[ \t\r\n]*"
_LONG = "|".join(
    [rf"[0-9]{{{whole}}}\.[0-9]{{{_EXACT_DIGITS + 1 - whole}}}" for whole in range(1, _EXACT_DIGITS + 1)]
    + [rf"[0-9]{{{_EXACT_DIGITS + 1},}}\.[0-9]"]
)
_RISKY = rf"{_BLANKS}-?(?:{_LONG}|[0-9.]+[eE])"
_RESPELLED = rf"{_BLANKS}(?:-?[0-9]+[.eE]|-0)"
_NESTED = rf"{_BLANKS}[\[{{]"
_TEXT = r'"(?:[^"\\]|\\.)*"'
_KEY = rf"(?:{_TEXT}{_BLANKS}:{_BLANKS})?"
_NOT_ALL_TEXTS = rf"{_BLANKS}[\[{{]{_BLANKS}(?:{_KEY}(?:{_TEXT}|[a-zA-Z]+){_BLANKS},{_BLANKS})*{_KEY}[-0-9\[{{]"
"""An array or object with a part that is neither text nor a word."""
_SHORT_ESCAPES: Mapping[str, str] = dict(zip('"\\/\b\f\n\r\t', '"\\/bfnrt', strict=True))


@dataclass(frozen=True, slots=True)
class _Watch:
    """Patterns for documents of one type.

    Attributes:
        suspects: Finds documents that may be respelled where it matters.
        surely: Finds those of them that are.
    """

    suspects: str
    surely: str


@dataclass(frozen=True, slots=True)
class _Keeper:
    """Where a document's type keeps digits.

    Attributes:
        is_text: True for a column of text, False for one of decimals.
        is_held: True for the items of lists or maps.
        name: Of the member; None for the items of the document itself.
    """

    is_text: bool
    is_held: bool
    name: str | None


def respelled(documents: pa.StringArray, kind: Nested) -> pa.Array | None:
    """Positions of documents whose parts are to be read as they are written; None if there are none.

    Args:
        documents: Valid JSON of the type, or NULL.
        kind: What is looked for in them.
    """
    watch = _watch(kind)
    if watch is None:
        return None
    found = pc.indices_nonzero(pc.match_substring_regex(documents, watch.suspects))
    if len(found):
        found = found.filter(pc.match_substring_regex(documents.take(found), watch.surely))
    return found if len(found) else None


@cache
def _watch(kind: Nested) -> _Watch | None:
    keepers = list(_keepers(kind, None))
    if not keepers:
        return None
    surely = [
        *_patterns(keepers, _RISKY, text=False, held=False),
        *_patterns(keepers, _RESPELLED, text=True, held=False),
    ]
    surely += _patterns(keepers, _NOT_ALL_TEXTS, text=True, held=True)
    perhaps = [*_patterns(keepers, _NESTED, text=True, held=False), *_patterns(keepers, _NESTED, text=False, held=True)]
    return _Watch("|".join(surely + perhaps), "|".join([*surely, rf"[:,\[]{_RISKY}"]))


def _keepers(kind: Type, name: str | None) -> Iterator[_Keeper]:
    held = False
    while isinstance(kind, ListOf | MapOf):
        kind, held = kind.element.type if isinstance(kind, ListOf) else kind.value.type, True
    if isinstance(kind, Struct):
        for field in kind.fields:
            yield from _keepers(field.type, field.name)
    elif _keeps(kind):
        yield _Keeper(_is_text(kind), held, name)


def _keeps(kind: Type) -> bool:
    return isinstance(kind, Primitive) and (kind.decimal is not None or _is_text(kind))


def _is_text(kind: Type) -> bool:
    return kind == Primitive("string")


def _patterns(keepers: Sequence[_Keeper], then: str, *, text: bool, held: bool) -> Iterator[str]:
    """What comes after the names of some keepers, and what begins a document that has such items itself."""
    chosen = [keeper.name for keeper in keepers if (keeper.is_text, keeper.is_held) == (text, held)]
    names = [_spellings(name) for name in chosen if name is not None]
    if names:
        yield f'"(?:{"|".join(names)})"{_BLANKS}:{then}'
    if None in chosen:
        yield f"^{then}"


def _spellings(name: str) -> str:
    """A pattern of all ways to write a key."""
    return "".join(f"(?:{'|'.join(_spellings_of(character))})" for character in name)


def _spellings_of(character: str) -> Iterator[str]:
    units = character.encode("utf-16-be", "surrogatepass")
    yield "".join(rf"\\u(?i:{units[at : at + 2].hex()})" for at in range(0, len(units), 2))
    if character in _SHORT_ESCAPES:
        yield rf"\\\x{{{ord(_SHORT_ESCAPES[character]):x}}}"
    if character not in '"\\' and character >= " ":
        yield rf"\x{{{ord(character):x}}}"
