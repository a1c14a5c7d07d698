"""Which options need or exclude each other, and what entry points lack: one table, which errors and notes quote."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lakesink.rows.expectations import OnUnmet
from lakesink.rows.plan import AVRO, DEBEZIUM, DEBEZIUM_AVRO, OnMalformed
from lakesink.settings.option_types import OutputMode, SchemaEvolution
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.row_changes import Mode


class Entry(StrEnum):
    """A way into lakesink that takes these options, as users write it."""

    STREAM = "lakesink.stream"
    APPEND = "lakesink.append"
    UPSERT = "lakesink.upsert"
    REPLAY = "lakesink.replay_dead_letters"
    FORMAT_STREAM = 'writeStream.format("lakesink")'
    FORMAT_WRITE = 'write.format("lakesink")'


@dataclass(frozen=True, slots=True)
class Use:
    """An option that a user gives, or one that has one of some values."""

    option: str
    values: tuple[object, ...] = ()

    def found(self, values: Mapping[str, Any], given: Container[str]) -> str:
        """The use as a user's options have it; empty if they do not."""
        value = values.get(self.option)
        if not self.values:
            return self.option if self.option in given and value != "" else ""
        if isinstance(value, Mapping):  # expectations
            return next((f"{self} for {name}" for name, one in value.items() if one.on_unmet in self.values), "")
        return f"{self.option}={_spelled(value)}" if value in self.values else ""

    def is_part_of(self, other: "Use") -> bool:
        """True if the other use includes this one."""
        some = bool(self.values) and {*self.values} <= {*other.values}
        return self.option == other.option and (some or not other.values)

    def __str__(self) -> str:
        return f"{self.option}={' or '.join(map(_spelled, self.values))}" if self.values else self.option


@dataclass(frozen=True, slots=True)
class Relation:
    """A use that needs one of some others or, if it `excludes` them, none. Without others, some entry points lack it.

    Attributes:
        instead: What users can do without the use.
    """

    use: Use
    others: tuple[Use, ...] = ()
    why: str = ""
    instead: str = ""
    excludes: bool = False
    entries: tuple[Entry, ...] = tuple(Entry)

    def check(self, values: Mapping[str, Any], given: Container[str], entry: Entry = Entry.STREAM) -> None:
        """Refuse options that contradict the relation: their values in force, and the names that the user gave."""
        found = self.use.found(values, given)
        met = [shown for other in self.others if (shown := other.found(values, given))]
        if entry not in self.entries or not found or bool(met) != self.excludes:
            return
        if not self.others:
            raise self.lacked(entry, found)
        if self.excludes:
            raise self._error(f"The options {found} and {met[0]} exclude each other", "Leave one of them out.")
        option = self.others[0].option
        but = f", but {option} is {_spelled(values[option])}" if isinstance(values[option], StrEnum) else ""
        raise self._error(f"The option {found} needs {_listed(self.others)}{but}", self._advice(entry))

    def lacked(self, entry: Entry, named: str, code: str = "OPTION_INVALID") -> SettingsError:
        """The error for what an entry point lacks, by the name that the user has for it."""
        what = f"{entry} has no {'' if self.use.values else 'option '}{named}"
        return self._error(what, f"Leave it out. {self.instead}".rstrip(), code)

    def note(self) -> tuple[str, str]:
        """For the page of options: the use, empty for any of its option, and what holds for it."""
        if self.others:
            words, named = "not with" if self.excludes else "only with", [str(other) for other in self.others]
        else:
            rest = [str(entry) for entry in Entry if entry not in self.entries]
            words, named = ("only in", rest) if len(rest) < len(self.entries) else ("not in", [*map(str, self.entries)])
        uses = f"`{self.use}`" if self.use.values else ""
        of_some = f" in {_quoted(self.entries)}" if self.others and len(self.entries) < len(Entry) else ""
        return uses, f"{words} {_quoted(named)}{of_some}"

    def _advice(self, entry: Entry) -> str:
        lacking = [lack_of(other, entry) for other in self.others]
        possible = [other for other, lack in zip(self.others, lacking, strict=True) if lack is None]
        instead = self.instead or ("" if possible else " ".join(lack.instead for lack in lacking if lack))
        return f"Leave it out. {instead}" if instead else f"Leave it out, or give {_listed(possible)}."

    def _error(self, what: str, action: str, code: str = "OPTION_INVALID") -> SettingsError:
        what = f"{what}: {self.why}." if self.why else f"{what}."
        return SettingsError(code, what, action=action)


def lack_of(use: Use, entry: Entry) -> Relation | None:
    """Why an entry point lacks a use; None if it has it."""
    lacking = (one for one in RELATIONS if not one.others and entry in one.entries)
    return next((lack for lack in lacking if use.is_part_of(lack.use)), None)


def notes(option: str, relations: Iterable[Relation]) -> str:
    """Sentences about an option, for the page of options."""
    found: dict[str, list[str]] = {}
    for use, what in (relation.note() for relation in relations if relation.use.option == option):
        found.setdefault(use, []).append(what)
    sentences = [f"{use}: {'; '.join(parts)}." if use else f"{'; '.join(parts)}." for use, parts in found.items()]
    return "".join(f" {sentence[0].upper()}{sentence[1:]}" for sentence in sentences)


def needs(use: str | Use, *others: Use, **more: Any) -> Relation:
    """A use that needs one of some others."""
    return Relation(Use(use) if isinstance(use, str) else use, others, **more)


def excludes(use: str | Use, other: Use, why: str = "") -> Relation:
    """Two uses that exclude each other."""
    return needs(use, other, why=why, excludes=True)


def lacks(entries: tuple[Entry, ...], use: str | Use, why: str = "", instead: str = "") -> Relation:
    """A use that some entry points lack."""
    return needs(use, why=why, instead=instead, entries=entries)


def _listed(uses: Iterable[Use]) -> str:
    return ", or ".join(map(str, uses))


def _quoted(names: Iterable[str]) -> str:
    return " or ".join(f"`{one}`" for one in names)


def _spelled(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


BATCHES = (Entry.APPEND, Entry.UPSERT, Entry.REPLAY, Entry.FORMAT_WRITE)
_FORMAT = (Entry.FORMAT_STREAM, Entry.FORMAT_WRITE)
_DECODE, _EVENTS, _OF_AVRO = Use("decode"), Use("decode", DEBEZIUM), Use("decode", (AVRO, DEBEZIUM_AVRO))
_TAG_EVERY, _NO_TAG, _CREATES = Use("tag_every"), Use("ledger_tag", (False,)), Use("create_table", (True,))
_APPEND, _UPSERT, _CHANGES = (Use("mode", (mode,)) for mode in Mode)
_BY_KEY, _DELETES = Use("mode", (Mode.UPSERT, Mode.CHANGES)), Use("apply_as_deletes")
_SHUFFLES = Use("distribution_mode", ("hash", "range"))
_MALFORMED, _UNMET = Use("on_malformed", (OnMalformed.QUARANTINE,)), Use("expect", (OnUnmet.QUARANTINE,))
_STOPS = Use("schema_evolution", (SchemaEvolution.FAIL,))
_GROWS = Use("schema_evolution", (SchemaEvolution.ADD, SchemaEvolution.WIDEN))
_FOLLOWS = Use("schema_evolution", (*_GROWS.values, *_STOPS.values))

_OF_CHANGES = ("keys", "sequence_by", "except_column_list", "on_late", "on_absent", "changelog_table", "locate_in")
_OF_ROWS = 'Without decode, add them to the rows: lakesink.with_expectations(df, {...}).writeStream.format("lakesink").'
_REPLAYED = "a repaired row that is replayed must not replace a newer one"

RELATIONS = (
    *(lacks(BATCHES, name, "an application id and a version identify a batch") for name in ("sink_id", "checkpoint")),
    lacks(
        (*BATCHES, Entry.FORMAT_STREAM),
        "output_mode",
        "only lakesink.stream sets the output mode of a query",
        "For results that replace earlier ones, use lakesink.stream.",
    ),
    lacks(
        _FORMAT, _SHUFFLES, "it gets the rows as they are distributed", "lakesink.stream and lakesink.append have it."
    ),
    lacks(
        _FORMAT,
        "metrics",
        "it commits in short processes, which nobody can read",
        "lakesink watch TABLE --metrics reads them from the table.",
    ),
    lacks(_FORMAT, "openlineage", "it commits in short processes, which end before an event is sent"),
    lacks(tuple(one for one in Entry if one is not Entry.REPLAY), "on_absent", "its changes come in their own batches"),
    lacks((Entry.APPEND,), _BY_KEY, instead="To replace or delete rows by key, use lakesink.upsert."),
    lacks((Entry.UPSERT,), _APPEND, instead="To append rows, use lakesink.append."),
    *(lacks((Entry.REPLAY,), use, "its rows were put aside before") for use in (_MALFORMED, _UNMET)),
    needs(Use("output_mode", (OutputMode.UPDATE,)), _UPSERT, why="a result replaces an earlier one by its key"),
    *(needs(name, _BY_KEY, why="an append replaces and deletes no row") for name in _OF_CHANGES),
    *(needs(use, _CHANGES, why="no other mode deletes rows") for use in (_DELETES, "deletes", _EVENTS)),
    needs(_CHANGES, _DELETES, _EVENTS, why="they say which rows are deletes"),
    excludes(_DELETES, _EVENTS, "the events say which rows are deletes"),
    *(needs(use, _APPEND, Use("sequence_by"), why=_REPLAYED) for use in (_MALFORMED, _UNMET)),
    needs(_SHUFFLES, _APPEND, instead="One task gets all changes of a key, unless decode is set."),
    excludes("except_column_list", _EVENTS, "the events have rows of the table"),
    needs(
        "expect",
        _DECODE,
        why="Spark evaluates conditions before its rows reach the format",
        instead=_OF_ROWS,
        entries=_FORMAT,
    ),
    needs("on_late", Use("sequence_by"), why="without it, no change is late"),
    needs(_BY_KEY, Use("sequence_by"), why=_REPLAYED, entries=(Entry.REPLAY,)),
    needs("partition_by", _CREATES, why="an existing table keeps its partitions"),
    needs("sort_by", _CREATES, why="an existing table keeps its order"),
    excludes("ledger_tag_max_age", _NO_TAG),
    needs("tag_max_age", _TAG_EVERY, why="no batch is tagged without it"),
    excludes(_TAG_EVERY, _NO_TAG, "a catalog that refuses the one tag refuses the others"),
    *(needs(use, _DECODE, why="nothing else is decoded") for use in ("binary_encoding", "rescue_column")),
    needs("show_values", _DECODE, _BY_KEY),
    needs(_OF_AVRO, Use("schema_registry"), why="it has the writers' schemas"),
    needs("schema_registry", _OF_AVRO, why="nothing else has writers' schemas"),
    *(needs("max_new_columns", other) for other in (_DECODE, _FOLLOWS)),
    excludes(_SHUFFLES, _DECODE, "a document's partition is not known before it is decoded"),
    needs("schema", _DECODE, why="a DataFrame has a schema of its own"),
    needs("schema", _CREATES, why="an existing table keeps its columns"),
)
"""In the order in which they are checked."""
