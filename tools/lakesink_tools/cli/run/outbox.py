"""The command ``outbox``: each committed batch of a table, in one Kafka transaction and once."""

import re
import tempfile
import threading
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakesink.observe.metrics import Numbers
from lakesink_catalog.words import as_arguments, counted, number
from lakesink_protocol.catalogue import PREFIX
from lakesink_protocol.errors import LakesinkError, SettingsError
from lakesink_protocol.identity import NAME_PATTERN
from lakesink_protocol.redact import redact
from lakesink_tools.cli.output import NOT_WELL, OK, Report, invalid
from lakesink_tools.cli.until_stopped import say, served, stopped_by_signals

if TYPE_CHECKING:
    from lakesink_tools.operate.outbox.produce import Produced, Producing

_COLUMNS = ("batch>", "replay>", "snapshot>", "rows>", "tombstones>")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
MOST_SHOWN = 1_000
LONGEST_SECONDS = 30.0
_SHORTEST_SECONDS = 1.0
_PASSING = frozenset(
    PREFIX + code
    for code in ("KAFKA_UNREACHABLE", "KAFKA_FAILED", "COMMIT_UNRESOLVED", "CATALOG_UNREACHABLE", "STORAGE_UNREACHABLE")
)


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of the command that say what is produced, and where to."""

    table: str
    catalog: str | None
    topic: str
    bootstrap_servers: str
    config: Path | None
    key: tuple[str, ...]
    sink: str | None
    branch: str
    name: str | None
    starting_batch: int | None
    staging: str


def outbox(*, staging: Path | None, once: bool, every: float, metrics: str | None, **options: Any) -> Report:
    """Produce batches until interrupted, or those that there are now; each is a line on standard error."""
    done, stopped = Done(served(metrics)), stopped_by_signals()
    with tempfile.TemporaryDirectory(prefix="lakesink-outbox-") as folder:
        asked = Asked(**options, staging=str(staging or folder))
        if once:
            producing = _opened(asked)
            _look(producing, done, stopped)
        else:
            producing = _run(asked, every, done, stopped)
    return _report(asked, producing, done, once=once)


def _run(asked: Asked, every: float, done: "Done", stopped: threading.Event) -> "Producing":
    """Look at the table until stopped. Errors that may pass are waited for, however long."""
    producing = None
    while True:
        wait = every
        try:
            producing = producing or _opened(asked)
            _look(producing, done, stopped)
        except LakesinkError as error:
            if not may_pass(error) or (stopped.is_set() and producing is None):
                raise
            wait = done.pause_after_error()
            say(f"[{error.code}] {redact(error.what).rstrip('.')}. Trying again in {wait:g} s.")
        if stopped.wait(wait) and producing is not None:
            return producing


def may_pass(error: LakesinkError) -> bool:
    """True if a server was away, or the outcome of a commit is unknown: the next attempt reads the ledger topic."""
    return error.code in _PASSING


def _look(producing: "Producing", done: "Done", stopped: threading.Event) -> None:
    """Produce the batches that there are now, or those before it is stopped."""
    for batch in producing.all_there_is():
        done.batches += 1
        done.newest.append(batch)
        done.tell(producing)
        say(_in_short(batch))
        if stopped.is_set():
            return
    done.tell(producing)


@dataclass(slots=True)
class Done:
    """What the command has produced: how much, and the newest batches; `numbers` are what Prometheus reads."""

    numbers: Numbers
    batches: int = 0
    newest: "deque[Produced]" = field(default_factory=lambda: deque(maxlen=MOST_SHOWN))
    next_pause: float = _SHORTEST_SECONDS

    def pause_after_error(self) -> float:
        """The seconds to wait, twice as many as after the error before, up to a limit."""
        seconds, self.next_pause = self.next_pause, min(2 * self.next_pause, LONGEST_SECONDS)
        return seconds

    def tell(self, producing: "Producing") -> None:
        """Let Prometheus know the position; after errors, it goes on."""
        self.next_pause = _SHORTEST_SECONDS
        at, outbox = producing.position, producing.outbox
        if at is not None and at.is_behind_one:
            self.numbers.consumed(outbox.table, at.sink, at.branch, outbox.name, at.batch_id)


def _in_short(batch: "Produced") -> str:
    title = f"batch {batch.batch_id}" if batch.replay is None else f"replay {batch.replay} of dead letters"
    if batch.rows is None:
        return f"{title}: another process has written it"
    deleted = f", {counted(batch.tombstones, 'tombstone')}" if batch.tombstones else ""
    return f"{title}: {counted(batch.rows, 'row')}{deleted}"


def _opened(asked: Asked) -> "Producing":
    try:
        from lakesink.sinks.kafka.kafka_sink import KafkaSink
        from lakesink_tools.operate.outbox.produce import Producing
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise SettingsError.of("KAFKA_CLIENT_MISSING", what="lakesink outbox") from None
    from lakesink.read.begin import followed
    from lakesink_catalog.connect.catalog import connect
    from lakesink_tools.operate.outbox.position import Outbox
    from lakesink_tools.operate.outbox.words import Words
    from lakesink_tools.past.lean import load_to_read

    if not _TOPIC_NAME.fullmatch(asked.topic) or asked.topic in {".", ".."}:
        raise invalid(
            "The option --topic: this cannot be the name of a topic.",
            "Correct --topic: a name has at most 249 letters, digits, '.', '_' and '-'.",
        )
    name = f"outbox-{asked.table}-{asked.topic}" if asked.name is None else asked.name
    if not NAME_PATTERN.fullmatch(name):
        raise SettingsError.of("OUTBOX_ID.missing" if asked.name is None else "OUTBOX_ID")
    opened = connect(asked.catalog, create=False)
    table = load_to_read(opened, asked.table)
    try:
        batches = followed(table, asked.table, asked.sink or "", asked.branch)
    except LakesinkError as error:
        raise Words(name).of(error) from None
    config = _properties(asked.config)
    sink = KafkaSink(asked.bootstrap_servers, sink_id=name, staging=asked.staging, topic=asked.topic, config=config)
    outbox = Outbox(name, asked.table, batches)
    return Producing(outbox, lambda: load_to_read(opened, asked.table), sink, asked.key or None, asked.starting_batch)


def _properties(config: Path | None) -> dict[str, str]:
    """The client's properties in a file, one name=value a line, as Kafka's own tools read them."""
    try:
        text = "" if config is None else config.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise invalid("The option --config: the file is not text in UTF-8.", "Write it in UTF-8.") from None
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    if not all(equals for _, equals, _ in pairs):
        raise SettingsError.of("OPTION_INVALID.config")
    return {found.strip(): value.strip() for found, _, value in pairs}


def _report(asked: Asked, producing: "Producing", done: Done, *, once: bool) -> Report:
    sink, left, stopped_by = producing.outbox.sink.sink, producing.left, producing.stopped_by
    return Report(
        document={
            "table": asked.table,
            "topic": asked.topic,
            "outbox": producing.outbox.name,
            "sink": sink,
            "produced": done.batches,
            "left": left,
            "stopped_by": None if stopped_by is None else stopped_by.snapshot_id,
            "batches": [asdict(batch) for batch in done.newest],
        },
        title=f"{asked.table} into topic {asked.topic}: {counted(done.batches, 'batch')} of sink {sink}",
        columns=_COLUMNS,
        rows=[_row(batch) for batch in done.newest],
        hints=[
            *_not_produced(asked, producing),
            f"Next: read {asked.topic} with isolation.level=read_committed.",
            f"The position is in topic lakesink-ledger-{producing.outbox.name}: never delete it.",
            f"All batches of the table: lakesink log {as_arguments(asked.table, asked.catalog)}",
        ],
        exit_code=NOT_WELL if once and (left or stopped_by) else OK,
    )


def _row(batch: "Produced") -> list[str]:
    ids, counts = (batch.batch_id, batch.replay), (batch.rows, batch.tombstones)
    first, second, *rest = ("" if count is None else number(count) for count in (*ids, *counts))
    return [first, second, str(batch.snapshot_id), *rest]


def _not_produced(asked: Asked, producing: "Producing") -> list[str]:
    hints = []
    if producing.others:
        hints.append(f"Not produced: rows of {counted(producing.others, 'snapshot')} of other writers.")
    if producing.left:
        hints.append(f"Interrupted: {counted(producing.left, 'batch')} of the last look are left. Start it again.")
    if producing.stopped_by is not None:
        hints.append(
            f"Not produced: what is behind snapshot {producing.stopped_by.snapshot_id}, in which another writer removed"
            f" or replaced rows of {asked.table}; see lakesink explain READ_ROWS_REMOVED."
        )
    return hints
