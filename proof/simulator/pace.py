"""What PyIceberg works out anew for every Avro file, remembered: two thirds of a seed's time were spent on it.

A reader depends on the schema in a file's header and on the schema that is asked for, and on nothing else; the files of
all seeds have the same few. Only the simulator does this, in its own process.
"""

import json
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from pyiceberg.avro import file as avro
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakesink.decode import json_values
from lakesink.decode.libraries import load_duckdb

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
