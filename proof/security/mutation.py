"""Hostile versions of an honest document: structure-aware, from one seed, each with the word for what was done to it.

Nothing here knows what is fed with it: a document goes in, JSON text comes out, and `damaged` breaks the bytes around.
"""

import copy
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

UNTOUCHED = "untouched"
HUGE = 2**63
NUMBERS: Sequence[Any] = (
    -1, 0, 1, 2, 7, 255, 2**31 - 1, 2**31, 2**53, HUGE - 1, HUGE, -HUGE, 10**40, -(10**400),
    0.5, -0.0, 1e308, float("inf"), float("-inf"), float("nan"), True, False,
)  # fmt: skip
TEXTS: Sequence[str] = (
    "", " ", ".", "..", "../..", "%2e%2e", "%2e%2e/%2e%2e", "..%2f..", "/", "//", "/etc/passwd", "file:///etc/passwd",
    "s3://other/x.parquet", "http://127.0.0.1/x", "\0", "\n", "\r\nX: y", "\t", "\x1b[2J\x1b[31m", "\x9b31m",
    "\ud800", "\U0010ffff", "é", "x" * 5_120, "a/" * 2_500, "?versionId=1", "#fragment", "\\..\\", "~/x", "$HOME", "*",
    "'; DROP TABLE x --", '"', "{}", "[red]", "1", "-1", "1" * 5_000, "\u202e\u2066", "null", "true", "NaN", "AA==",
    "AA=", "=" * 9, "\u0661\u0662", "1_000", " 7 ", "0x10", "1e3", "main", "audit", "events", "committed",
)  # fmt: skip
SHAPES: Sequence[Any] = (None, [], {}, [[]], [None], {"": None}, {"a": {"b": []}}, [1, 2], {"1": 1}, ["x", 1])
_KEY = re.compile(r'"(?:[^"\\]|\\.)*":')
_NUMBER = re.compile(r"(?<=[:,\[])-?\d+(?=[,\]}])")
_WORDS = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 4_400, "-" + "9" * 4_299, "1.0", "1E0", "01", "0x1")
_DEPTHS = (50, 400, 900, 990, 1_100, 20_000)
_ENCODINGS = ("utf-8-sig", "utf-16", "utf-32", "utf-16-be", "latin-1")

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Forged:
    """One hostile input: the word for its kind, and the JSON text or the bytes."""

    kind: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Forge:
    """Makes hostile versions of one document.

    Attributes:
        honest: What is true.
        tempting: Values that would mean something where they are put: other people's paths, parts of other documents.
    """

    honest: Any
    tempting: Sequence[Any] = ()

    def text(self, chance: random.Random) -> Forged:
        """One hostile document as JSON text; one of a hundred is the honest one."""
        kind = chance.choices(tuple(_WAYS), weights=[weight for weight, _ in _WAYS.values()])[0]
        return Forged(kind, _WAYS[kind][1](self, chance))

    def value(self, chance: random.Random, near: Any) -> Any:
        """Something hostile for a place that holds `near`."""
        pools: list[Sequence[Any]] = [NUMBERS, TEXTS, SHAPES]
        coherent = [near | lure for lure in self.tempting if isinstance(lure, dict)] if isinstance(near, dict) else []
        if coherent and chance.random() < 0.5:
            return copy.deepcopy(chance.choice(coherent))
        if self.tempting:
            pools += [self.tempting, self.tempting]
        if isinstance(near, str):
            pools += [_spoilt_texts(near, chance)] * 3
        elif type(near) is int:
            pools += [(near - 1, near + 1, -near, near * 2, near + HUGE, str(near), [near], near << 400)] * 2
        return copy.deepcopy(chance.choice(chance.choice(pools)))


def honest_json(document: Any) -> bytes:
    """As the product writes it."""
    return json.dumps(document, separators=(",", ":")).encode()


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Bytes that were cut, flipped, padded, doubled or swapped on their way."""
    body = bytearray(data)
    place, other = chance.randrange(len(body) + 1), chance.randrange(len(body) + 1)
    match chance.randrange(6):
        case 0:
            return bytes(body[:place])
        case 1:
            for _ in range(chance.choice((1, 1, 1, 4, 40))):
                body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        case 2:
            body[place:place] = chance.randbytes(chance.choice((1, 4, 100)))
        case 3:
            del body[min(place, other) : max(place, other)]
        case 4:
            body += body[: chance.choice((1, len(body)))]
        case _:
            return chance.randbytes(chance.choice((0, 1, 30, 1_000)))
    return bytes(body)


def _spoilt_texts(text: str, chance: random.Random) -> Sequence[str]:
    """A text that nearly is what it was: a path that climbs, another batch's name, hidden characters."""
    place = chance.randrange(len(text) + 1)
    head, _, name = text.rpartition("/")
    odd = chance.choice(TEXTS)
    return (
        text[:place] + odd + text[place:],
        f"{head}/{odd}/{name}",
        f"{head}/../{name}",
        f"{head}/%2e%2e/%2e%2e/{name}",
        f"{head}//{name}",
        f"{head}-other/{name}",
        f"{text}/{odd}",
        text.replace("-1-", chance.choice(("-0-", "-11-", "-2-", "--1-"))),
        text.replace("events", chance.choice(("xevents", "clicks", "Events", "events2"))),
        text.replace("file://", chance.choice(("", "file:", "FILE://", "s3://", "file://host", "hdfs://x"))),
        text.upper(),
        text[:place],
    )


def _places(document: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    yield place, document
    items: Iterator[tuple[str | int, Any]] = iter(())
    if isinstance(document, dict):
        items = iter(document.items())
    elif isinstance(document, list):
        items = iter(enumerate(document))
    for key, value in items:
        yield from _places(value, (*place, key))


def _put(document: Any, place: Place, value: Any) -> Any:
    if not place:
        return value
    holder = document
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return document


def _changed(forge: Forge, chance: random.Random) -> bytes:
    document = copy.deepcopy(forge.honest)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        place, near = chance.choice(list(_places(document)))
        document = _put(document, place, forge.value(chance, near))
    return honest_json(document)


def _moved(forge: Forge, chance: random.Random) -> bytes:
    """One part of the document where another was."""
    document = copy.deepcopy(forge.honest)
    places = list(_places(document))
    target, source = chance.choice(places), chance.choice(places)
    return honest_json(_put(document, target[0], copy.deepcopy(source[1])))


def _lacking(forge: Forge, chance: random.Random) -> bytes:
    return _in_a_holder(forge, chance, lambda holder, key: holder.pop(key))


def _repeated(forge: Forge, chance: random.Random) -> bytes:
    """A list's member twice, or a mapping's under another key."""

    def again(holder: Any, key: Any) -> None:
        value = forge.value(chance, holder[key]) if chance.random() < 0.3 else copy.deepcopy(holder[key])
        if isinstance(holder, list):
            holder.insert(key, value)
        else:
            holder[str(chance.choice(TEXTS))] = value

    return _in_a_holder(forge, chance, again)


def _in_a_holder(forge: Forge, chance: random.Random, change: Callable[[Any, Any], object]) -> bytes:
    document = copy.deepcopy(forge.honest)
    place, holder = chance.choice(
        [found for found in _places(document) if isinstance(found[1], dict | list) and found[1]]
    )
    change(holder, chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder))))
    assert place is not None
    return honest_json(document)


def _doubled_key(forge: Forge, chance: random.Random) -> bytes:
    """The same key twice in one object: readers disagree on which one counts."""
    text = honest_json(forge.honest).decode()
    keys = list(_KEY.finditer(text))
    if not keys:
        return text.encode()
    key = chance.choice(keys)
    value = honest_json(forge.value(chance, 1)).decode()
    return f"{text[: key.start()]}{key[0]}{value},{text[key.start() :]}".encode()


def _odd_number(forge: Forge, chance: random.Random) -> bytes:
    """Numbers that JSON does not have, and numbers that Python would rather not read."""
    text = honest_json(forge.honest).decode()
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        return text.encode()
    number = chance.choice(numbers)
    return f"{text[: number.start()]}{chance.choice(_WORDS)}{text[number.end() :]}".encode()


def _deep(forge: Forge, chance: random.Random) -> bytes:
    """Brackets in brackets where a value was, or around everything."""
    depth = chance.choice(_DEPTHS)
    begin, end = chance.choice((("[", "]"), ('{"a":', "}"), ('[{"path":', "}]")))
    nested = f"{begin * depth}1{end * depth}"
    places = [place for place, _ in _places(forge.honest) if place]
    if not places:
        return nested.encode()
    document = _put(copy.deepcopy(forge.honest), chance.choice(places), "@deep@")
    return honest_json(document).replace(b'"@deep@"', nested.encode())


def _encoded(forge: Forge, chance: random.Random) -> bytes:
    return honest_json(forge.honest).decode().encode(chance.choice(_ENCODINGS), errors="replace")


def _torn(forge: Forge, chance: random.Random) -> bytes:
    return damaged(honest_json(forge.honest), chance)


_WAYS: dict[str, tuple[int, Callable[[Forge, random.Random], bytes]]] = {
    UNTOUCHED: (1, lambda forge, _: honest_json(forge.honest)),
    "changed value": (46, _changed),
    "moved part": (12, _moved),
    "lacking part": (6, _lacking),
    "repeated part": (10, _repeated),
    "doubled key": (7, _doubled_key),
    "odd number": (6, _odd_number),
    "deep nesting": (3, _deep),
    "other encoding": (1, _encoded),
    "torn text": (6, _torn),
}
"""How a document is made hostile, and how often."""
