"""Options are read or refused with a hint; what is in force for a table remembers where it comes from."""

import logging
import math
from dataclasses import fields
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesink.settings.option_types import Deletes, LocateIn, Options, OutputMode
from lakesink.settings.options import BY_NAME, OPTIONS, read_option
from lakesink.settings.parse import duration, size_bytes, switch, whole_number
from lakesink.settings.relations import RELATIONS, Entry
from lakesink.settings.settings import Settings
from lakesink.settings.table_settings import (
    DEFAULTS_OF_CHANGES,
    MIN_COUNT_TO_MERGE,
    PROPERTIES,
    Effective,
    Origin,
    metrics_modes,
)
from lakesink_catalog.manifests.merging import MergePolicy
from lakesink_catalog.tables.arrow_schema import iceberg_schema
from lakesink_protocol.errors import Reason, SettingsError
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.row_changes import Mode
from website.tables import options_table

CANARY = "c4n4ry-Sw0rdfish"
NEEDED = {"sink_id": "events", "checkpoint": "/ck"}


def parse(**options: Any) -> Settings:
    return Settings.parse(NEEDED | options)


# The table of options


def test_the_table_of_options_and_the_settings_have_the_same_names() -> None:
    assert {option.name for option in OPTIONS} == {part.name for part in fields(Settings) if part.name != "_reported"}


def test_editors_know_every_option_but_those_that_a_stream_names_itself() -> None:
    named = {"sink_id", "checkpoint"}
    assert set(Options.__annotations__) == {option.name for option in OPTIONS} - named


def test_every_option_is_in_the_docs_table_with_its_property() -> None:
    lines = options_table().splitlines()
    assert len(lines) == len(OPTIONS) + 2
    for option, line in zip(OPTIONS, lines[2:], strict=True):
        assert f"`{option.name}`" in line
        assert option.table_property in line
        assert line.count("|") == 5


def test_options_override_properties_that_exist() -> None:
    known = {known.name for known in PROPERTIES}
    assert {option.table_property for option in OPTIONS if option.table_property} <= known


# Parsing


def test_defaults_are_those_of_the_docs() -> None:
    settings = parse()
    assert (settings.branch, settings.create_table, settings.ledger_tag) == ("main", False, True)
    assert settings.prepared_max_age == timedelta(hours=20)
    assert settings.ledger_tag_max_age == timedelta(days=30)
    assert (settings.catalog, settings.catalog_properties, settings.accept) == (None, {}, None)


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("sink_id", "a.B-9_", "a.B-9_"),
        ("checkpoint", Path("/ck/events"), "/ck/events"),
        ("checkpoint", "s3://bucket/ck", "s3://bucket/ck"),
        ("branch", "audit/2026", "audit/2026"),
        ("create_table", "true", True),
        ("create_table", False, False),
        ("target_file_size_bytes", "64 MB", 64 * 1024**2),
        ("compression_codec", "ZSTD", "zstd"),
        ("compression_level", "7", 7),
        ("distribution_mode", "HASH", "hash"),
        ("snapshot_properties", {"run": 42, "team": "lake"}, {"run": "42", "team": "lake"}),
        ("accept", "RolledBack:17@4-0a1b2c:commit", Accept(Reason.ROLLED_BACK, 17, adds_rows=True, against="4-0a1b2c")),
        ("accept", accept := Accept(Reason.GAP, 3, adds_rows=False, against="none"), accept),
        ("prepared_max_age", "2h 30m", timedelta(hours=2, minutes=30)),
        ("ledger_tag_max_age", timedelta(days=7), timedelta(days=7)),
        ("ledger_tag", "off", False),
        ("branch", None, "main"),
        ("maintenance", None, None),
        ("maintenance", "on", {}),
        ("maintenance", True, {}),
        ("maintenance", "off", False),
        ("maintenance", {"budget": "5 s", "gate": "true"}, {"budget": timedelta(seconds=5), "gate": True}),
        ("maintenance", ' {"target_file_size": "64 MB"}', {"target_file_size": 64 * 1024**2}),
        (
            "maintenance",
            {"min_input_files": 2, "where": "day >= '2026-01-01' and kind in ('a', 'b')"},
            {"min_input_files": 2, "where": "day >= '2026-01-01' and kind in ('a', 'b')"},
        ),
    ],
)
def test_an_option_is_read(name: str, given: Any, read: Any) -> None:
    assert getattr(parse(**{name: given}), name) == read


@pytest.mark.parametrize(
    ("name", "given", "hint"),
    [
        ("sink_id", "", "1 to 64"),
        ("sink_id", "-a", "1 to 64"),
        ("sink_id", "a" * 65, "1 to 64"),
        ("sink_id", "a\n", "1 to 64"),
        ("sink_id", 7, "1 to 64"),
        ("checkpoint", 7, "expected text"),
        ("checkpoint", "a\x00b", "expected text"),
        ("branch", " ", "expected text"),
        ("branch", "main ", "name of a branch"),
        ("create_table", "maybe", "true or false"),
        ("create_table", 1, "true or false"),
        ("partition_by", ["month(ts)"], "expected text such as"),
        ("sort_by", ["ts"], "expected text such as"),
        ("target_file_size_bytes", 0, "expected bytes"),
        ("target_file_size_bytes", "5 parsecs", "expected bytes"),
        ("target_file_size_bytes", 1.5, "expected bytes"),
        ("target_file_size_bytes", True, "expected bytes"),
        ("compression_codec", "zstandard", "Did you mean 'zstd'?"),
        ("compression_level", "high", "whole number"),
        ("snapshot_properties", "a=b", "expected a mapping"),
        ("snapshot_properties", {"lakesink.batch-id": "9"}, "writes itself"),
        ("snapshot_properties", {"added-records": "9"}, "writes itself"),
        ("snapshot_properties", {"total-files-size": "9"}, "writes itself"),
        ("snapshot_properties", {"operation": "overwrite"}, "writes itself"),
        ("snapshot_properties", {"wap.id": "1"}, "writes itself"),
        ("snapshot_properties", {"a": None}, "expected text"),
        ("snapshot_properties", {"a": "b" * 2000}, "at most 1024"),
        ("snapshot_properties", {"": "b"}, "expected text"),
        ("snapshot_properties", {"api-token": "b"}, "looks like a secret"),
        ("catalog_properties", "uri=x", "expected a mapping"),
        ("catalog_properties", {1: "x"}, "expected a mapping"),
        ("accept", "RolledBack", "expected <Verdict>"),
        ("accept", "RolledBack:x:commit", "expected <Verdict>"),
        ("accept", "RolledBack:1@:commit", "expected <Verdict>"),
        ("accept", "RolledBack:1:commit", "expected <Verdict>"),
        ("accept", "RolledBack:1:keep", "expected <Verdict>"),
        ("accept", "TableReplaced:1:commit", "not one of"),
        ("accept", "Unsupported:1:skip", "not one of"),
        ("prepared_max_age", 0, "time span above zero"),
        ("prepared_max_age", 20, "with its unit"),
        ("checkpoint", "~/cp", "only a shell expands ~; write '"),
        ("prepared_max_age", "20 parsecs", "time span above zero"),
        ("prepared_max_age", float("nan"), "time span above zero"),
        ("prepared_max_age", timedelta(seconds=-1), "time span above zero"),
        ("ledger_tag_max_age", "forever", "time span above zero"),
        ("maintenance", "always", "expected 'on', 'off', or a mapping"),
        ("maintenance", {"target_file_size": 1}, "target_file_size: expected bytes, or text such as '512MB', of 16384"),
        ("maintenance", "{", "expected 'on', 'off', or a mapping"),
        ("maintenance", '{"a":' * 100_000, "expected 'on', 'off', or a mapping"),
        ("maintenance", ["on"], "expected 'on', 'off', or a mapping"),
        ("maintenance", {"budgets": "1 s"}, "there is no 'budgets' in it. Did you mean 'budget'?"),
        ("maintenance", {1: "1 s"}, "there is no '1' in it"),
        ("maintenance", {"budget": 2}, "budget: expected a time span above zero, with its unit"),
        ("maintenance", {"min_input_files": 1}, "min_input_files: expected a whole number from 2"),
        ("maintenance", {"gate": "perhaps"}, "gate: expected true or false"),
        ("maintenance", {"where": "day ="}, "where: expected a condition such as"),
        ("maintenance", {"where": 7}, "where: expected a condition"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name_and_a_hint(name: str, given: Any, hint: str) -> None:
    with pytest.raises(SettingsError, match="LAKESINK_OPTION_INVALID") as refused:
        parse(**{name: given})
    assert name in refused.value.what
    assert hint in refused.value.what
    assert refused.value.action.startswith(name)
    assert "?." not in str(refused.value)
    assert len(str(refused.value).splitlines()[0]) < 300


@pytest.mark.parametrize("given", [10**400, -(10**5000), [10**5000]], ids=["large", "very large", "a list"])
@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_number_that_python_cannot_convert_is_refused_like_any_other(name: str, given: Any) -> None:
    with pytest.raises(SettingsError, match=f"LAKESINK_OPTION_INVALID. The option {name} is "):
        read_option(name, given)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sinkid", "Did you mean 'sink_id'?"),
        ("checkpoint-location", "Did you mean 'checkpoint'?"),
        ("target-file-size-bytes", "Did you mean 'target_file_size_bytes'?"),
        ("write.target-file-size-bytes", "Use the option target_file_size_bytes, which overrides this table property."),
        ("zzzzzz", "Known: accept, apply_as_deletes, binary_encoding, branch"),
        ("_reported", "lakesink.stream has no option '_reported'"),
    ],
)
def test_an_unknown_option_is_answered_with_the_nearest_one(name: str, hint: str) -> None:
    with pytest.raises(SettingsError, match="LAKESINK_OPTION_UNKNOWN") as refused:
        Settings.parse(NEEDED | {name: "x"})
    assert hint in refused.value.what


@pytest.mark.parametrize("missing", ["sink_id", "checkpoint"])
def test_a_stream_must_be_named_and_have_a_checkpoint(missing: str) -> None:
    with pytest.raises(SettingsError, match=f"LAKESINK_OPTION_MISSING.*{missing}"):
        Settings.parse({name: value for name, value in NEEDED.items() if name != missing})


def test_an_append_has_no_sink_id_and_no_checkpoint() -> None:
    assert Settings.parse({"branch": "b"}, entry=Entry.APPEND).branch == "b"
    for name, value in NEEDED.items():
        with pytest.raises(
            SettingsError, match=f"LAKESINK_OPTION_INVALID. lakesink.append has no option {name}: an app"
        ):
            Settings.parse({name: value}, entry=Entry.APPEND)


@pytest.mark.parametrize(
    "options",
    [
        {"partition_by": "month(ts)"},
        {"sort_by": "ts"},
        {"ledger_tag": False, "ledger_tag_max_age": "1 d"},
        {"compression_codec": "snappy", "compression_level": 3},
        {"compression_codec": "gzip", "compression_level": 10},
        {"compression_codec": "zstd", "compression_level": 0},
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="LAKESINK_OPTION_INVALID"):
        parse(**options)


@pytest.mark.parametrize("options", [{"mode": "upsert", "keys": ["id"]}, {"decode": "json"}])
def test_values_can_be_shown_of_changes_and_of_documents(options: dict[str, Any]) -> None:
    assert parse(show_values=True, **options).show_values
    with pytest.raises(SettingsError, match="show_values needs decode, or mode"):
        parse(show_values=True)


def test_a_level_is_refused_by_the_name_of_its_codec() -> None:
    with pytest.raises(SettingsError, match="the codec zstd has levels 1 to 22") as refused:
        parse(compression_level=99).effective({})
    assert "Give a level that the codec has, or no compression_level." in str(refused.value)


def test_settings_and_their_errors_show_no_secret() -> None:
    properties = {"uri": f"postgresql://u:{CANARY}@h/db", "token": CANARY, "s3.endpoint": CANARY}
    settings = parse(catalog_properties=properties, checkpoint=f"s3://k:{CANARY}@bucket/ck")
    assert settings.catalog_properties["token"] == CANARY
    assert CANARY not in f"{settings!r} {settings}"
    assert "sink_id='events'" in repr(settings)
    for options in (
        {"catalog_properties": f"token={CANARY}"},
        {"branch": f"password={CANARY}\n"},
        {"accept": [CANARY]},
    ):
        with pytest.raises(SettingsError) as refused:
            parse(**options)
        assert CANARY not in f"{refused.value} {refused.value.__cause__} {refused.value.__context__}"


# Values


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (1, 1),
        ("1", 1),
        ("512MB", 512 * 1024**2),
        ("512 mib", 512 * 1024**2),
        ("1.5g", 3 * 2**29),
        ("10 bytes", 10),
        ("2k", 2048),
        (" 1 TB ", 1024**4),
    ],
)
def test_sizes_are_read(given: Any, read: int) -> None:
    assert size_bytes(given) == read


@pytest.mark.parametrize(
    "given", ["", "MB", "-1", "0", "1 XB", "1e9", "99999999 TB", None, [], 2**63, "0.0001", "\uff11KB"]
)
def test_what_is_no_size_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="expected bytes"):
        size_bytes(given)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("20 hours", 72_000),
        ("30 d", 2_592_000),
        ("1h30m", 5400),
        ("1 day 2 hours", 93_600),
        ("250 ms", 0.25),
        ("1.5 Weeks", 907_200),
    ],
)
def test_durations_are_read(given: Any, seconds: float) -> None:
    assert duration(given) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "given",
    [
        "",
        " ",
        "h",
        20,
        0.5,
        "90",
        "1 month",
        "1h,30m",
        "-5",
        "inf",
        True,
        None,
        1e30,
        10**400,
        -(10**400),
        math.nan,
        "9" * 15 + " d",
    ],
)
def test_what_is_no_duration_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="expected a time span"):
        duration(given)


@given(st.one_of(st.text(max_size=30), st.integers(), st.floats(), st.none(), st.binary(max_size=4)))
def test_any_value_is_read_or_refused(value: Any) -> None:
    for read in (size_bytes, duration, switch, whole_number):
        try:
            read(value)
        except ValueError as error:
            assert str(error).startswith("expected")  # noqa: PT017 - both ends are right


# Changes


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("mode", "upsert", Mode.UPSERT),
        ("keys", ["region", "order, id"], ("region", "order, id")),
        ("keys", ("id",), ("id",)),
        ("keys", " region , order_id ", ("region", "order_id")),
        ("sequence_by", "lsn", ("lsn",)),
        ("except_column_list", ["op", "ts"], ("op", "ts")),
        ("output_mode", "update", OutputMode.UPDATE),
        ("locate_in", "executors", LocateIn.EXECUTORS),
    ],
)
def test_an_option_of_changes_is_read(name: str, given: Any, read: Any) -> None:
    assert getattr(parse(**{"mode": "upsert", name: given}), name) == read


def test_rows_are_appended_unless_the_mode_says_otherwise() -> None:
    assert not parse().has_changes
    assert parse(mode="changes", apply_as_deletes="op = 'd'", deletes="soft").deletes is Deletes.SOFT
    assert parse(mode="changes", decode="debezium-json").has_changes


@pytest.mark.parametrize(
    ("name", "given", "hint"),
    [
        ("mode", "merge", "expected 'append', 'upsert' or 'changes'"),
        ("keys", [], "expected 1 to 32 names"),
        ("keys", "id,", "expected 1 to 32 names"),
        ("keys", ["id", "ID"], "named twice"),
        ("keys", ["id", 7], "expected a list of columns"),
        ("keys", 7, "expected a list of columns"),
        ("keys", {"id": 1}, "expected a list of columns"),
        ("keys", b"id", "expected a list of columns"),
        ("keys", ["x" * 256], "at most 255 bytes"),
        ("sequence_by", "a" + ",a" * 40, "expected 1 to 32 names"),
        ("apply_as_deletes", " ", "expected a condition"),
        ("apply_as_deletes", True, "expected a condition"),
        ("deletes", "both", "expected 'hard' or 'soft'"),
        ("output_mode", "complete", "expected 'append' or 'update'"),
        ("locate_in", ["driver"], "expected 'auto', 'driver' or 'executors'"),
    ],
)
def test_a_wrong_option_of_changes_is_refused_with_a_hint(name: str, given: Any, hint: str) -> None:
    with pytest.raises(SettingsError, match="LAKESINK_OPTION_INVALID") as refused:
        parse(**({"mode": "changes", "decode": "debezium-json"} | {name: given}))
    assert hint in refused.value.what
    assert refused.value.action.startswith(name)


BY_DEBEZIUM = {"mode": "changes", "decode": "debezium-json"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keys": ["id"]}, "keys needs mode='upsert' or 'changes'"),
        ({"sequence_by": "lsn"}, "sequence_by needs mode='upsert' or 'changes'"),
        ({"apply_as_deletes": "op = 'd'"}, "apply_as_deletes needs mode='changes'"),
        ({"mode": "append", "locate_in": "driver"}, "locate_in needs mode='upsert' or 'changes'"),
        ({"decode": "debezium-json"}, "needs mode='changes'"),
        ({"mode": "upsert", "decode": "debezium-json"}, "needs mode='changes', but mode is 'upsert'"),
        ({"mode": "upsert", "apply_as_deletes": "op = 'd'"}, "apply_as_deletes needs mode='changes'"),
        ({"mode": "upsert", "deletes": "soft"}, "deletes needs mode='changes'"),
        ({"mode": "changes"}, "needs apply_as_deletes, or decode="),
        ({"mode": "changes", "decode": "json"}, "needs apply_as_deletes, or decode="),
        (BY_DEBEZIUM | {"apply_as_deletes": "true"}, "exclude each other"),
        ({"mode": "changes", "decode": "debezium-avro"}, "decode='debezium-avro' needs schema_registry"),
        (
            BY_DEBEZIUM | {"except_column_list": "op"},
            "except_column_list and decode='debezium-json' exclude each other",
        ),
        ({"mode": "upsert", "keys": "id", "except_column_list": "ID"}, "has 'id', a column of keys"),
        ({"mode": "upsert", "sequence_by": "lsn", "except_column_list": "lsn"}, "has 'lsn', a column of sequence_by"),
        (
            {"mode": "upsert", "decode": "json", "rescue_column": "rest", "except_column_list": "Rest"},
            "has 'rest', a column of rescue_column",
        ),
        ({"mode": "upsert", "on_late": "fail"}, "on_late needs sequence_by"),
        ({"output_mode": "update"}, "output_mode='update' needs mode='upsert'"),
        (BY_DEBEZIUM | {"output_mode": "update"}, "output_mode='update' needs mode='upsert'"),
        ({"mode": "upsert", "on_malformed": "quarantine"}, "needs mode='append', or sequence_by, but mode is 'upsert'"),
        (BY_DEBEZIUM | {"on_malformed": "quarantine"}, "on_malformed='quarantine' needs mode='append', or sequence_by"),
        ({"mode": "upsert", "distribution_mode": "hash"}, "distribution_mode='hash' needs mode='append'"),
        (
            BY_DEBEZIUM | {"distribution_mode": "range"},
            "distribution_mode='range' needs mode='append', but",
        ),
        ({"decode": "json", "distribution_mode": "hash"}, "distribution_mode='hash' and decode exclude each other"),
        (
            {"mode": "upsert", "expect": {"r": ("a > 0", "quarantine")}},
            "expect='quarantine' for r needs mode='append', or",
        ),
        ({"mode": "upsert", "sequence_by": "n", "on_absent": "insert"}, "lakesink.stream has no option on_absent"),
    ],
)
def test_options_that_changes_exclude_or_need_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match="LAKESINK_OPTION_INVALID") as refused:
        parse(**options)
    assert said in refused.value.what
    assert len(str(refused.value).splitlines()[0]) < 200


@pytest.mark.parametrize(
    "kept",
    [
        {"mode": "upsert", "schema_evolution": "fail"},
        {"mode": "upsert", "distribution_mode": "none"},
        {"mode": "upsert", "decode": "json", "schema_evolution": "ignore"},
        BY_DEBEZIUM | {"schema_evolution": "ignore"},
        {"decode": "json", "schema_evolution": "fail"},
        {"mode": "upsert", "decode": "json"},
    ],
)
def test_options_that_changes_keep_are_accepted(kept: dict[str, Any]) -> None:
    settings = parse(**kept)
    assert {name: getattr(settings, name) for name in kept} == kept


FEATURES_OF_ROWS: list[dict[str, Any]] = [
    {"on_malformed": "quarantine", "dead_letter_table": "a.b", "max_dead_letters": 5},
    {"expect": {"r": ("a > 0", "quarantine")}},
    {"rescue_column": "_rescued"},
    *({"schema_evolution": policy} for policy in ("ignore", "fail", "add", "widen")),
    {"changelog_table": "a.log"},
]


@pytest.mark.parametrize("mode", [{"mode": "upsert", "decode": "json"}, BY_DEBEZIUM], ids=["upsert", "changes"])
@pytest.mark.parametrize(("one", "other"), [*product(FEATURES_OF_ROWS, repeat=2)])
def test_changes_have_any_two_features_of_rows(
    mode: dict[str, Any], one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert parse(sequence_by="lsn", **(mode | one | other)).has_changes


def test_a_replay_of_changes_needs_what_orders_them() -> None:
    with pytest.raises(SettingsError, match="mode='upsert' needs sequence_by: a repaired row that is replayed"):
        Settings.parse({"mode": "upsert", "keys": "id"}, entry=Entry.REPLAY)
    given = {"mode": "upsert", "keys": "id", "sequence_by": "n", "on_absent": "insert"}
    assert Settings.parse(given, entry=Entry.REPLAY).on_absent == "insert"


@pytest.mark.parametrize(
    ("entry", "options", "advice"),
    [
        (Entry.STREAM, {"keys": "id"}, "Leave it out, or give mode='upsert' or 'changes'."),
        (Entry.APPEND, {"keys": "id"}, "Leave it out. To replace or delete rows by key, use lakesink.upsert."),
        (Entry.APPEND, {"show_values": True}, "Leave it out, or give decode."),
        (Entry.STREAM, {"show_values": True}, "Leave it out, or give decode, or mode='upsert' or 'changes'."),
        (Entry.UPSERT, {"mode": "upsert", "on_malformed": "quarantine"}, "Leave it out, or give sequence_by."),
        (
            Entry.UPSERT,
            {"mode": "changes", "apply_as_deletes": "d", "decode": "debezium-json"},
            "Leave one of them out.",
        ),
    ],
)
def test_the_advice_names_only_what_the_entry_point_has(entry: Entry, options: dict[str, Any], advice: str) -> None:
    with pytest.raises(SettingsError, match="LAKESINK_OPTION_INVALID") as error:
        Settings.parse((NEEDED if entry is Entry.STREAM else {}) | options, entry=entry)
    assert error.value.action == advice


def test_relations_are_of_known_options_and_are_noted_on_their_page() -> None:
    known, page = {option.name for option in OPTIONS}, options_table()
    for relation in RELATIONS:
        assert {use.option for use in (relation.use, *relation.others)} <= known
        assert relation.note()[1].partition(" ")[2] in page


def test_a_batch_has_no_output_mode() -> None:
    with pytest.raises(SettingsError, match=r"LAKESINK_OPTION_INVALID. lakesink.upsert has no option output_mode"):
        Settings.parse({"mode": "upsert", "output_mode": "append"}, entry=Entry.UPSERT)


# In force for a table


def test_an_option_goes_above_a_property_and_that_above_the_default() -> None:
    properties = {"write.target-file-size-bytes": "1000", "write.parquet.compression-codec": "gzip"}
    effective = parse(target_file_size_bytes="2KB").effective(properties)
    shown = {name: (value.value, value.origin) for name, value in effective.values.items()}
    assert shown["write.target-file-size-bytes"] == (2048, Origin.OPTION)
    assert shown["write.parquet.compression-codec"] == ("gzip", Origin.TABLE)
    assert shown["write.parquet.page-size-bytes"] == (1024**2, Origin.DEFAULT)
    assert effective["write.target-file-size-bytes"] == 2048
    assert effective.parquet.compression_codec == "gzip"


def test_every_property_reaches_what_is_built_from_it() -> None:
    properties = {
        "write.parquet.compression-codec": "ZSTD",
        "write.parquet.compression-level": "3",
        "write.parquet.row-group-size-bytes": "11",
        "write.parquet.page-size-bytes": "12",
        "write.parquet.dict-size-bytes": "13",
        "write.distribution-mode": "hash",
        "write.target-file-size-bytes": "14",
        "write.object-storage.enabled": "TRUE",
        "write.object-storage.partitioned-paths": "false",
        "commit.retry.num-retries": "15",
        "commit.retry.min-wait-ms": "16",
        "commit.retry.max-wait-ms": "17",
        "commit.retry.total-timeout-ms": "18",
        "commit.manifest-merge.enabled": "false",
        "commit.manifest.min-count-to-merge": "19",
        "commit.manifest.target-size-bytes": "20",
    }
    built = parse().effective(properties)
    parquet, retry, merge = built.parquet, built.retry, built.merge
    assert (parquet.compression_codec, parquet.compression_level, parquet.row_group_size_bytes) == ("zstd", 3, 11)
    assert (parquet.page_size_bytes, parquet.dictionary_size_bytes) == (12, 13)
    of_tasks = ("target-file-size-bytes", "object-storage.enabled", "object-storage.partitioned-paths")
    assert [built[f"write.{name}"] for name in (*of_tasks, "distribution-mode")] == [14, True, False, "hash"]
    assert (retry.num_retries, retry.min_wait_ms, retry.max_wait_ms, retry.total_timeout_ms) == (15, 16, 17, 18)
    assert (merge.enabled, merge.min_count, merge.target_size_bytes) == (False, 19, 20)
    elsewhere = {"write.data.path", "write.metadata.path", "write.metadata.previous-versions-max"}
    assert set(properties) | elsewhere == {known.name for known in PROPERTIES}


def test_a_stream_of_changes_merges_manifests_sooner_unless_the_table_says_otherwise() -> None:
    changes = parse(mode="upsert", keys=["id"])
    assert changes.effective({}).merge == MergePolicy(min_count=DEFAULTS_OF_CHANGES[MIN_COUNT_TO_MERGE])
    properties = {MIN_COUNT_TO_MERGE: "100", "commit.manifest-merge.enabled": "false"}
    own = changes.effective(properties).merge
    assert own == parse().effective(properties).merge == MergePolicy(enabled=False, min_count=100)


def test_defaults_of_the_parts_and_of_the_table_agree() -> None:
    from lakesink.rows.plan import ParquetOptions  # noqa: PLC0415 - compared here alone
    from lakesink_protocol.retry import RetryPolicy  # noqa: PLC0415 - the same

    effective = parse().effective({})
    assert effective.parquet == ParquetOptions()
    assert effective.retry == RetryPolicy()
    assert effective.merge == MergePolicy()


@pytest.mark.parametrize(
    ("options", "properties", "level"),
    [
        ({}, {"codec": "gzip", "level": "9"}, 9),
        ({"compression_codec": "zstd"}, {"codec": "gzip", "level": "9"}, None),
        ({"compression_level": 5}, {"codec": "gzip", "level": "9"}, 5),
        ({"compression_codec": "zstd", "compression_level": 19}, {"codec": "gzip", "level": "9"}, 19),
        ({}, {"codec": "snappy", "level": "9"}, None),
        ({}, {"level": "9"}, 9),
        ({"compression_codec": "snappy"}, {"level": "9"}, None),
    ],
)
def test_a_level_is_used_only_with_the_codec_it_was_chosen_for(
    options: dict[str, Any], properties: dict[str, str], level: int | None
) -> None:
    named = {f"write.parquet.compression-{name}": value for name, value in properties.items()}
    assert parse(**options).effective(named).parquet.compression_level == level


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("write.target-file-size-bytes", "big"),
        ("write.target-file-size-bytes", "-1"),
        ("write.parquet.compression-codec", "zip"),
        ("write.parquet.compression-level", "99"),
        ("write.parquet.row-group-size-bytes", ""),
        ("commit.retry.num-retries", "many"),
        ("commit.retry.num-retries", "99999999999999999999"),
        ("commit.retry.min-wait-ms", "604800001"),
        ("commit.retry.max-wait-ms", str(2**53)),
        ("commit.retry.total-timeout-ms", "9223372036854775807"),
        ("commit.manifest-merge.enabled", "perhaps"),
        ("write.metadata.previous-versions-max", "x"),
        ("write.object-storage.enabled", "\x1b[31m"),
    ],
)
def test_a_malformed_table_property_is_named(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"LAKESINK_SETTING_INVALID. {name}") as refused:
        parse().effective({name: text})
    assert "\x1b" not in str(refused.value)


def test_a_level_that_the_tables_codec_does_not_have_is_refused() -> None:
    with pytest.raises(SettingsError, match="the codec snappy has no levels"):
        parse(compression_level=3).effective({"write.parquet.compression-codec": "snappy"})


def test_properties_that_change_nothing_are_told_once_by_name(caplog: pytest.LogCaptureFixture) -> None:
    settings = parse()
    properties = {
        "write.delete.mode": "merge-on-read",
        "write.merge.mode": "copy-on-write",
        "write.update.mode": "merge-on-read",
        "write.format.default": "PARQUET",
        "write.metadata.metrics.default": "full",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "5",
        "write.py-location-provider.impl": "evil.Provider",
        "commit.status-check.num-retries": "3",
        "owner": "me",
        "lakesink.ledger.stream.a": "{}",
    }
    with caplog.at_level(logging.WARNING, "lakesink"):
        settings.effective(properties)
        settings.effective(properties)
        settings.effective(properties | {"write.format.default": "orc"})
    first = "commit.status-check.num-retries,write.py-location-provider.impl"
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"lakesink.settings.ignored properties={names}" for names in (first, "write.format.default")]


def test_effective_settings_can_be_had_without_options() -> None:
    assert Effective.of({}, {}).values["write.target-file-size-bytes"].origin is Origin.DEFAULT


# Metrics modes

NESTED = iceberg_schema(
    pa.schema(
        [
            ("id", pa.int64()),
            ("place", pa.struct([("city", pa.string())])),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("note", pa.string()),
        ]
    )
)


@pytest.mark.parametrize(
    ("properties", "modes"),
    [
        ({}, {"id": "truncate(16)", "place.city": "truncate(16)", "tags.element": "counts", "counts.key": "counts"}),
        ({"default": "none"}, {"id": "none", "tags.element": "none", "note": "none"}),
        ({"default": " Full "}, {"id": "full", "tags.element": "counts", "note": "full"}),
        ({"default": "truncate(4)", "column.note": "full"}, {"id": "truncate(4)", "note": "full"}),
        ({"column.place.city": "counts"}, {"id": "truncate(16)", "place.city": "counts"}),
        ({"column.tags.element": "none"}, {"tags.element": "none"}),
        ({"default": "truncate(0)"}, {"id": "truncate(16)"}),
        ({"default": ""}, {"id": "truncate(16)"}),
        ({"default": "truncate(4) and more"}, {"id": "truncate(16)"}),
        ({"default": "Truncate(4)"}, {"id": "truncate(4)"}),
        ({"column.id": "everything"}, {"id": "truncate(16)"}),
        ({"max-inferred-column-defaults": "2"}, {"id": "truncate(16)", "note": "truncate(16)", "place.city": "none"}),
        ({"max-inferred-column-defaults": "2", "column.place.city": "full"}, {"place.city": "full"}),
        ({"max-inferred-column-defaults": "2", "default": "counts"}, {"place.city": "counts"}),
        ({"max-inferred-column-defaults": "x"}, {"place.city": "truncate(16)"}),
    ],
)
def test_metrics_modes_follow_icebergs_rules(properties: dict[str, str], modes: dict[str, str]) -> None:
    named = {f"write.metadata.metrics.{name}": mode for name, mode in properties.items()}
    found = {NESTED.find_column_name(field_id): mode for field_id, mode in metrics_modes(named, NESTED).items()}
    assert set(found) == {"id", "place.city", "tags.element", "counts.key", "counts.value", "note"}
    assert {name: found[name] for name in modes} == modes


def test_a_wide_table_has_statistics_for_its_first_hundred_columns() -> None:
    wide = iceberg_schema(pa.schema([(f"c{number}", pa.int32()) for number in range(150)]))
    modes = list(metrics_modes({}, wide).values())
    assert modes == ["truncate(16)"] * 100 + ["none"] * 50
