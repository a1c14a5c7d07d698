"""Which options of changes need or exclude each other."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakesink.rows.expectations import OnUnmet
from lakesink.rows.plan import DEBEZIUM, OnMalformed
from lakesink.settings.option_types import OutputMode, SchemaEvolution
from lakesink.settings.options import option_invalid
from lakesink_protocol.identity import SinkKind
from lakesink_protocol.row_changes import Mode

if TYPE_CHECKING:
    from lakesink.settings.settings import Settings

_OF_CHANGES = (
    *("keys", "sequence_by", "apply_as_deletes", "except_column_list", "deletes"),
    *("on_late", "changelog_table", "locate_in", "compact_small_files"),
)
_NOT_WITH_CHANGES = ("dead_letter_table", "max_dead_letters", "max_dead_letter_ratio", "rescue_column")
_INSTEAD = {
    "on_malformed": "A malformed document stops the query. Correct such documents at their source, or filter them in"
    " the query.",
    "expect": "Use 'fail' or 'warn', or filter such rows in the query.",
    "schema_evolution": "Change the table with ALTER TABLE. With decode, add a column before the source writes it: a"
    " key without a column is left out and counted, and the warning lakesink.decode.unknown-keys names it.",
    "distribution_mode": "One task gets all changes of a key, unless decode is set.",
}
"""What changes have in the place of an option."""
_EVENTS = "or decode='debezium-json' or 'debezium-avro'"


def check_changes(settings: "Settings", given: Mapping[str, Any], kind: SinkKind) -> None:
    """Check the options of changes, and those that changes exclude; `given` has what the user gave."""
    _check_output_mode(settings, given, kind)
    match settings.mode:
        case Mode.APPEND:
            _check_append(settings, given)
            return
        case Mode.UPSERT:
            _check_upsert(settings, given)
        case Mode.CHANGES:
            _check_operations(settings)
    _check_columns(settings, given)
    _check_excluded(settings, given)


def _check_output_mode(settings: "Settings", given: Mapping[str, Any], kind: SinkKind) -> None:
    if "output_mode" in given and kind is SinkKind.TXN:
        raise option_invalid("output_mode", "The option output_mode is for streams only.")
    if settings.output_mode is OutputMode.UPDATE and settings.mode is not Mode.UPSERT:
        raise option_invalid(
            "output_mode",
            "The option output_mode='update' needs mode='upsert': a result replaces an earlier one by its key.",
        )


def _check_append(settings: "Settings", given: Mapping[str, Any]) -> None:
    for name in _OF_CHANGES:
        if name in given:
            needed = "mode='changes'" if name in ("apply_as_deletes", "deletes") else "mode='upsert' or 'changes'"
            raise option_invalid(name, f"The option {name} needs {needed}: an append replaces and deletes no row.")
    if settings.decode in DEBEZIUM:
        raise option_invalid(
            "decode", f"The option decode='{settings.decode}' needs mode='changes': its events delete rows too."
        )


def _check_upsert(settings: "Settings", given: Mapping[str, Any]) -> None:
    for name in ("apply_as_deletes", "deletes"):
        if name in given:
            raise option_invalid(name, f"The option {name} needs mode='changes': with 'upsert', no row is a delete.")
    if settings.decode in DEBEZIUM:
        raise option_invalid(
            "decode", f"The option decode='{settings.decode}' needs mode='changes': 'upsert' would store deletes."
        )


def _check_operations(settings: "Settings") -> None:
    events = settings.decode in DEBEZIUM
    if not events and not settings.apply_as_deletes:
        raise option_invalid("apply_as_deletes", f"The option mode='changes' needs apply_as_deletes {_EVENTS}.")
    if settings.decode and settings.apply_as_deletes:
        raise option_invalid(
            "apply_as_deletes", f"The options apply_as_deletes and decode='{settings.decode}' exclude each other."
        )


def _check_columns(settings: "Settings", given: Mapping[str, Any]) -> None:
    left_out = {name.casefold() for name in settings.except_column_list}
    if left_out and settings.decode:
        raise option_invalid(
            "except_column_list",
            "The option except_column_list excludes decode: a document's key without a column is left out already.",
        )
    for option in ("keys", "sequence_by"):
        stored = next((name for name in getattr(settings, option) if name.casefold() in left_out), None)
        if stored is not None:
            raise option_invalid(
                "except_column_list", f"The option except_column_list has {stored[:60]!r}, a column of {option}."
            )
    if "on_late" in given and not settings.sequence_by:
        raise option_invalid("on_late", "The option on_late needs sequence_by: without it, no change is late.")


def _check_excluded(settings: "Settings", given: Mapping[str, Any]) -> None:
    """Options that lakesink has for appends only."""
    for name in _NOT_WITH_CHANGES:
        if name in given:
            raise _excluded(settings, name, f"The option {name}")
    if settings.on_malformed is not OnMalformed.FAIL:
        raise _excluded(settings, "on_malformed", f"The option on_malformed='{settings.on_malformed}'")
    aside = next((name for name, one in settings.expect.items() if one.on_unmet is OnUnmet.QUARANTINE), None)
    if aside is not None:
        raise _excluded(settings, "expect", f"'quarantine' of the expectation {aside}")
    if settings.follows_documents or settings.schema_evolution in (SchemaEvolution.ADD, SchemaEvolution.WIDEN):
        of_documents = " with decode" if settings.schema_evolution is SchemaEvolution.FAIL else ""
        what = f"The option schema_evolution='{settings.schema_evolution}'{of_documents}"
        raise _excluded(settings, "schema_evolution", what)
    if settings.shuffles_by_partition:
        what = f"The option distribution_mode='{settings.distribution_mode}'"
        raise _excluded(settings, "distribution_mode", what)


def _excluded(settings: "Settings", name: str, what: str) -> Exception:
    return option_invalid(
        name,
        f"{what} is for mode='append' only, and mode is '{settings.mode}'.",
        f"Leave it out. {_INSTEAD.get(name, '')}".rstrip(),
    )
