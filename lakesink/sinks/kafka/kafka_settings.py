"""Settings of the Kafka sink, parsed from the user's values."""

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lakesink.parquet.filesystem import local_path, scheme_of
from lakesink.settings.options import read_option
from lakesink.sinks.kafka.clients import Clients, kafka_option_invalid
from lakesink.sinks.kafka.staging import StagingFolder
from lakesink.sinks.record_folder import MAX_AGE
from lakesink_protocol.redact import contains_secret
from lakesink_protocol.refusals.accept import Accept

TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Parsed options of a Kafka sink; `topic` is empty if each row names its own."""

    clients: Clients
    sink_id: str
    topic: str
    staging: StagingFolder
    accept: Accept | None
    prepared_max_age: timedelta

    @classmethod
    def parse(
        cls,
        bootstrap_servers: Any,
        topic: Any,
        sink_id: Any,
        staging: Any,
        config: Mapping[str, Any] | None,
        **options: Any,
    ) -> "KafkaSettings":
        """Settings from the user's values; None counts as not given. `options` are the other fields."""
        name = read_option("sink_id", sink_id)
        given = {key: read_option(key, value) for key, value in options.items() if value is not None}
        return cls(
            clients=Clients.parse(bootstrap_servers, config),
            sink_id=name,
            topic=_topic(topic),
            staging=StagingFolder(_folder(staging), name),
            accept=given.get("accept"),
            prepared_max_age=given.get("prepared_max_age", MAX_AGE),
        )


def _topic(topic: Any) -> str:
    if topic is None:
        return ""
    if not isinstance(topic, str) or not TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise kafka_option_invalid("topic", "Kafka's names have at most 249 letters, digits, '.', '_' and '-'")
    return topic


def _folder(staging: Any) -> str:
    text = os.fspath(staging) if isinstance(staging, os.PathLike) else staging
    if not isinstance(text, str) or not text.strip() or not text.isprintable():
        raise kafka_option_invalid("staging", "expected a path or a URI that driver and executors share")
    if contains_secret("staging", text):
        raise kafka_option_invalid("staging", "it contains credentials; configure the storage's client")
    return posixpath.abspath(local_path(text)) if scheme_of(text) == "file" else text.rstrip("/")
