"""Sends events to Kafka without a pause, and writes into PostgreSQL which of them Kafka has acknowledged: the truth."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg2
from confluent_kafka import KafkaError, Message, Producer

from servers.kafka import KafkaBroker
from servers.postgres import USER, Postgres

from .setting import PARTITIONS, TOPIC

EVENTS_PER_SECOND = 50
LONGEST_SECONDS = 300
_PER_TURN = 10


class Truth:
    """The events that Kafka has acknowledged, in a table of PostgreSQL."""

    def __init__(self, database: Postgres) -> None:
        where = {"host": "127.0.0.1", "port": database.port, "user": USER, "dbname": "postgres"}
        self._connection = psycopg2.connect(**where, password=database.password)
        self._connection.autocommit = True
        self._ask("CREATE TABLE produced (id bigint PRIMARY KEY)")

    def add(self, ids: list[int]) -> None:
        """Events that were acknowledged."""
        self._ask("INSERT INTO produced SELECT unnest(%s)", ids)

    def ids(self) -> set[int]:
        """All of them."""
        return {number for (number,) in self._ask("SELECT id FROM produced")}

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _ask(self, statement: str, *values: Any) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall() if cursor.description else []


class EventSource:
    """A thread that sends events; while it is held, everything that it has sent is acknowledged and in the truth."""

    def __init__(self, broker: KafkaBroker, truth: Truth) -> None:
        settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0}
        patience = {"message.timeout.ms": 1000 * LONGEST_SECONDS, "reconnect.backoff.max.ms": 1000}
        self._producer = Producer({**settings, **patience, "linger.ms": 20})
        self._truth = truth
        self._acknowledged: list[int] = []
        self._next = 0
        self._turn = threading.Lock()
        self._begun, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin, and wait until Kafka has acknowledged the first events."""
        self._thread.start()
        if not self._begun.wait(LONGEST_SECONDS):
            raise TimeoutError("Kafka acknowledges no event.")

    def stop(self) -> None:
        """End; what was sent last may not be in the truth."""
        self._ended.set()
        self._thread.join()

    @contextmanager
    def held(self) -> Iterator[None]:
        """No event is under way within the block."""
        with self._turn:
            if self._producer.flush(LONGEST_SECONDS):
                raise TimeoutError("Kafka has not acknowledged all events; see whether its broker runs.")
            self._record()
            yield

    def _run(self) -> None:
        while not self._ended.wait(_PER_TURN / EVENTS_PER_SECOND):
            with self._turn:
                for _ in range(_PER_TURN):
                    self._send(self._next)
                    self._next += 1
                self._producer.poll(0)
                self._record()

    def _send(self, number: int) -> None:
        event = {"id": number, "at": datetime.now(UTC).isoformat(), "amount": f"{number % 1000 / 100:.2f}"}

        def answered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self._acknowledged.append(number)

        self._producer.produce(TOPIC, json.dumps(event), partition=number % PARTITIONS, on_delivery=answered)

    def _record(self) -> None:
        if self._acknowledged:
            self._truth.add(self._acknowledged)
            self._acknowledged.clear()
            self._begun.set()
