"""What libraries work out anew for each file and each state of a table, remembered or shared, in this process only.

- A reader of Avro depends on the schema in a file's header and on the schema that is asked for, and on nothing else.
  The files of all seeds have the same few; two thirds of a seed's time were spent on them.
- A schema and a partition spec never change, nor does the JSON of one.
- DuckDB finds the same columns in the same documents, which each attempt of a task and each driver reads again.
- The parts of a table's metadata are never changed in place, so the next state shares them. If the product changed one
  after all, the book of the simulator's judge would change too, and the judge would see it.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyiceberg.avro import file as avro
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Summary
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakesink.decode import json_values
from lakesink.decode.json_values import JsonReader, load_duckdb

MOST_COLUMNS = MOST_PARTS = 4096
_readers: dict[Any, Any] = {}


@lru_cache
def _schema_in(text: str) -> Schema:
    return AvroSchemaConversion().avro_to_iceberg(json.loads(text))


def _remembered(make: Callable[..., Reader]) -> Callable[..., Reader]:
    def reader(*arguments: Any) -> Reader:
        key = make, *map(_name, arguments)
        if key not in _readers:
            _readers[key] = make(*arguments), arguments  # the arguments stay alive, for their addresses are their names
        return _readers[key][0]  # type: ignore[no-any-return] # it is what `make` made

    return reader


def _name(argument: Any) -> Any:
    return tuple(argument.items()) if isinstance(argument, Mapping) else id(argument)


class _OneConnection:
    """DuckDB for tasks, with one connection in each process: it takes longer to start than to read their documents."""

    def __init__(self, duckdb: Any) -> None:
        self._duckdb = duckdb
        self._connections: dict[int, Any] = {}

    def connect(self, config: Any) -> Any:
        process = os.getpid()  # a fork has no use for that of its parent
        if process not in self._connections:
            self._connections[process] = self._duckdb.connect(config=config)
        return self._connections[process]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._duckdb, name)


def _columns_found(find: Callable[[JsonReader, pa.Array, str], list[pa.Array]]) -> Callable[..., list[pa.Array]]:
    known: dict[Any, list[pa.Array]] = {}

    def found(reader: JsonReader, texts: pa.Array, query: str) -> list[pa.Array]:
        key = query, texts.type, *texts.cast(pa.binary()).to_pylist()
        if key not in known:
            if len(known) >= MOST_COLUMNS:
                known.clear()
            known[key] = find(reader, texts, query)
        return [*known[key]]

    return found


def _json_remembered(dump: Callable[[Any], str]) -> Callable[..., str]:
    known: dict[int, tuple[Any, str]] = {}

    def dumped(part: Any) -> str:
        if id(part) not in known:
            if len(known) >= MOST_PARTS:
                known.clear()
            known[id(part)] = part, dump(part)  # the part stays alive, for its address is its name
        return known[id(part)][1]

    return dumped


def _with_shared_parts(metadata: TableMetadataV2, _: object = None) -> TableMetadataV2:
    copied = copy(metadata)
    for name, part in metadata.__dict__.items():
        if isinstance(part, list | dict):
            copied.__dict__[name] = copy(part)
    return copied


def _stated(summary: Summary, name: str) -> Any:
    private = summary.__pydantic_private__ or {}
    return summary.operation if name.lower() == "operation" else private["_additional_properties"].get(name)


_WHILE_SIMULATING = (
    (JsonReader, "_found", _columns_found(JsonReader._found)),  # noqa: SLF001 - the one place where DuckDB reads
    (TableMetadataV2, "__deepcopy__", _with_shared_parts),
    (Summary, "__getitem__", _stated),
    (Schema, "model_dump_json", _json_remembered(Schema.model_dump_json)),
    (PartitionSpec, "model_dump_json", _json_remembered(PartitionSpec.model_dump_json)),
)


@contextmanager
def remembering() -> Iterator[None]:
    """Inside, this process reads the same documents once, and states of a table share their parts."""
    with ExitStack() as stack:
        for owner, name, function in _WHILE_SIMULATING:
            stack.enter_context(patch.object(owner, name, function))
        yield


def remember() -> None:
    """From here on this process derives each reader once."""
    connected = _OneConnection(load_duckdb())

    def checked() -> Any:
        load_duckdb()  # other tests of this process see what it refuses
        return connected

    for owner, name, function in (
        (avro.AvroFileHeader, "get_schema", lambda header: _schema_in(header.meta["avro.schema"])),
        (avro, "resolve_reader", _remembered(resolve_reader)),
        (avro, "construct_reader", _remembered(construct_reader)),
        (json_values, "load_duckdb", checked),
    ):
        setattr(owner, name, function)
