"""The options as editors and type checkers see them; `options.OPTIONS` explains them, and a test compares both."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from os import PathLike
from typing import Any, Literal, TypedDict

from lakesink_protocol.refusals.accept import Accept

Duration = timedelta | str
Place = str | PathLike[str]


class SchemaEvolution(StrEnum):
    """What happens if the columns of the rows differ from the table's."""

    IGNORE = "ignore"
    FAIL = "fail"
    ADD = "add"
    WIDEN = "widen"


class Deletes(StrEnum):
    """What a delete does to the row of its key."""

    HARD = "hard"
    SOFT = "soft"


class OnLate(StrEnum):
    """What happens to a change that is older than the row of its key."""

    IGNORE = "ignore"
    FAIL = "fail"


class OnAbsent(StrEnum):
    """What happens to a replayed change whose key has no row: a later delete may have removed it."""

    FAIL = "fail"
    INSERT = "insert"


class OutputMode(StrEnum):
    """Spark's output modes that lakesink writes."""

    APPEND = "append"
    UPDATE = "update"


class LocateIn(StrEnum):
    """Where the rows of the keys are found."""

    AUTO = "auto"
    DRIVER = "driver"
    EXECUTORS = "executors"


class RowOptions(TypedDict, total=False):
    """Keyword options for rows, also of `lakesink.stream_to` and `stream_files`; None means that one is not given."""

    catalog: str | None
    catalog_properties: Mapping[str, Any] | None
    schema: str | None
    expect: Mapping[str, str | Sequence[str]] | None
    decode: Literal["json", "avro", "debezium-json", "debezium-avro"] | str | None
    on_malformed: Literal["fail", "quarantine"] | str | None
    dead_letter_table: str | None
    max_dead_letters: int | str | None
    max_dead_letter_ratio: float | str | None
    binary_encoding: Literal["base64", "hex"] | str | None
    rescue_column: str | None
    show_values: bool | str | None
    schema_registry: Place | None


class Options(RowOptions, total=False):
    """Keyword options of `lakesink.stream`, `append` and `upsert`; None means that an option is not given."""

    branch: str | None
    create_table: bool | str | None
    partition_by: str | None
    sort_by: str | None
    target_file_size_bytes: int | str | None
    compression_codec: str | None
    compression_level: int | str | None
    distribution_mode: Literal["none", "hash"] | str | None
    maintenance: Literal["on", "off"] | Mapping[str, Any] | str | bool | None
    mode: Literal["append", "upsert", "changes"] | str | None
    keys: Sequence[str] | str | None
    sequence_by: Sequence[str] | str | None
    apply_as_deletes: str | None
    except_column_list: Sequence[str] | str | None
    deletes: Literal["hard", "soft"] | str | None
    on_late: Literal["ignore", "fail"] | str | None
    on_absent: Literal["fail", "insert"] | str | None
    changelog_table: str | None
    output_mode: Literal["append", "update"] | str | None
    locate_in: Literal["auto", "driver", "executors"] | str | None
    snapshot_properties: Mapping[str, str | int] | None
    max_new_columns: int | str | None
    schema_evolution: Literal["ignore", "fail", "add", "widen"] | str | None
    accept: Accept | str | None
    prepared_max_age: Duration | None
    ledger_tag_max_age: Duration | None
    ledger_tag: bool | str | None
    max_clock_ahead: Duration | None
    tag_every: Duration | int | None
    tag_max_age: Duration | None
    verbose: bool | str | None
    metrics: Literal["otel", "prometheus"] | str | int | None
    openlineage: bool | str | None
