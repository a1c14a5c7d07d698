"""Parsed options of a stream or an append. Opens no catalog and reads no table.

Values of ``catalog_properties`` may be secrets: they stay in the driver and never appear in a `repr`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Literal

from lakesink.rows.plan import BinaryEncoding, OnMalformed
from lakesink.settings.conditions import read_condition
from lakesink.settings.option import option_unknown
from lakesink.settings.option_types import Deletes, LocateIn, OnAbsent, OnLate, OutputMode, SchemaEvolution
from lakesink.settings.options import BY_NAME, OPTIONS, option_invalid, read_option
from lakesink.settings.options_of_rows import Expectation
from lakesink.settings.relations import BATCHES, RELATIONS, Entry, Use, lack_of
from lakesink.settings.table_settings import DEFAULTS_OF_CHANGES, Effective
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.events import Listener, PropertiesIgnored
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_protocol.redact import MASK, redact
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.row_changes import Mode
from lakesink_protocol.suggest import did_you_mean
from lakesink_protocol.tags import EveryBatches, EveryPeriod, TagEvery

PREPARED_MAX_AGE = timedelta(hours=20)
"""Shorter than the 24 hours for which other tools' orphan cleanups keep unreferenced files."""
_REQUIRED = ("sink_id", "checkpoint")
POLICY = "lakesink.policy"
"""Summary property: a JSON object with those of the options below that are not defaults; absent if all are."""
POLICY_OPTIONS = (
    *("decode", "schema_evolution", "on_malformed", "rescue_column", "dead_letter_table"),
    *("mode", "deletes", "output_mode"),
)
POLICY_LISTS = ("keys", "sequence_by")
_LONGEST_POLICY = 2_000


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """Parsed options; None means that the user gave no value. The fields are the names in `OPTIONS`."""

    sink_id: str = ""
    checkpoint: str = ""
    catalog: str | None = None
    catalog_properties: Mapping[str, Any] = field(default_factory=dict)
    branch: str = MAIN_BRANCH
    create_table: bool = False
    partition_by: str | None = None
    sort_by: str | None = None
    schema: str = ""
    target_file_size_bytes: int | None = None
    compression_codec: str | None = None
    compression_level: int | None = None
    distribution_mode: str | None = None
    maintenance: Mapping[str, Any] | Literal[False] | None = None
    schema_evolution: SchemaEvolution = SchemaEvolution.FAIL
    max_new_columns: int = 100
    mode: Mode = Mode.APPEND
    keys: tuple[str, ...] = ()
    sequence_by: tuple[str, ...] = ()
    apply_as_deletes: str = ""
    except_column_list: tuple[str, ...] = ()
    deletes: Deletes = Deletes.HARD
    on_late: OnLate = OnLate.IGNORE
    on_absent: OnAbsent = OnAbsent.FAIL
    changelog_table: str | None = None
    output_mode: OutputMode = OutputMode.APPEND
    locate_in: LocateIn = LocateIn.AUTO
    expect: Mapping[str, Expectation] = field(default_factory=dict)
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    accept: Accept | None = None
    prepared_max_age: timedelta = PREPARED_MAX_AGE
    ledger_tag_max_age: timedelta = timedelta(days=30)
    ledger_tag: bool = True
    max_clock_ahead: timedelta = timedelta(minutes=1)
    tag_every: TagEvery | None = None
    tag_max_age: timedelta = timedelta(days=365)
    decode: str | None = None
    on_malformed: OnMalformed = OnMalformed.FAIL
    binary_encoding: BinaryEncoding | None = None
    dead_letter_table: str | None = None
    max_dead_letters: int | None = None
    max_dead_letter_ratio: float = 0.5
    rescue_column: str = ""
    show_values: bool = False
    schema_registry: str = ""
    verbose: bool | None = None
    metrics: str | None = None
    openlineage: bool | None = None
    _reported: set[str] = field(default_factory=set, init=False, compare=False)

    @classmethod
    def parse(cls, options: Mapping[str, Any], *, entry: Entry = Entry.STREAM) -> "Settings":
        """Settings from keyword options; None means that an option is not given.

        Args:
            options: The user's values by option name.
            entry: Where the user gave them. A stream must name its sink and checkpoint; a batch has neither.

        Raises:
            SettingsError: An option is unknown, malformed, missing, or contradicts another.
        """
        given = {name: value for name, value in options.items() if value is not None}
        for name in given:
            _check_known(name, entry)
        settings = cls(**{name: read_option(name, value) for name, value in given.items()})
        if settings.decode and "schema_evolution" not in given:
            settings = replace(settings, schema_evolution=SchemaEvolution.IGNORE)
        for name in _REQUIRED:
            if name not in given and entry not in BATCHES:
                raise SettingsError.of("OPTION_MISSING", name=name, doc=BY_NAME[name].doc)
        values = {name: getattr(settings, name) for name in BY_NAME}
        for relation in RELATIONS:
            relation.check(values, given, entry)
        for name, why in _compared(settings, of_stream=entry not in BATCHES):
            raise option_invalid(name, f"The option {name} {why}.")
        conditions = {name: one.condition for name, one in settings.expect.items()}
        if settings.apply_as_deletes:
            conditions["apply_as_deletes"] = settings.apply_as_deletes
        for name, condition in conditions.items() if settings.decode else ():
            read_condition(name, condition)
        if settings.compression_codec is not None:
            settings.effective({})  # the codec may lack the level
        return settings

    @property
    def has_changes(self) -> bool:
        """True if rows replace or delete the row of their key."""
        return self.mode is not Mode.APPEND

    @property
    def maintains(self) -> bool:
        """True if the tables are maintained between batches."""
        return self.has_changes if self.maintenance is None else self.maintenance is not False

    @property
    def follows_documents(self) -> bool:
        """True if keys of documents without a column are more than counted."""
        return self.decode is not None and self.schema_evolution is not SchemaEvolution.IGNORE

    def effective(self, table_properties: Mapping[str, str], emit: Listener = LISTENERS) -> Effective:
        """Settings in force for a table; warns once about each table property that lakesink ignores.

        Raises:
            SettingsError: A table property that lakesink uses is malformed.
        """
        overriding = {option.table_property: getattr(self, option.name) for option in OPTIONS if option.table_property}
        defaults = DEFAULTS_OF_CHANGES if self.has_changes else None
        effective = Effective.of(overriding, table_properties, defaults)
        ignored = [name for name in effective.ignored() if name not in self._reported]
        if ignored:
            self._reported.update(ignored)
            emit(PropertiesIgnored(tuple(ignored)))
        return effective

    def __repr__(self) -> str:
        shown = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "_reported"}
        shown["catalog_properties"] = dict.fromkeys(self.catalog_properties, MASK)
        return f"Settings({', '.join(f'{name}={redact(repr(value))}' for name, value in shown.items())})"


def policy_of(settings: Settings) -> dict[str, str]:
    """What a query does with rows that do not fit and with changes by key, for its snapshots; empty if the default."""
    defaults = Settings()
    found = {name: getattr(settings, name) for name in (*POLICY_OPTIONS, *POLICY_LISTS)}
    chosen = {name: value for name, value in found.items() if value != getattr(defaults, name)}
    if settings.decode:
        chosen["schema_evolution"] = settings.schema_evolution
    return {POLICY: json.dumps(chosen, separators=(",", ":"), ensure_ascii=False)} if chosen else {}


def read_policy(text: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The options with a text and those with a list in such a property, which others may have written."""
    try:
        document: Any = json.loads(text[:_LONGEST_POLICY]) if text else {}
    except (ValueError, RecursionError):
        return {}, {}
    found = document if isinstance(document, dict) else {}
    lists = {name: found[name] for name in POLICY_LISTS if isinstance(found.get(name), list)}
    return (
        {name: found[name] for name in POLICY_OPTIONS if isinstance(found.get(name), str)},
        {name: [one for one in values if isinstance(one, str)] for name, values in lists.items()},
    )


def _check_known(name: str, entry: Entry) -> None:
    lack = lack_of(Use(name), entry)
    if lack is not None:
        raise lack.lacked(entry, name)
    if name in BY_NAME:
        return
    usable = [option.name for option in OPTIONS if lack_of(Use(option.name), entry) is None]
    overriding = next((option.name for option in OPTIONS if option.table_property == name), None)
    hint = f"Use the option {overriding}, which overrides this table property." if overriding else ""
    raise option_unknown(entry, name, usable, hint or did_you_mean(name.replace("-", "_"), usable))


def _compared(settings: Settings, *, of_stream: bool) -> Iterator[tuple[str, str]]:
    """The options whose values contradict those of others, and why."""
    match settings.tag_every:
        case EveryBatches() if not of_stream:
            yield "tag_every", "counts batches, but versions of an append may leave gaps"
        case EveryPeriod(span_ms) if timedelta(milliseconds=span_ms) > settings.tag_max_age:
            yield "tag_max_age", "is shorter than tag_every: tags would leave gaps"
    left_out = {name.casefold() for name in settings.except_column_list}
    for option in ("keys", "sequence_by", "rescue_column"):
        given = getattr(settings, option)
        for name in [given] if isinstance(given, str) else given:
            if name.casefold() in left_out:
                yield "except_column_list", f"has {name[:60]!r}, a column of {option}"
