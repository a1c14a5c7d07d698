"""The JSON of a table's metadata without its snapshots, and the snapshots in a form that needs little memory. Pure.

A snapshot as PyIceberg's object takes several times the memory of its text, and most of the time to load a table with a
long history. `set_apart` reads the text piece by piece. It accepts only what PyIceberg reads as the same values. For
anything else it raises `NotLean`, and PyIceberg has to read the whole text.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Never

from pyiceberg.table.snapshots import Operation, Snapshot, Summary

_SPACES = " \t\n\r"
_SPACE = re.compile(f"[{_SPACES}]*")
_BEGINNING = 12
"""Characters by which the next item of a list is found: its bracket and most of its first key."""
_BETWEEN = "\0"
_UNUSUAL = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")
"""Half a character, which PyIceberg refuses, or `_BETWEEN`; JSON has no other form for the latter."""
_OPERATIONS = frozenset(operation.value for operation in Operation)
_REQUIRED = ("snapshot-id", "timestamp-ms")
_OPTIONAL = ("parent-snapshot-id", "sequence-number", "schema-id", "first-row-id", "added-rows")
_LOG_KEYS = frozenset(("snapshot-id", "timestamp-ms"))
_MAY_BE_NULL = frozenset({int, type(None)})
_SCALARS = frozenset({str, int, float, bool, type(None)})
_TEXTS = frozenset({str})
_BY_NAME = frozenset(Snapshot.model_fields) - {"summary"}
"""Names of PyIceberg's fields. PyIceberg accepts them as keys of a snapshot too, but no writer uses them."""


class NotLean(ValueError):
    """The text is not JSON, or has a form that only PyIceberg may judge."""


class LeanSummary(dict[str, str]):
    """A snapshot's summary, read as PyIceberg's: a key that is not there is None."""

    def __missing__(self, _: str) -> None:
        return None

    @property
    def operation(self) -> Operation:
        """The operation."""
        return Operation(self["operation"])

    @property
    def additional_properties(self) -> "LeanSummary":
        """Every property."""
        return self


class LeanSnapshot(NamedTuple):
    """A snapshot, with the names of PyIceberg's `Snapshot`; all its texts are one, and the keys of many are shared."""

    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int | None
    timestamp_ms: int
    schema_id: int | None
    first_row_id: int | None
    added_rows: int | None
    keys: tuple[str, ...] | None  # of the summary; None without a summary
    texts: str  # location of the manifest list, and the values of the summary

    @property
    def manifest_list(self) -> str:
        """Location of the manifest list."""
        return self.texts.partition(_BETWEEN)[0]

    @property
    def summary(self) -> LeanSummary | None:
        """The summary, made anew by every call."""
        return None if self.keys is None else LeanSummary(zip(self.keys, self.texts.split(_BETWEEN)[1:], strict=True))

    def whole(self) -> Snapshot:
        """PyIceberg's object."""
        named = {key: value for key, value in self._asdict().items() if key not in ("keys", "texts")}
        summary = None if self.summary is None else Summary(**self.summary)  # type: ignore[arg-type] # a text, validated
        return Snapshot(**named, manifest_list=self.manifest_list, summary=summary)


class LeanLogEntry(NamedTuple):
    """A change of the main branch's head."""

    snapshot_id: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SetApart:
    """Metadata in parts.

    Attributes:
        rest: The text with empty lists in place of the parts below.
        lists: ``snapshots`` and ``snapshot_log``, as far as the text has them.
    """

    rest: str
    lists: Mapping[str, list[Any]]


def set_apart(pieces: Iterator[str], *, inside: str = "") -> SetApart:
    """Read the JSON of a table's metadata, or of an answer that has the metadata under the key `inside`."""
    text = _Text(pieces)
    rest: list[str] = []
    found: dict[str, list[Any]] = {}
    try:
        if inside:
            for key in _keys(text, rest):
                if key != inside:
                    rest.append(text.value()[1])
                elif found:
                    raise NotLean("two tables")
                else:
                    _metadata(text, rest, found)
        else:
            _metadata(text, rest, found)
    except RecursionError as error:
        raise NotLean("nested too deeply") from error
    if not text.is_at_end():
        raise NotLean("text after the end")
    return SetApart("".join(rest), {key.replace("-", "_"): items for key, items in found.items()})


def _metadata(text: "_Text", rest: list[str], found: dict[str, list[Any]]) -> None:
    kinds = {"snapshots": _snapshot, "snapshot-log": _log_entry}
    for key in _keys(text, rest):
        if key in found or key == "snapshot_log":
            raise NotLean("a key in two spellings or twice")
        if key in kinds:
            found[key] = list(map(kinds[key], _items(text)))
            rest.append("[]")
        else:
            rest.append(text.value()[1])


def _keys(text: "_Text", rest: list[str]) -> Iterator[str]:
    """The keys of an object, each when its value is next; the caller passes the value."""
    text.expect("{")
    rest.append("{")
    follows = False
    while not text.takes("}"):
        if follows:
            text.expect(",")
            rest.append(",")
        key, raw = text.value()
        if not isinstance(key, str):
            raise NotLean("a key is no text")
        text.expect(":")
        rest.append(f"{raw}:")
        yield key
        follows = True
    rest.append("}")


def _items(text: "_Text") -> Iterator[Any]:
    """The items of a list. Neighbours mostly begin alike, so one call decodes all that have arrived."""
    text.expect("[")
    if text.takes("]"):
        return
    while True:
        value, raw = text.value()
        _check_characters(raw)
        yield value
        values, raw = text.values_before_last(raw[:_BEGINNING])
        _check_characters(raw)
        yield from values
        if not values:
            if text.takes("]"):
                return
            text.expect(",")


def _check_characters(raw: str) -> None:
    if "\\u" in raw and _UNUSUAL.search(raw):
        raise NotLean("unusual characters")


def _snapshot(value: Any) -> LeanSnapshot:
    if type(value) is not dict:
        raise NotLean("a snapshot is no object")
    summary = value.pop("summary", None)
    _check_form(tuple(value), tuple(map(type, value.values())))
    location = value["manifest-list"]
    keys = None
    if summary is not None:
        if type(summary) is not dict or not _TEXTS.issuperset(map(type, summary.values())):
            raise NotLean("a summary with other values than texts")
        if summary.get("operation") not in _OPERATIONS:
            raise NotLean("a summary without a known operation")
        keys = _shared(tuple(summary))
    return LeanSnapshot(
        value["snapshot-id"],
        value.get("parent-snapshot-id"),
        value.get("sequence-number", 0),
        value["timestamp-ms"],
        value.get("schema-id"),
        value.get("first-row-id"),
        value.get("added-rows"),
        keys,
        location if summary is None else _BETWEEN.join((location, *summary.values())),
    )


@lru_cache(maxsize=1024)
def _check_form(keys: tuple[str, ...], types: tuple[type, ...]) -> None:
    """Refuse other keys and types of a snapshot than writers use; most snapshots of a table have the same."""
    found = dict(zip(keys, types, strict=True))
    if any(found.get(key) is not int for key in _REQUIRED):
        raise NotLean("a snapshot lacks a number")
    if any(found.get(key, int) not in _MAY_BE_NULL for key in _OPTIONAL):
        raise NotLean("a number of a snapshot is none")
    if found.get("manifest-list") is not str or not _BY_NAME.isdisjoint(keys):
        raise NotLean("a snapshot without a manifest list, or with keys in another spelling")
    if not _SCALARS.issuperset(types):
        raise NotLean("a snapshot with an unknown structure")


@lru_cache(maxsize=1024)
def _shared(keys: tuple[str, ...]) -> tuple[str, ...]:
    """One object for all summaries with the same keys."""
    if "self" in keys or any(key.lower() == "operation" != key for key in keys):
        raise NotLean("a summary with keys that PyIceberg takes for others")
    return keys


def _log_entry(value: Any) -> LeanLogEntry:
    if type(value) is not dict or value.keys() != _LOG_KEYS or {type(number) for number in value.values()} != {int}:
        raise NotLean("an entry of the log with other fields")
    return LeanLogEntry(value["snapshot-id"], value["timestamp-ms"])


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is not JSON")


class _Text:
    """JSON text that arrives in pieces; what was passed is dropped."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._buffer = ""
        self._at = 0
        self._tried_to = 0
        self._decode = json.JSONDecoder(parse_constant=_refuse).raw_decode

    def is_at_end(self) -> bool:
        """True if only white space is left."""
        return self._next() == ""

    def takes(self, char: str) -> bool:
        """Pass the next character, if it is this one."""
        found = self._next() == char
        self._at += found
        return found

    def expect(self, char: str) -> None:
        """Pass this character."""
        if not self.takes(char):
            raise NotLean(f"no {char}")

    def value(self) -> tuple[Any, str]:
        """Pass a value; returns it, and its text."""
        self._next()
        while True:
            try:
                value, end = self._decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                # Twice as much each time: what was read is decoded again.
                if not self._more(len(self._buffer) - self._at):
                    raise NotLean("not JSON") from error
                continue
            except ValueError as error:  # a number of thousands of digits, or one that JSON does not have
                raise NotLean("an unusual number") from error
            if end < len(self._buffer) or not self._more():  # else a number may go on
                raw = self._buffer[self._at : end]
                self._at = end
                return value, raw

    def values_before_last(self, beginning: str) -> tuple[list[Any], str]:
        """Pass the values after a comma, with the comma behind them, if they are followed by one that begins like this.

        Returns the values, and their text. Looks only at what has arrived, and once: returns none if that is not JSON,
        or goes beyond the end of the list.
        """
        end = self._buffer.rfind(beginning, self._at) if self._at >= self._tried_to else -1
        if end < 0:
            return [], ""
        self._tried_to = end
        raw = self._buffer[self._at : end].strip(_SPACES)
        if len(raw) < len(",,") or raw[0] != "," or raw[-1] != ",":
            return [], ""
        listed = f"[{raw[1:-1]}]"
        try:
            values, length = self._decode(listed)
        except ValueError:  # the values are decoded one by one, and that tells what is wrong
            return [], ""
        if not values or length < len(listed):
            return [], ""
        self._at = end
        return values, raw

    def _next(self) -> str:
        char = self._buffer[self._at : self._at + 1]
        if char and char not in _SPACES:
            return char
        while True:
            space = _SPACE.match(self._buffer, self._at)
            assert space is not None, "matches also nothing"
            self._at = space.end()
            if self._at < len(self._buffer) or not self._more():
                return self._buffer[self._at : self._at + 1]

    def _more(self, wanted: int = 1) -> bool:
        """Read at least so many characters, if there are so many; False if there are none."""
        found, size = [self._buffer[self._at :]], 0
        while size < wanted and (piece := next(self._pieces, None)) is not None:
            found.append(piece)
            size += len(piece)
        if size:
            self._buffer, self._at, self._tried_to = "".join(found), 0, 0
        return size > 0
