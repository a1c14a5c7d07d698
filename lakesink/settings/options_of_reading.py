"""Options of a stream that reads the batches of a sink, as ``spark.readStream.format("lakesink")`` has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lakesink.settings.option import Option, option_unknown, read_name, read_text
from lakesink.settings.parse import utc_time, whole_number
from lakesink.settings.relations import Use, excludes
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.identity import MAIN_BRANCH

EARLIEST, LATEST = "earliest", "latest"
TABLE, CATALOG, SINK, BRANCH = "table", "catalog", "sink-id", "branch"
STARTING_BATCH, STARTING_TIME = "starting-batch", "starting-timestamp"
MOST_BATCHES, MOST_ROWS, READER = "max-batches-per-trigger", "max-rows-per-trigger", "reader-id"
OF_CATALOG = "catalog."


def _starting_batch(value: Any) -> str | int:
    if value in (EARLIEST, LATEST):
        return str(value)
    try:
        return whole_number(value)
    except ValueError:
        raise ValueError("expected a batch id, 'earliest' or 'latest'") from None


def _starting_time_ms(value: Any) -> int:
    try:
        return round(utc_time(str(value).strip()).timestamp() * 1000)
    except ValueError:
        raise ValueError("expected a time such as '2026-11-25T04:00:00Z'") from None


_positive = partial(whole_number, lowest=1)
OPTIONS_OF_READING = (
    Option(TABLE, read_text, "Table to read, `namespace.table`.", default="required"),
    Option(CATALOG, read_text, "Name of a configured catalog.", default="PyIceberg's default, else the embedded one"),
    Option(
        SINK,
        read_name,
        "Sink whose batches are read; of a changelog, the sink whose changes it has.",
        default="the only sink of the branch",
    ),
    Option(BRANCH, read_text, "Branch to read.", default="`main`"),
    Option(
        STARTING_BATCH,
        _starting_batch,
        "Where a new checkpoint begins: with the newest batch of this id, with the first batch of all, or with the next"
        " one to come. A checkpoint that has an offset continues there.",
        type="batch id, `earliest` or `latest`",
        default="`earliest`",
    ),
    Option(
        STARTING_TIME,
        _starting_time_ms,
        "Begin with the first batch committed at this time or later; without a zone, it is UTC.",
        type="time",
    ),
    Option(
        MOST_BATCHES,
        _positive,
        "Batches of the sink in one micro-batch of the reading query, at most. Needs Spark 4.2.",
        type="whole number",
        default="all",
    ),
    Option(
        MOST_ROWS,
        _positive,
        "Rows in one micro-batch, at most; a batch of the sink is never divided, so one batch may have more. Needs"
        " Spark 4.2.",
        type="whole number",
        default="all",
    ),
    Option(
        READER,
        read_name,
        "Name of the reading query in the table. With it, a branch `lakesink-reader-<name>` keeps the batches that the"
        " query knows and has not read from expiry.",
    ),
)
_BY_NAME = {option.name: option for option in OPTIONS_OF_READING}
ONE_START = excludes(Use(STARTING_TIME), Use(STARTING_BATCH))


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The options of one reading query, by their names in `OPTIONS_OF_READING`; a time is in milliseconds."""

    table: str
    catalog: str | None = None
    catalog_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    sink_id: str = ""
    branch: str = MAIN_BRANCH
    starting_batch: str | int = EARLIEST
    starting_timestamp: int | None = None
    max_batches_per_trigger: int | None = None
    max_rows_per_trigger: int | None = None
    reader_id: str = ""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "ReadSettings":
        """From options in lower case; raises SettingsError."""
        of_catalog = {key: value for key, value in given.items() if key.startswith(OF_CATALOG)}
        known = {key: _read(key, value) for key, value in given.items() if key not in of_catalog}
        if TABLE not in known:
            raise SettingsError.of("OPTION_MISSING.table")
        ONE_START.check(known, known)
        properties = {key.removeprefix(OF_CATALOG): value for key, value in of_catalog.items()}
        named = {name.replace("-", "_"): value for name, value in known.items()}
        return cls(catalog_properties=properties, **named)

    @property
    def has_limits(self) -> bool:
        """True if a micro-batch may have to leave batches for the next one."""
        return self.max_batches_per_trigger is not None or self.max_rows_per_trigger is not None


def _read(name: str, value: str) -> Any:
    if name not in _BY_NAME:
        raise option_unknown('readStream.format("lakesink")', name, _BY_NAME, groups=f" and {OF_CATALOG}<property>")
    return _BY_NAME[name].parse(value)
