"""Each feature of rows, and each two of them, in every mode and form of rows: the table is what a dictionary says.

A second batch has an update, a delete, and one row for each feature: one that is malformed, one with a new key, one
with a wider number, and one that does not meet a rule. The dictionary knows nothing of lakesink.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from lakesink.rows.changed_rows import DELETE_MARK
from lakesink.rows.expectations import Expected, OnUnmet
from lakesink.rows.plan import AVRO, DEBEZIUM, DEBEZIUM_AVRO, DEBEZIUM_JSON
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink_protocol.coordinator import run_batch
from lakesink_protocol.outcome import AlreadyCommitted, Committed, Outcome
from lakesink_tools.audit.audit import audit
from testkit.builders import TABLE, Lake, Stream
from testkit.deaths import answer_is_lost, dies_after, dies_before, until_it_lives
from testkit.examples import seeds
from testkit.letters import one_task
from tests.decode.avro.messages import encoded, message, record
from tests.decode.debezium.events import event
from tests.decode.debezium.test_avro_events import schema_of
from tests.upsert.change_events import RECORDS
from tests.upsert.rows import live_rows

Row = dict[str, Any]
Event = tuple[str, Row]
"""Upsert or delete, and the row; a key that a row lacks is not in its document."""
WIDE, HELLO = 2**40, "hello"
POSITIVE = Expected("positive", OnUnmet.QUARANTINE)
TABLE_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "version", LongType()),
    NestedField(3, "amount", IntegerType()),
    NestedField(4, "name", StringType(), required=True),
    identifier_field_ids=[1],
)


def row(key: int, version: int, amount: int, name: str | None = "n") -> Row:
    return {"id": key, "version": version, "amount": amount, "name": name}


BAD = row(3, 99, 30)
FEATURES: Mapping[str, Row] = {
    "quarantine": {"on_malformed": "quarantine", "max_dead_letter_ratio": 1.0},
    "rule": {"max_dead_letter_ratio": 1.0},
    "rescue": {"rescue_column": "rest"},
    "add": {"schema_evolution": "add"},
    "widen": {"schema_evolution": "widen"},
    "log": {"changelog_table": "demo.log"},
}
DELETES_BY_OP = {"apply_as_deletes": "op = 'd'", "except_column_list": "op"}
MODES: Mapping[str, Row] = {
    "append": {},
    "upsert": {"mode": "upsert", "keys": "id", "sequence_by": "version"},
    "changes": {"mode": "changes", "keys": "id", "sequence_by": "version"},
}


@dataclass
class World:
    """What the tables must have after the batches, by plain Python.

    Attributes:
        chosen: The features of the query.
        typed: True if rows come with columns, and not as documents.
    """

    mode: str
    chosen: frozenset[str]
    typed: bool
    rows: list[Row] = field(default_factory=list)
    letters: list[tuple[int, str]] = field(default_factory=list)
    log: list[tuple[str, int, int]] = field(default_factory=list)

    def batches(self) -> list[list[Event]]:
        """The batches of the source."""
        first = [("upsert", row(key, 1, 10 * key)) for key in range(1, 5)]
        second = [("upsert", row(1, 2, 11))]
        second += [("delete", row(2, 2, 20))] if self.mode == "changes" else []
        second += (
            [("upsert", BAD | ({"name": None} if self.typed else {"id": "?"}))] if "quarantine" in self.chosen else []
        )
        second += [("upsert", row(5, 1, 50) | {"note": HELLO})] if self.chosen & {"add", "widen", "rescue"} else []
        second += [("upsert", row(6, 1, WIDE))] if self._takes_wide else []
        second += [("upsert", row(4, 2, -5))] if "rule" in self.chosen else []
        return [first, second, [("upsert", row(1, 3, 12))]]

    @property
    def _takes_wide(self) -> bool:
        return "widen" in self.chosen or ("rescue" in self.chosen and not self.typed)

    def apply(self, events: Sequence[Event]) -> None:
        """What a batch does."""
        for operation, came in events:
            if came["version"] == BAD["version"]:
                self.letters.append((came["id"], "NULL_IN_REQUIRED" if self.typed else "VALUE_MALFORMED"))
            elif "rule" in self.chosen and (self._stored(came)["amount"] or -1) < 0:  # NULL does not meet a rule
                self.letters.append((came["id"], "EXPECTATION_UNMET"))
            else:
                self._store(operation, self._stored(came))

    def _store(self, operation: str, stored: Row) -> None:
        if self.mode != "append":
            self.rows = [one for one in self.rows if one["id"] != stored["id"]]
        if operation == "upsert":
            self.rows.append(stored)
        if "log" in self.chosen:
            self.log.append((operation, stored["id"], stored["version"]))

    def _stored(self, came: Row) -> Row:
        found = {name: came[name] for name in ("id", "version", "amount", "name")}
        rest: dict[str, Any] = {}
        if "note" in came and self.chosen & {"add", "widen"}:
            found["note"] = came["note"]
        elif "note" in came:
            rest["unknown"] = {"note": came["note"]}
        if came["amount"] == WIDE and "widen" not in self.chosen:
            rest["unfit"] = {"amount": {"expected": "INT", "value": WIDE}}
            found["amount"] = None
        return found | ({"rest": rest} if rest else {})


@dataclass
class Driver:
    """A query that writes the batches of a world."""

    lake: Lake
    world: World
    decode: str
    can_write_again: bool

    def __post_init__(self) -> None:
        options = MODES[self.world.mode] | {
            name: one for key in self.world.chosen for name, one in FEATURES[key].items()
        }
        more: Row = {"decode": self.decode} if self.decode else {}
        more |= (
            {"expect": {"positive": ("amount >= 0", "quarantine")}}
            if "rule" in self.world.chosen and self.decode
            else {}
        )
        marks = {} if self.world.mode != "changes" or self.decode in DEBEZIUM else DELETES_BY_OP
        if "avro" in self.decode:
            registry = self.lake.folder / "schemas.json"
            registry.write_text(json.dumps({str(at): json.dumps(one) for at, one in SCHEMAS.items()}))
            more["schema_registry"] = str(registry)
        self.stream = Stream(self.lake, options=options | more | marks)

    def take(self, batch_id: int, events: Sequence[Event]) -> Outcome:
        """Run a batch with a driver that has just started."""
        rows = documents_of(events, self.decode, self.world.mode) if self.decode else self._typed(events)
        sink = self.stream.sink()
        columns = pa.schema([one for one in rows.schema if one.name != DELETE_MARK])
        driver = IcebergSink(sink.table, sink.key, sink.open_catalog, sink.settings, columns, effects=sink.effects)
        driver.can_write_again = self.can_write_again
        return run_batch(self.stream.batch(batch_id), [driver], one_task(rows))[driver.name]

    def _typed(self, events: Sequence[Event]) -> pa.Table:
        rows = [came for _, came in events]
        evolves = any("note" in came for came in rows)
        wide = any(came["amount"] == WIDE for came in rows)
        columns = [("id", pa.int64()), ("version", pa.int64()), ("amount", pa.int64() if wide else pa.int32())]
        columns += [("name", pa.string()), *([("note", pa.string())] if evolves else [])]
        found = pa.Table.from_pylist(rows, pa.schema(columns))
        if "rule" in self.world.chosen:
            found = found.append_column(POSITIVE.mark, pa.array([came["amount"] >= 0 for came in rows]))
        if self.world.mode == "changes":
            found = found.append_column(DELETE_MARK, pa.array([operation == "delete" for operation, _ in events]))
        return found


def documents_of(events: Sequence[Event], decode: str, mode: str) -> pa.Table:
    """Rows or changes as documents in records of Kafka."""
    documents = [document_of(operation, came, decode, mode) for operation, came in events]
    values = [avro(one) if "avro" in decode else json.dumps(one).encode() for one in documents]
    records = [{"value": one, "topic": "t", "partition": 0, "offset": at} for at, one in enumerate(values)]
    return pa.Table.from_pylist(records, RECORDS)


def document_of(operation: str, came: Row, decode: str, mode: str) -> Row:
    """The document of a row, or of a change as Debezium writes it."""
    if decode in DEBEZIUM:
        found: Row = event("d", None, came) if operation == "delete" else event("c", came)
        if decode == DEBEZIUM_AVRO:
            found = {name: found[name] for name in ("before", "after", "op", "ts_ms")}
            found["source"] = {"lsn": 1, "op": "x"}
        return found
    if mode != "changes":
        return came
    some = came if decode == AVRO or operation == "upsert" else {name: came[name] for name in ("id", "version")}
    return {"op": operation[0]} | some


Fields = tuple[tuple[str, str], ...]


def fields_of(came: Row) -> Fields:
    """The fields of the writer's schema of a row: a value that does not fit, or a wide one, has one of its own."""
    kinds = {str: "string", int: "long"}
    return tuple(
        (name, kinds[type(value)] if name != "amount" or value == WIDE else "int") for name, value in came.items()
    )


def _schemas() -> Iterator[tuple[Fields, Row]]:
    plain = row(1, 1, 1)
    for some in ({}, {"id": "?"}, {"amount": WIDE}, {"note": HELLO}):
        for fields in (fields_of(plain | some), fields_of({"op": "u"} | plain | some)):
            yield fields, record(*fields)
        yield (("after", "Value"), *fields_of(plain | some)), schema_of(*fields_of(plain | some))


SCHEMAS = {number: schema for number, (_, schema) in enumerate(_schemas(), 1)}
NUMBERS = {fields: number for number, (fields, _) in enumerate(_schemas(), 1)}


def avro(document: Row) -> bytes:
    """The document as a message."""
    came = document.get("after") or document.get("before")
    number = NUMBERS[(("after", "Value"), *fields_of(came)) if came else fields_of(document)]
    return message(encoded(SCHEMAS[number], document), number)


def cells(*, whole: bool = False) -> Iterator[Any]:
    """Mode, form of the rows, and features: each alone, each two, and all that go together; only these if `whole`."""
    for mode, decode in (
        ("append", ""),
        ("upsert", ""),
        ("changes", ""),
        ("append", "json"),
        ("upsert", "json"),
        ("changes", "json"),
        ("changes", DEBEZIUM_JSON),
        ("append", AVRO),
        ("upsert", AVRO),
        ("changes", AVRO),
        ("changes", DEBEZIUM_AVRO),
    ):
        lacking = set() if decode else {"rescue"}
        lacking |= {"log"} if mode == "append" else set()
        names = [name for name in FEATURES if name not in lacking]
        sets = [{one} for one in names] + [{*pair} for pair in combinations(names, 2)]
        for some in [*([] if whole or "avro" in decode else sets), {*names} - {"add"}]:
            if not {"add", "widen"} <= some:
                name = f"{mode}-{decode or 'rows'}-{'+'.join(sorted(some))}"
                yield pytest.param(mode, decode, frozenset(some), id=name)


@pytest.mark.parametrize(("mode", "decode", "chosen"), [*cells()])
@pytest.mark.parametrize("again", [True, False], ids=["", "once"])
def test_any_two_features_of_rows_do_what_each_does_alone(
    tmp_path: Path, mode: str, decode: str, chosen: frozenset[str], *, again: bool
) -> None:
    lake = Lake.make(tmp_path, schema=TABLE_SCHEMA)
    world = World(mode, chosen, typed=not decode)
    driver = Driver(lake, world, decode, again)
    for batch_id, events in enumerate(world.batches()):
        world.apply(events)
        assert isinstance(driver.take(batch_id, events), Committed)
        check(lake, world)
        assert isinstance(driver.take(batch_id, events), AlreadyCommitted)
        check(lake, world)
    assert audit(lake.table()).findings == ()


def check(lake: Lake, world: World) -> None:
    """Compare the tables with the dictionary."""
    found = [{name: value for name, value in one.items() if value is not None} for one in live_rows(lake)]
    for one in found:
        if "rest" in one:
            one["rest"] = json.loads(one["rest"])
    wanted = [{name: value for name, value in one.items() if value is not None} for one in world.rows]
    assert sorted(found, key=by_version) == sorted(wanted, key=by_version)
    if world.letters:
        letters = lake.catalog.load_table(f"{TABLE}__dead_letters").scan().to_arrow().to_pylist()
        assert {(row_in(one)["id"], one["reason"]) for one in letters} == {*world.letters}
        assert len(letters) == len(world.letters)
    if "log" in world.chosen:
        log = lake.catalog.load_table("demo.log").scan().to_arrow().to_pylist()
        assert sorted((one["_operation"], one["id"], one["version"]) for one in log) == sorted(world.log)


def row_in(letter: Row) -> Row:
    """The row of a dead letter."""
    document = letter["payload_bytes"] or letter["payload"].encode()
    if document.startswith(b"\0"):
        schema = fastavro.parse_schema(SCHEMAS[int.from_bytes(document[1:5])])
        found: Any = fastavro.schemaless_reader(BytesIO(document[5:]), schema, None)
    else:
        found = json.loads(document)
    row: Row = found.get("after") or found
    return row


def by_version(one: Row) -> tuple[int, int]:
    return one["id"], one["version"]


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize(("mode", "decode", "chosen"), [*cells(whole=True)])
def test_deaths_and_lost_answers_between_the_commits_of_a_batch_change_nothing(
    tmp_path: Path, mode: str, decode: str, chosen: frozenset[str], seed: int
) -> None:
    lake, chance = Lake.make(tmp_path, schema=TABLE_SCHEMA), random.Random(seed)
    world = World(mode, chosen, typed=not decode)
    driver = Driver(lake, world, decode, can_write_again=seed % 2 == 0)
    for batch_id, events in enumerate(world.batches()):
        world.apply(events)
        lake.catalog.faults = chance.choices([dies_before, dies_after, answer_is_lost], k=chance.randrange(1, 5))
        until_it_lives(partial(driver.take, batch_id, events))
        lake.catalog.faults = []
        check(lake, world)
    assert audit(lake.table()).findings == ()
