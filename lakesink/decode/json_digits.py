"""Finds JSON documents whose numbers DuckDB would change, because a double cannot store them exactly.

DuckDB reads a number with a fraction or an exponent as a double and returns the double's shortest text; -0 becomes 0.
Up to 15 digits this is the same number. So the search is for longer numbers and exponents in decimal columns, for any
number or escape that may change in string columns, which take any JSON, and for -0 in double columns. It may find too
many documents, never too few. The found documents are read in their original spelling, see `json_raw`.

Every pattern begins with a character that RE2 can find without an automaton, and is small enough for an automaton
without backtracking: larger patterns take a hundred times as long.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.joined import any_match
from lakesink.rows.schema import ListOf, MapOf, Nested, Primitive, Struct, Type, leaves

_EXACT_DIGITS = 15
"""Digits of a decimal number that a double keeps."""

_BLANKS = r"[ \t\r\n]*"
_LONG = "|".join(
    [rf"[0-9]{{{whole}}}\.[0-9]{{{_EXACT_DIGITS + 1 - whole}}}" for whole in range(1, _EXACT_DIGITS + 1)]
    + [rf"[0-9]{{{_EXACT_DIGITS + 1},}}\.[0-9]"]
)
_RISKY = rf"{_BLANKS}-?(?:{_LONG}|[0-9.]+[eE])"
_RESPELLED = rf"{_BLANKS}(?:-?[0-9]+[.eE]|-0)"
"""A number whose text may change."""
_NESTED = rf"{_BLANKS}[\[{{]"
_BELOW = r"(?s:.*)[:,\[]"
_RISKY_ITEMS = rf"{_NESTED}(?:{_BELOW})?{_RISKY}"
_RESPELLED_JSON = rf"{_NESTED}(?:(?s:.*)\\|(?:{_BELOW})?{_RESPELLED})"
"""An array or object with a string or number whose text may change."""
_TEXT = r'"(?:[^"\\]|\\.)*"'
_KEY = rf"(?:{_TEXT}{_BLANKS}:{_BLANKS})?"
_ALL_TEXTS = rf"{_NESTED}{_BLANKS}(?:{_KEY}(?:{_TEXT}|[a-zA-Z]+){_BLANKS},{_BLANKS})*{_KEY}"
"""An array or object up to its first part that is neither a string nor a word."""
_RESPELLED_ITEMS = rf"{_ALL_TEXTS}(?:{_RESPELLED}|{_RESPELLED_JSON}|[-0-9\[{{](?s:.*)(?:\\|[:,\[]{_RESPELLED}))"
_STRING = Primitive("string")
_SUSPICIOUS: Mapping[tuple[bool, bool], tuple[str, str]] = {
    (False, False): (_RISKY, _RISKY),
    (False, True): (_RISKY_ITEMS, _NESTED),
    (True, False): (rf"(?:{_RESPELLED}|{_RESPELLED_JSON})", rf"(?:{_RESPELLED}|{_NESTED})"),
    (True, True): (_RESPELLED_ITEMS, _NESTED),
}
"""Patterns of suspicious values and of their beginnings: of strings, else decimals; below a list or map, or not."""
_MINUS_ZERO = r"-0[ \t\r\n,\]}]"
_ESCAPED_KEY = rf'\\.[^"\\]*"{_BLANKS}:'
"""The end of a key, from its last escape."""
_NAMES_AT_ONCE = 4_000
"""Characters of names in one pattern."""
_FEW_NAMES = 6
"""With more names than these, one search for all of them is faster than one for each."""
_FREQUENT = "e0123456789 atinorsdcl_bufpmhgvywkxzqj"
"""Characters of documents, the most frequent one first."""
_MANY_NAMES = 30
"""With more names than these, a search for suspicious values after any name is faster."""


@dataclass(frozen=True, slots=True)
class _Watch:
    """Patterns that find documents of one type.

    Attributes:
        anywhere: Matches all documents that a named pattern matches; None if this search is not worthwhile.
        ends: If there are few names, one of these matches whenever a named pattern does; each is the end of a name.
        named: Each matches documents whose relevant values may change.
        rare: Patterns for keys that are written with escapes, and for -0 in double columns.
    """

    anywhere: str | None
    ends: tuple[str, ...]
    named: tuple[str, ...]
    rare: tuple[str, ...]


def respelled(documents: pa.StringArray, kind: Nested) -> pa.Array | None:
    """Positions of valid documents that must be read in their original spelling; None if there are none."""
    watch = _watch(kind)
    found = _named(documents, watch)
    found += [_matching(documents, pattern) for pattern in watch.rare if any_match(documents, pattern)]
    found = [positions for positions in found if len(positions)]
    return pc.unique(pa.concat_arrays(found)) if found else None


def _named(documents: pa.StringArray, watch: _Watch) -> list[pa.Array]:
    if watch.ends and not any(any_match(documents, pattern) for pattern in watch.ends):
        return []
    if watch.anywhere is None:
        return [_matching(documents, pattern) for pattern in watch.named]
    candidates = _matching(documents, watch.anywhere)
    if not len(candidates):
        return []
    chosen = documents.take(candidates)
    return [candidates.take(_matching(chosen, pattern)) for pattern in watch.named]


def _matching(documents: pa.StringArray, pattern: str) -> pa.Array:
    return pc.indices_nonzero(pc.match_substring_regex(documents, pattern))


@cache
def _watch(kind: Nested) -> _Watch:
    exact = list(_exact_fields(kind))
    named = [f"^{then}" for name, then, _ in exact if name is None]
    anywhere = None if named or len(exact) <= _MANY_NAMES else _any_of(f":{first}" for _, _, first in exact)
    named += _by_names(sorted((then, name) for name, then, _ in exact if name is not None))
    rare = [f"{_ESCAPED_KEY}(?:{_any_of(then for _, then, _ in exact)})"] if exact else []
    rare += [_MINUS_ZERO] if any(leaf.type.is_floating for leaf in leaves(kind)) else []
    few = 0 < len(exact) <= _FEW_NAMES and all(name is not None for name, _, _ in exact)
    ends = [rf'{_literal(_rare_end(name or ""))}"{_BLANKS}:{first}' for name, _, first in exact] if few else []
    return _Watch(anywhere, tuple(ends), tuple(named), tuple(rare))


def _any_of(patterns: Iterable[str]) -> str:
    return "|".join(dict.fromkeys(patterns))


def _by_names(wanted: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Patterns of values after certain names. `wanted` is sorted, so that equal value patterns are neighbours."""
    size, ends = 0, [0]
    for at, (_, name) in enumerate(wanted):
        size += len(name)
        if size > _NAMES_AT_ONCE:
            size, ends = len(name), [*ends, at]
    for start, end in pairwise([*ends, len(wanted)]):
        together = groupby(wanted[start:end], key=itemgetter(0))
        behind = [rf'(?:{_any_of(_literal(name) for _, name in group)})"{_BLANKS}:{then}' for then, group in together]
        if behind:
            yield f'"(?:{"|".join(behind)})'


def _rare_end(name: str) -> str:
    """The end of a name, at least three characters if possible, from the character that is rarest in documents."""
    starts = range(max(len(name) - 2, 1))
    return name[max(starts, key=lambda at: _FREQUENT.find(name[at : at + 1]) % (len(_FREQUENT) + 1)) :]


def _literal(name: str) -> str:
    """A pattern of a key as it is written without escapes."""
    return "".join(rf"\x{{{ord(character):x}}}" for character in name)


def _exact_fields(kind: Type, name: str | None = None) -> Iterator[tuple[str | None, str, str]]:
    """Fields whose digits must be kept, with patterns of suspicious values; the name is None for a document's items."""
    is_held = False
    while isinstance(kind, ListOf | MapOf):
        kind, is_held = kind.fields[-1].type, True
    if isinstance(kind, Struct):
        for field in kind.fields:
            yield from _exact_fields(field.type, field.name)
    elif kind == _STRING or kind.decimal:
        yield name, *_SUSPICIOUS[kind == _STRING, is_held]
