"""Avro from a real broker with schemas from a registry, and read as Spark's own `from_avro` reads it."""

import json
import os
import pickle
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer

from lakesink.rows.schema import Struct
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from servers.jars import KAFKA_SPARK, fetched
from servers.kafka import KafkaBroker
from testkit.harness import PATIENCE_SECONDS
from tests.decode.avro.messages import MALFORMED, decoded, encoded, logical, message, record
from tests.decode.avro.schema_registry import registered, schema_registry
from tests.decode.avro.test_random import CALENDAR, SCALARS, Sort, Sorts, mutated, plain
from tests.interop.pages import block

pytestmark = pytest.mark.interop
PAYMENT = record(("id", "long"), ("at", logical("long", "timestamp-millis")))
LATER = record(("note", ["null", "string"]), ("at", logical("long", "timestamp-micros")), ("id", ["null", "int"]))


def test_the_recipe_reads_a_topic_with_the_schemas_that_its_messages_name(broker: KafkaBroker, home: Path) -> None:
    broker.create_topic("payments", 1)
    with schema_registry() as registry:
        registry.schemas = {1: registered(PAYMENT), 2: registered(LATER)}
        messages = [message(encoded(PAYMENT, {"id": number, "at": number}), 1) for number in range(50)]
        send(broker, "payments", [*messages, message(encoded(LATER, {"id": 50, "at": 50_000, "note": "later"}), 2)])
        recipe = block("use/decoding.md", "avro recipe")
        recipe = recipe.replace("localhost:9092", broker.bootstrap).replace("http://localhost:8081", registry.url)
        run("-c", recipe)
    assert home.exists()
    rows = load_table(connect(properties={}), "shop.payments").scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["at"].timestamp(), row["_kafka_offset"]) for row in rows] == [
        (number, number / 1000, number) for number in range(51)
    ]


def send(broker: KafkaBroker, topic: str, messages: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for value in messages:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_SECONDS) == 0


def test_random_messages_are_read_as_from_avro_reads_them_or_are_malformed(tmp_path: Path) -> None:
    chance = Random(25)
    scalars = SCALARS + tuple(sort for sort in CALENDAR if sort.column != "time")  # from_avro: a long
    sorts = [Sorts(chance, scalars).rows() for _ in range(12)]
    bodies = [[encoded(sort.kind, sort.value(chance)) for _ in range(20)] for sort in sorts]
    broken = [[mutated(chance, body) for body in some[:10]] for some in bodies]
    theirs = from_avro(tmp_path, sorts, [whole + bad for whole, bad in zip(bodies, broken, strict=True)])
    for sort, whole, bad, read in zip(sorts, bodies, broken, theirs, strict=True):
        assert isinstance(sort.column, Struct)
        found = decoded({7: sort.kind}, sort.column, [message(body) for body in whole + bad])
        assert MALFORMED not in found[: len(whole)]
        for body, mine, spark_s in zip(whole + bad, found, read, strict=True):
            assert mine == MALFORMED or same(sort, mine, spark_s), (sort.kind, body, mine, spark_s)


def same(sort: Sort, mine: Any, theirs: Any) -> bool:
    """Spark takes bytes for text whatever they are, also where no column asks for them."""
    return theirs == "no text" or (
        theirs is not None and plain(in_order(mine)) == plain(in_order(sort.expected(theirs)))
    )


def in_order(value: Any) -> Any:
    """Pairs of maps, which Spark has in no order."""
    if isinstance(value, dict):
        return {key: in_order(part) for key, part in value.items()}
    if isinstance(value, list):
        parts = [in_order(part) for part in value]
        return sorted(parts, key=lambda pair: pair[0]) if parts and isinstance(parts[0], tuple) else parts
    return tuple(in_order(part) for part in value) if isinstance(value, tuple) else value


def from_avro(folder: Path, sorts: list[Sort], bodies: list[list[bytes]]) -> list[list[Any]]:
    given, found = folder / "given.json", folder / "found"
    texts = [[b64encode(body).decode() for body in some] for some in bodies]
    given.write_text(json.dumps([(sort.kind, some) for sort, some in zip(sorts, texts, strict=True)]))
    run(str(Path(__file__).with_name("from_avro_driver.py")), str(given), str(found))
    read: list[list[Any]] = pickle.loads(found.read_bytes())  # noqa: S301 - our own driver's
    return read


def run(*arguments: str) -> None:
    jars = ",".join(map(str, fetched(KAFKA_SPARK)))
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell"}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
