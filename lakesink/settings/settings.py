"""Parsed options of a stream or an append. Opens no catalog and reads no table.

Values of ``catalog_properties`` may be secrets: they stay in the driver and never appear in a `repr`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

from lakesink.rows.plan import AVRO, DEBEZIUM_AVRO, BinaryEncoding, OnMalformed
from lakesink.settings.change_rules import check_changes
from lakesink.settings.expectations import Expectation
from lakesink.settings.option_types import Deletes, LocateIn, OnLate, OutputMode, SchemaEvolution
from lakesink.settings.options import BY_NAME, OPTIONS, option_invalid, read_option
from lakesink.settings.table_settings import DEFAULTS_OF_CHANGES, Effective, unsupported_level
from lakesink_catalog.listeners import LISTENERS
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.events import Listener, PropertiesIgnored
from lakesink_protocol.identity import MAIN_BRANCH, SinkKind
from lakesink_protocol.redact import MASK, redact
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.row_changes import Mode
from lakesink_protocol.suggest import did_you_mean
from lakesink_protocol.tags import EveryBatches, EveryPeriod, TagEvery

PREPARED_MAX_AGE = timedelta(hours=20)
"""Shorter than the 24 hours for which other tools' orphan cleanups keep unreferenced files."""
_REQUIRED = ("sink_id", "checkpoint")


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
    schema: str = ""
    target_file_size_bytes: int | None = None
    compression_codec: str | None = None
    compression_level: int | None = None
    distribution_mode: str | None = None
    schema_evolution: SchemaEvolution = SchemaEvolution.FAIL
    max_new_columns: int = 100
    mode: Mode = Mode.APPEND
    keys: tuple[str, ...] = ()
    sequence_by: tuple[str, ...] = ()
    apply_as_deletes: str = ""
    except_column_list: tuple[str, ...] = ()
    deletes: Deletes = Deletes.HARD
    on_late: OnLate = OnLate.IGNORE
    changelog_table: str | None = None
    output_mode: OutputMode = OutputMode.APPEND
    locate_in: LocateIn = LocateIn.AUTO
    compact_small_files: bool = True
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
    _reported: set[str] = field(default_factory=set, init=False, compare=False)

    @classmethod
    def parse(cls, options: Mapping[str, Any], *, kind: SinkKind = SinkKind.STREAM) -> "Settings":
        """Settings from keyword options; None means that an option is not given.

        Args:
            options: The user's values by option name.
            kind: A stream must name its sink and checkpoint; an append has neither.

        Raises:
            SettingsError: An option is unknown, malformed, missing, or contradicts another.
        """
        given = {name: value for name, value in options.items() if value is not None}
        for name in given:
            _check_known(name, kind)
        settings = cls(**{name: read_option(name, value) for name, value in given.items()})
        if settings.decode and "schema_evolution" not in given:
            settings = replace(settings, schema_evolution=SchemaEvolution.IGNORE)
        if kind is SinkKind.STREAM:
            for name in _REQUIRED:
                if name not in given:
                    doc = f"{name}: {BY_NAME[name].doc}"
                    raise SettingsError("OPTION_MISSING", f"The option {name} is required.", action=doc)
        _check_agreement(settings, given)
        _check_tags(settings, given, kind)
        _check_decode(settings, given)
        check_changes(settings, given, kind)
        return settings

    @property
    def has_changes(self) -> bool:
        """True if rows replace or delete the row of their key."""
        return self.mode is not Mode.APPEND

    @property
    def shuffles_by_partition(self) -> bool:
        """True if rows of a partition are to come to one task."""
        return self.distribution_mode not in (None, "none")

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


def _check_known(name: str, kind: SinkKind) -> None:
    usable = [option.name for option in OPTIONS if kind is SinkKind.STREAM or not option.stream_only]
    if name in usable:
        return
    if name in BY_NAME:
        raise option_invalid(
            name, f"The option {name} is for streams only; an append is identified by txn=(app id, version)."
        )
    overriding = next((option.name for option in OPTIONS if option.table_property == name), None)
    hint = (
        f"Use the option {overriding}, which overrides this table property."
        if overriding
        else did_you_mean(str(name).replace("-", "_"), usable)
    )
    raise SettingsError(
        "OPTION_UNKNOWN",
        f"There is no option {str(name)[:60]!r}. {hint}"[:180],
        action=f"Options are {', '.join(usable)}.",
    )


def _check_agreement(settings: Settings, given: Mapping[str, Any]) -> None:
    if settings.partition_by and not settings.create_table:
        raise option_invalid(
            "partition_by", "The option partition_by needs create_table=True; an existing table keeps its partitions."
        )
    if not settings.ledger_tag and "ledger_tag_max_age" in given:
        raise option_invalid("ledger_tag_max_age", "The option ledger_tag_max_age needs ledger_tag, which is false.")
    level = settings.compression_level
    if level is not None and settings.compression_codec is not None:
        why = unsupported_level(settings.compression_codec, level)
        if why:
            raise option_invalid("compression_level", f"The option compression_level is {level}: {why}.")


def _check_tags(settings: Settings, given: Mapping[str, Any], kind: SinkKind) -> None:
    every = settings.tag_every
    if every is None and "tag_max_age" in given:
        raise option_invalid("tag_max_age", "The option tag_max_age needs tag_every: no batch is tagged without it.")
    if every is not None and not settings.ledger_tag:
        raise option_invalid(
            "tag_every", "The option tag_every needs a catalog that accepts tags, but ledger_tag is false."
        )
    if isinstance(every, EveryBatches) and kind is SinkKind.TXN:
        raise option_invalid(
            "tag_every", "The option tag_every counts batches, but versions of an append may leave gaps."
        )
    if isinstance(every, EveryPeriod) and timedelta(milliseconds=every.span_ms) > settings.tag_max_age:
        raise option_invalid("tag_max_age", "The option tag_max_age is shorter than tag_every: tags would leave gaps.")


def _check_decode(settings: Settings, given: Mapping[str, Any]) -> None:
    for name in ("binary_encoding", "rescue_column"):
        if settings.decode is None and name in given:
            raise option_invalid(name, f"The option {name} needs decode: without it nothing is decoded.")
    if "show_values" in given and settings.decode is None and not settings.has_changes:
        raise option_invalid("show_values", "The option show_values needs decode, or mode='upsert' or 'changes'.")
    is_avro = settings.decode in (AVRO, DEBEZIUM_AVRO)
    if is_avro != bool(settings.schema_registry):
        asks = settings.decode if is_avro else AVRO
        raise option_invalid("schema_registry", f"The options decode='{asks}' and schema_registry need each other.")
    if "max_new_columns" in given and not settings.follows_documents:
        raise option_invalid("max_new_columns", "The option max_new_columns needs decode and schema_evolution.")
    if settings.decode and settings.shuffles_by_partition:
        raise option_invalid(
            "distribution_mode",
            f"The options distribution_mode='{settings.distribution_mode}' and decode exclude each other: a document's"
            " partition is not known before it is decoded.",
        )
    if settings.schema and not settings.decode:
        raise option_invalid("schema", "The option schema needs decode: a DataFrame has a schema of its own.")
    if settings.schema and not settings.create_table:
        raise option_invalid(
            "schema", "The option schema needs create_table=True; without it, an existing table keeps its columns."
        )
