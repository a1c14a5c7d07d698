"""Reads a condition on decoded documents from text, as Spark's own parser reads it. Pure.

Spark's parser is in its JVM, and conditions on documents are evaluated where there is none. What this one accepts has
one meaning for both; everything else is refused.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from functools import cache

import pyarrow as pa

from lakesink.rows.conditions import FUNCTIONS, MOST_DIGITS, Call, ColumnRef, Condition, Literal
from lakesink.settings.tokens import Tokens, scan
from lakesink_catalog.words import cut, printable
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.suggest import sentence

_TOKEN = re.compile(
    r"""\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<text>'(?:[^'\\$]|''|\$(?!\{))*')|(?P<number>\d+(?:\.\d+)?)(?![\w.])"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<mark><=|>=|<>|!=|==|[=<>+*(),.]|-(?!-)))""",
    re.ASCII,
)
_COMPARISONS: Mapping[str, str] = {
    **{mark: mark for mark in ("<=", ">=", "<>", "=", "<", ">")},
    "!=": "<>",
    "==": "=",
}
_NO_COLUMNS = frozenset({"AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "LIKE", "CASE", "CAST", "INTERVAL"})
_DATE = r"\d{4}-\d\d-\d\d"
_TIME = rf"{_DATE}[ T]\d\d:\d\d:\d\d(?:\.\d{{1,6}})?"
_TYPED: Mapping[str, tuple[pa.DataType, re.Pattern[str], Callable[[str], date], str]] = {
    "DATE": (pa.date32(), re.compile(_DATE, re.ASCII), date.fromisoformat, "2026-01-31"),
    "TIMESTAMP": (
        pa.timestamp("us", "UTC"),
        re.compile(rf"{_TIME}(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)", re.ASCII),
        datetime.fromisoformat,
        "2026-01-31 12:00:00Z",
    ),
    "TIMESTAMP_NTZ": (pa.timestamp("us"), re.compile(_TIME, re.ASCII), datetime.fromisoformat, "2026-01-31 12:00:00"),
}
"""Literals with a word before their text: type, form, a check of the calendar, and an example."""
_MOST_NESTED = 50
_LONGEST = 90
"""Characters of a reason: a first line has less than 200, with the code and the longest name."""


def read_condition(name: str, written: str) -> Condition:
    """The condition of an expectation on documents; raises SettingsError."""
    try:
        return condition_of(written)
    except ValueError as error:
        raise condition_unsupported(name, error) from None


def condition_unsupported(name: str, why: ValueError) -> SettingsError:
    """The error for a condition without one meaning on the columns of documents."""
    return SettingsError.of("CONDITION_UNSUPPORTED", name=name, why=cut(printable(sentence(str(why))), _LONGEST))


@cache
def condition_of(written: str) -> Condition:
    """The condition in a text; raises ValueError if it is none of those that documents can have."""
    return _ConditionParser(scan(written, _TOKEN, lambda text: text.replace("''", "'"))).condition()


class _ConditionParser(Tokens):
    _levels = 0

    def condition(self) -> Condition:
        """The whole text."""
        found = self._any()
        rest = self._peek()
        if rest:
            self._wrong(f"{rest[1]!r} is not understood here")
        return found

    def _any(self) -> Condition:
        return self._chain("OR", lambda: self._chain("AND", self._negated))

    def _chain(self, word: str, one: Callable[[], Condition]) -> Condition:
        parts = [one()]
        while self._accept("word", word):
            parts.append(one())
        return parts[0] if len(parts) == 1 else Call(word, tuple(parts))

    def _negated(self) -> Condition:
        if not self._accept("word", "NOT"):
            return self._predicate()
        self._deeper()
        return Call("NOT", (self._negated(),))

    def _predicate(self) -> Condition:
        left = self._sum()
        for mark, name in _COMPARISONS.items():
            if self._accept("mark", mark):
                return Call(name, (left, self._sum()))
        is_null = self._accept("word", "IS")
        negated = self._accept("word", "NOT")
        if is_null:
            self._expect("word", "NULL")
            found: Condition = Call("IS NULL", (left,))
        elif self._accept("word", "BETWEEN"):
            lower = self._sum()
            self._expect("word", "AND")
            found = Call("AND", (Call(">=", (left, lower)), Call("<=", (left, self._sum()))))
        elif self._accept("word", "IN"):
            found = Call("IN", (left, *self._arguments()))
        elif self._accept("word", "LIKE"):
            kind, pattern = self._take("a text in quotes")
            if kind != "text":
                self._wrong("LIKE takes a text in quotes")
            found = Call("LIKE", (left, Literal(pattern, pa.string())))
        elif negated:
            self._wrong("expected BETWEEN, IN or LIKE")
        else:
            return left
        return Call("NOT", (found,)) if negated else found

    def _sum(self) -> Condition:
        return self._operations(("+", "-"), lambda: self._operations(("*",), self._value))

    def _operations(self, marks: tuple[str, ...], one: Callable[[], Condition]) -> Condition:
        found = one()
        while (mark := next((mark for mark in marks if self._accept("mark", mark)), None)) is not None:
            self._deeper()
            found = Call(mark, (found, one()))
        return found

    def _value(self) -> Condition:
        negative = self._accept("mark", "-")
        kind, written = self._take("a value")
        if kind == "number":
            return self._number(f"-{written}" if negative else written)
        if negative:
            self._wrong("a minus can stand before a number, or between two values")
        if kind == "text":
            return Literal(written, pa.string())
        if (kind, written) == ("mark", "("):
            self._deeper()
            found = self._any()
            self._expect("mark", ")")
            return found
        if kind == "word":
            return self._worded(written)
        if kind == "mark":
            self._wrong(f"{written!r} is not understood here")
        return self._column(written)

    def _worded(self, written: str) -> Condition:
        word, following = written.upper(), self._peek()
        if word in ("TRUE", "FALSE"):
            return Literal(word.lower(), pa.bool_())
        if following == ("mark", "("):
            return self._function(written.lower())
        if word in _TYPED and following is not None and following[0] == "text":
            return self._typed(word)
        if word in _NO_COLUMNS:
            self._wrong(f"{word} is not understood here")
        return self._column(written)

    def _column(self, first: str) -> ColumnRef:
        path = [first]
        while self._accept("mark", "."):
            kind, name = self._take("a name of a field")
            if kind not in ("word", "quoted"):
                self._wrong("expected a name of a field")
            path.append(name)
        return ColumnRef(tuple(path))

    def _function(self, name: str) -> Call:
        if name not in FUNCTIONS:
            self._wrong(f"there are the functions {', '.join(FUNCTIONS)} alone")
        args = self._arguments()
        if len(args) not in FUNCTIONS[name]:
            self._wrong(f"{name} takes another number of values")
        return Call(name, args)

    def _arguments(self) -> tuple[Condition, ...]:
        self._deeper()
        self._expect("mark", "(")
        found = tuple(self._listed(self._any))
        self._expect("mark", ")")
        return found

    def _typed(self, word: str) -> Literal:
        _, written = self._take("a text in quotes")
        kind, form, check, example = _TYPED[word]
        if not form.fullmatch(written):
            self._wrong(f"{word} takes a text as {example!r}")
        try:
            check(written)
        except ValueError as error:
            self._wrong(f"{written!r}: {error}")
        return Literal(written, kind)

    def _number(self, written: str) -> Literal:
        """As Spark types it: INT, BIGINT, or a DECIMAL of these digits."""
        whole, _, fraction = written.partition(".")
        digits = len(whole.lstrip("-0")) + len(fraction)
        if digits > MOST_DIGITS:
            self._wrong(f"a number of more than {MOST_DIGITS} digits")
        bits = (int(whole) if int(whole) >= 0 else ~int(whole)).bit_length()
        kind = next((kind for kind in (pa.int32(), pa.int64()) if bits < kind.bit_width), None)
        if fraction or kind is None:
            kind = pa.decimal128(digits, len(fraction))
        return Literal(written, kind)

    def _deeper(self) -> None:
        """Count what may nest: Python's own stack is limited."""
        self._levels += 1
        if self._levels > _MOST_NESTED:
            self._wrong(f"more than {_MOST_NESTED} operations and parentheses")
