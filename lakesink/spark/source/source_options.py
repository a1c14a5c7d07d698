"""Options of ``format("lakesink")``: the options of a stream or an append, with dashes and without secrets.

Spark keeps a query's options in its plan, which appears in errors, in the web UI and in event logs.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lakesink.settings.option import option_unknown
from lakesink.settings.options import OPTIONS
from lakesink.settings.relations import Entry, Use, lack_of
from lakesink.settings.settings import Settings
from lakesink_catalog.tables.tables import parse_identifier
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.identity import NAME_PATTERN, Batch, SinkKey, SinkKind, transaction_batch
from lakesink_protocol.redact import contains_secret
from lakesink_protocol.suggest import did_you_mean

TABLE, CHECKPOINT, APP_ID, VERSION = "table", "checkpointlocation", "txn-app-id", "txn-version"
_OF_SPARK = frozenset({"queryname"})
_GROUPS = {"catalog.": "catalog_properties", "snapshot-property.": "snapshot_properties"}
_NAMED = {
    CHECKPOINT if option.name == "checkpoint" else option.name.replace("_", "-"): option
    for option in OPTIONS
    if option.name not in _GROUPS.values()
}
_PYTHON_NAMES = re.compile(rf"\b(?:{'|'.join(option.name for option in _NAMED.values() if '_' in option.name)})\b")


@dataclass(frozen=True, slots=True)
class Destination:
    """Table, sink and settings, as parsed from the options."""

    table: str
    key: SinkKey
    settings: Settings


def stream_destination(options: Mapping[str, str]) -> Destination:
    """Parse the options of a stream; their letter case does not matter."""
    given = _checked(options, Entry.FORMAT_STREAM)
    if CHECKPOINT not in given:
        raise SettingsError.of("OPTION_MISSING.checkpoint")
    settings = _settings(given, Entry.FORMAT_STREAM)
    return Destination(given[TABLE], SinkKey(settings.sink_id, settings.branch), settings)


def transaction_destination(options: Mapping[str, str]) -> tuple[Destination, Batch]:
    """Parse the options of a batch write; the batch id is the version of its application."""
    given = _checked(options, Entry.FORMAT_WRITE)
    name, version = given.get(APP_ID, ""), given.get(VERSION, "")
    if not NAME_PATTERN.fullmatch(name) or not re.fullmatch(r"\d{1,18}", version, re.ASCII):
        lacks = APP_ID not in given or VERSION not in given
        raise SettingsError.of("OPTION_MISSING.txn" if lacks else "OPTION_INVALID.txn_options")
    settings = _settings(given, Entry.FORMAT_WRITE)
    key = SinkKey(name, settings.branch, SinkKind.TXN)
    return Destination(given[TABLE], key, settings), transaction_batch(int(version))


def _checked(options: Mapping[str, str], entry: Entry) -> dict[str, str]:
    given = {key.lower(): value for key, value in options.items() if key.lower() not in _OF_SPARK}
    lacks = {name: lack for name, option in _NAMED.items() if (lack := lack_of(Use(option.name), entry))}
    known = {TABLE, *_NAMED} - {*lacks} | ({APP_ID, VERSION} if entry is Entry.FORMAT_WRITE else set())
    for key, value in given.items():
        if contains_secret(key, value):
            raise SettingsError.of("OPTION_SECRET", key=key[:60])
        if key in lacks:
            raise lacks[key].lacked(entry, key, "OPTION_UNKNOWN")
        if key not in known and not any(key.startswith(group) and key != group for group in _GROUPS):
            near = did_you_mean(key.replace("_", "-"), known)
            raise option_unknown(entry, key, sorted(known), near, ", catalog.<property> and snapshot-property.<name>")
    if TABLE not in given:
        raise SettingsError.of("OPTION_MISSING.table")
    parse_identifier(given[TABLE])
    return given


def _settings(given: Mapping[str, str], entry: Entry) -> Settings:
    named: dict[str, Any] = {option.name: given[name] for name, option in _NAMED.items() if name in given}
    for group, python in _GROUPS.items():
        members = {key.removeprefix(group): value for key, value in given.items() if key.startswith(group)}
        named |= {python: members} if members else {}
    with spelled_for_spark():
        return Settings.parse(named, entry=entry)


@contextmanager
def spelled_for_spark() -> Iterator[None]:
    """Let errors name the options as the format does."""
    try:
        yield
    except (SettingsError, CatalogError) as error:
        code, ways = error.code.removeprefix("LAKESINK_"), [_spelled(way) for way in error.choices or (error.action,)]
        raise type(error)(code, _spelled(error.what), data=_spelled(error.data), action=ways) from None


def _spelled(text: str) -> str:
    return _PYTHON_NAMES.sub(lambda found: found[0].replace("_", "-"), text)
