"""What libraries work out anew each time, remembered: most of a seed's time was spent on it.

A reader of Avro depends on the schema in a file's header and on the schema that is asked for, and on nothing else; the
files of all seeds have the same few. What DuckDB finds depends on the documents and the query. The parts of a table's
metadata never change, so a copy of it may share them. And calls of a pool's threads are done by the caller: there is
nothing to wait for. Only the simulator does this, in its own process.
"""

import json
import os
from collections.abc import Callable, Mapping
from copy import copy
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyiceberg.avro import file as avro
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.io import pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Summary
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakesink.decode import json_values
from lakesink.decode.libraries import load_duckdb
from lakesink.parquet import filesystem
from proof.simulator.world import POOL

MOST_FOUND = 2_000
"""Answers of DuckDB that are kept."""
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


class _Connection:
    """A connection to DuckDB that asks the same of the same documents once."""

    def __init__(self, shipped: Any) -> None:
        self._shipped = shipped
        self._table: Any = None
        self._found: dict[Any, Any] = {}

    def register(self, name: str, table: pa.Table) -> None:
        self._table = table
        self._name = name

    def execute(self, *query: Any) -> Any:
        self._shipped.register(self._name, self._table)
        return self._shipped.execute(*query)

    def sql(self, query: str) -> Any:
        key = query, self._table.schema, *map(tuple, self._table.to_pydict().values())
        if key not in self._found:
            if len(self._found) >= MOST_FOUND:
                self._found.clear()
            self._shipped.register(self._name, self._table)
            self._found[key] = self._shipped.sql(query).to_arrow_table()
        return SimpleNamespace(to_arrow_table=lambda: self._found[key])


class _OneConnection:
    """DuckDB for tasks, with one connection in each process: it takes longer to start than to read their documents."""

    def __init__(self, duckdb: Any) -> None:
        self._duckdb = duckdb
        self._connections: dict[int, Any] = {}

    def connect(self, config: Any) -> Any:
        process = os.getpid()  # a fork has no use for that of its parent
        if process not in self._connections:
            self._connections[process] = _Connection(self._duckdb.connect(config=config))
        return self._connections[process]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._duckdb, name)


def _copied(metadata: TableMetadataV2, _: Any = None) -> TableMetadataV2:
    """A copy with lists of its own, of the same schemas, snapshots and specs."""
    found = copy(metadata)
    own = {name: copy(part) for name, part in vars(found).items() if isinstance(part, list | dict)}
    vars(found).update(own)
    return found


def _said(summary: Summary, key: str) -> Any:
    """A value of a snapshot's summary; pydantic's own way to it is a long one."""
    if key == "operation":
        return summary.operation
    private: dict[str, Any] = summary.__pydantic_private__ or {}
    return private["_additional_properties"].get(key)


def _once_for_each_schema(make: Callable[..., Schema]) -> Callable[..., Schema]:
    """Arrow's schemas are equal whatever their field ids are, so their bytes are the key."""
    known: dict[Any, Schema] = {}

    def found(schema: pa.Schema, *rest: Any, **named: Any) -> Schema:
        key = schema.serialize().to_pybytes(), repr(rest), repr(named)
        if key not in known:
            known[key] = make(schema, *rest, **named)
        return known[key]

    return found


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
        (TableMetadataV2, "__deepcopy__", _copied),
        (Summary, "__getitem__", _said),
        (pyarrow, "pyarrow_to_schema", _once_for_each_schema(pyarrow.pyarrow_to_schema)),
        (ExecutorFactory, "get_or_create", staticmethod(lambda: POOL)),
        (filesystem, "ThreadPoolExecutor", lambda _: POOL),
    ):
        setattr(owner, name, function)
