"""The parts of a text that a parser reads one by one: kinds such as ``word`` and ``mark``, and texts. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn, TypeVar

Part = TypeVar("Part")


def scan(
    written: str, token: re.Pattern[str], unquoted: Callable[[str], str], hint: str = ""
) -> Iterator[tuple[str, str]]:
    """Kinds and texts of the parts, without quotes: the kinds are the names of the groups of `token`.

    `unquoted` reads what is between the quotes of a ``text``. What is no part is a ValueError, which ends with `hint`.
    """
    place, end = 0, len(written.rstrip())
    while place < end:
        found = token.match(written, place)
        if found is None:
            raise ValueError(f"{written[place:].strip()[:20]!r} cannot be read{hint}")
        place, kind = found.end(), found.lastgroup or ""
        part = found[kind]
        if kind == "quoted":
            part = part.replace("``", "`")
        yield kind, unquoted(part[1:-1]) if kind == "text" else part


class Tokens:
    """What parsers of a text have in common; errors are ValueErrors that name the place."""

    def __init__(self, tokens: Iterable[tuple[str, str]]) -> None:
        self._tokens = list(tokens)
        self._next = 0

    def _listed(self, one: Callable[[], Part]) -> Iterator[Part]:
        yield one()
        while self._accept("mark", ","):
            yield one()

    def _expect(self, kind: str, wanted: str) -> None:
        if not self._accept(kind, wanted):
            found = self._peek()
            self._wrong(f"expected {wanted!r}" + (f", not {found[1]!r}" if found else " at the end"))

    def _accept(self, kind: str, wanted: str) -> bool:
        found = self._peek()
        accepted = found is not None and found[0] == kind and found[1].upper() == wanted
        self._next += accepted
        return accepted

    def _take(self, wanted: str) -> tuple[str, str]:
        found = self._peek()
        if found is None:
            self._wrong(f"expected {wanted} at the end")
        self._next += 1
        return found

    def _peek(self) -> tuple[str, str] | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _wrong(self, why: str) -> NoReturn:
        before = self._tokens[max(self._next - 3, 0) : self._next]
        near = f" (near {' '.join(token for _, token in before)})" if before else ""
        raise ValueError(f"{why}{near}")
