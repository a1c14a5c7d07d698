"""Sends the departures, transaction by transaction: to Kafka, or as files that arrive whole or never.

A process of its own, ``python -m examples.kafka_windows.producer SETTING``; it is slowed down to last a while.
"""

import os
import time
from typing import Protocol

from confluent_kafka import Producer

from lakesink_tools.demo.process import end_with_parent

from .departures import PARTITIONS, Transaction, departures, transactions
from .queries import TOPIC
from .setting import Setting

LONGEST_SECONDS = 120
_PAUSE_SECONDS = 0.1
_FIRST_MODIFIED = 1_357_016_400


class Feed(Protocol):
    """Where transactions go."""

    def send(self, transaction: Transaction) -> None:
        """Send all of it; when this returns it is committed, or taken back."""


class KafkaFeed:
    """Kafka transactions: what is sent in one becomes readable together, when it is committed."""

    def __init__(self, bootstrap: str) -> None:
        own = {"bootstrap.servers": bootstrap, "transactional.id": TOPIC, "log_level": 0}
        self._producer = Producer({**own, "transaction.timeout.ms": 300_000, "linger.ms": 20})
        self._producer.init_transactions(LONGEST_SECONDS)

    def send(self, transaction: Transaction) -> None:
        """Send it; while the broker is down the client tries again."""
        self._producer.begin_transaction()
        for number, event in enumerate(transaction.events):
            self._producer.produce(TOPIC, event.document, partition=number % PARTITIONS)
        self._producer.flush(LONGEST_SECONDS)
        end = self._producer.abort_transaction if transaction.aborted else self._producer.commit_transaction
        end(LONGEST_SECONDS)


class FileFeed:
    """One file a transaction: written aside, and moved into the inbox when it is whole; an aborted one is not moved."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._sent = 0
        setting.staging.mkdir()
        setting.inbox.mkdir(exist_ok=True)

    def send(self, transaction: Transaction) -> None:
        """Write it, and let it arrive."""
        name = f"{self._sent:06}.json"
        staged = self._setting.staging / name
        staged.write_bytes(b"".join(event.document + b"\n" for event in transaction.events))
        os.utime(staged, (_FIRST_MODIFIED + self._sent,) * 2)  # Spark takes the oldest first, to the second
        if not transaction.aborted:
            staged.rename(self._setting.inbox / name)
        self._sent += 1


def main(setting: Setting) -> None:
    """Send everything, then end."""
    end_with_parent()
    feed: Feed = KafkaFeed(setting.bootstrap) if setting.bootstrap else FileFeed(setting)
    for transaction in transactions(departures(setting.csv, setting.days), setting.seed):
        feed.send(transaction)
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main(Setting.given())
