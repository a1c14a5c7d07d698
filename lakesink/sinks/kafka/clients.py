"""Clients of a Kafka cluster from the user's properties. They never leave the driver, and nothing prints them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import MASK, describe, redact, shown

LONGEST = 300
_SHORTEST, _LONG = 4, 64
"""Shorter values are masked only between quotes: elsewhere they are parts of words. The client cuts long messages, so
everything behind the beginning of a long value is masked."""
_PREFIX = re.compile(r"^Failed to create (?:producer|consumer|admin client): ")
_QUOTED_VALUE = re.compile(r'Invalid value ".*" for configuration', re.DOTALL)
_NUMBER = re.compile(r'("[\w.]+") value \S+ is')
_CUT = 'Invalid value "'
_NAMES = r'`[a-z.]+`|property:? "[^"]*"'
_TEXTS = r'"[^"]*(?:"|$)'
TRANSACTION_TIMEOUT_MS = 300_000
MAX_MESSAGE_BYTES = 1_000_000
_LEAST_MESSAGE_BYTES = 1_000
"""The client accepts no less; a topic may, and then tasks refuse what is larger."""
_FETCH_WAIT_MS = 20
_BUFFERED_KBYTES = 256 * 1024
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
MESSAGE_BYTES = "message.max.bytes"

_DEFAULTS = {TRANSACTION_TIMEOUT: TRANSACTION_TIMEOUT_MS, MESSAGE_BYTES: MAX_MESSAGE_BYTES}
_WHOLE = re.compile(r"[1-9][0-9]{0,9}")
"""The client also takes hexadecimal and octal numbers."""
_OWN = frozenset(
    {
        "bootstrap.servers", "metadata.broker.list", "transactional.id", "enable.idempotence", "acks",
        "request.required.acks", "isolation.level", "enable.auto.commit", "group.id", "enable.partition.eof",
        "auto.offset.reset", "delivery.report.only.error", "on_delivery", "error_cb", "logger", "log_cb",
        "partitioner", "default.topic.config", "test.mock.num.brokers",
    }
)  # fmt: skip
"""Properties on which the guarantee depends: a user cannot set them.

Others that could reorder or repeat records (`max.in.flight`, `retries`, `queuing.strategy`) are refused by the client,
beside `enable.idempotence`. Those that only let a record fail (time-outs) end its transaction.
"""
_FOR_PRODUCERS = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # the partition that Java's producers, and Spark's sink, choose for a key
    "linger.ms": 20,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": _BUFFERED_KBYTES,
    "delivery.report.only.error": True,
}
_FOR_CONSUMERS = {
    "group.id": "lakesink-ledger",  # required, and unused: nothing is committed for it
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": _FETCH_WAIT_MS,
}


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A record that the client or the cluster did not take; `size_bytes` is that of its key and value."""

    error: KafkaError
    topic: str
    size_bytes: int


@dataclass(slots=True)
class Troubles:
    """The last error that a client's background threads reported: a time-out alone does not say why."""

    last: str = ""

    def __call__(self, error: KafkaError) -> None:
        """Remember an error."""
        self.last = error.str()


@dataclass(frozen=True, slots=True, repr=False)
class Clients:
    """Opens clients of one cluster; `config` has the user's properties in librdkafka's spelling, with its secrets."""

    bootstrap_servers: str
    config: Mapping[str, Any]
    troubles: Troubles = field(default_factory=Troubles)

    @classmethod
    def parse(cls, bootstrap_servers: Any, config: Mapping[str, Any] | None) -> "Clients":
        """Clients from the user's values."""
        if not isinstance(bootstrap_servers, str) or not bootstrap_servers.strip():
            raise kafka_option_invalid("bootstrap_servers", "expected host:port, or several with commas")
        given = dict(config or {})
        own = sorted(_OWN & given.keys())
        if own:
            raise kafka_option_invalid("config", f"the sink itself sets {own[0]}, on which exactly-once depends")
        clients = cls(bootstrap_servers.strip(), _DEFAULTS | given)
        trouble = clients._trouble()
        if trouble:
            raise kafka_option_invalid("config", trouble)
        return clients

    @property
    def transaction_timeout_ms(self) -> int:
        """After this time, the broker aborts a transaction whose driver died."""
        return int(self.config[TRANSACTION_TIMEOUT])

    @property
    def max_message_bytes(self) -> int:
        """The largest record that the producer accepts."""
        return int(self.config[MESSAGE_BYTES])

    def admin(self) -> AdminClient:
        """A client for topics and their configuration."""
        return AdminClient(self._properties({}))

    def consumer(self) -> Consumer:
        """A consumer of committed records."""
        return Consumer(self._properties(_FOR_CONSUMERS))

    def producer(self, transactional_id: str, failures: list[Undelivered], most_bytes: int) -> Producer:
        """A producer of transactions; `failures` gets each record that cannot be delivered."""

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                size = len(message.key() or b"") + len(message.value() or b"")
                failures.append(Undelivered(error, message.topic() or "", size))

        own = {"transactional.id": transactional_id, "on_delivery": on_delivery}
        limits: dict[str, Any] = {MESSAGE_BYTES: max(most_bytes, _LEAST_MESSAGE_BYTES)}
        if most_bytes < _LEAST_MESSAGE_BYTES:
            limits["batch.size"] = most_bytes  # else small records go together, and the broker refuses them
        return Producer(self._properties({**_FOR_PRODUCERS, **own}) | limits)

    def describe(self, error: BaseException) -> str:
        """One line about an error, with what the client's threads said last, without secrets."""
        text = describe(error, self.config)
        last = describe(RuntimeError(self.troubles.last), self.config).partition(": ")[2]
        return f"{last} ({text})" if last and is_time_out(error) else text

    def _trouble(self) -> str:
        """Why no clients can have these properties, by the rules of each kind of client; empty if they can."""
        for name in _DEFAULTS:
            if not _WHOLE.fullmatch(str(self.config[name])):
                return f"{name} must be a whole number, in decimal digits"
        try:
            self.admin()
            self.producer("lakesink", [], self.max_message_bytes)
            self.consumer()
        except (KafkaException, TypeError, ValueError) as error:
            found = kafka_error(error)
            return without_values(str(error) if found is None else found.str(), self.config)
        return ""

    def _properties(self, own: Mapping[str, Any]) -> dict[str, Any]:
        # The library's own log lines would go to standard error: errors have them where needed.
        quiet = SimpleNamespace(log=lambda *_: None)
        try_first = {"bootstrap.servers": self.bootstrap_servers, "error_cb": self.troubles, "logger": quiet}
        fixed = {name: value for name, value in own.items() if name in _OWN}
        return {**own, **self.config, **fixed, **try_first}


def kafka_error(error: BaseException) -> KafkaError | None:
    """The broker's or the client's error in an exception; None if there is none."""
    found = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return found if isinstance(found, KafkaError) else None


def is_time_out(error: BaseException) -> bool:
    """True if an exception says only that nobody answered in time."""
    found = kafka_error(error)
    codes = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)  # noqa: SLF001 - public codes
    return isinstance(error, TimeoutError) or (found is not None and found.code() in codes)


def kafka_option_invalid(name: str, why: str) -> SettingsError:
    """The error for an option of the Kafka sink."""
    return SettingsError.of("OPTION_INVALID.listed", name=name, why=f"{why}.", place="KafkaSink")


def without_values(text: str, config: Mapping[str, Any]) -> str:
    """The message of the client, with names of properties and without values: a secret can stand beside a wrong one."""
    told = _QUOTED_VALUE.sub("Invalid value for configuration", _PREFIX.sub("", text.strip()))
    if _CUT in told:  # the client cuts its message after 512 bytes
        return "Invalid value for a configuration property"
    told = _NUMBER.sub(r"\1: its value is", told)
    longest_first = sorted(set(_pieces(config)), key=len, reverse=True)
    values = [re.escape(value[:_LONG]) + ".*" * (len(value) >= _LONG) for value in longest_first]
    masked = re.compile("|".join([_NAMES, f"({'|'.join([*values, _TEXTS])})"]), re.DOTALL)
    told = masked.sub(lambda found: MASK if found[1] else found[0], told)
    return shown(redact(told, config), LONGEST).rstrip(".")


def _pieces(config: Mapping[str, Any]) -> Iterator[str]:
    """The values, and their parts: the client takes lists apart, and shows one element."""
    for value in filter(lambda value: not callable(value), config.values()):
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        for piece in (text, *re.split(r"[\s;,]+", text)):
            if len(piece) >= _SHORTEST and piece.lower() not in ("true", "false"):
                yield piece
