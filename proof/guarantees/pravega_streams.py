"""A Pravega of the cells of one sink, and what a reader sees in a stream. Its client is beside the environment.

A stream has one segment: only there a reader sees the end of a transaction in one step.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from proof.guarantees.cells import Row, Source
from servers.jars import ROOT
from servers.pravega import client_folder, installed, pravega

if TYPE_CHECKING:
    from pravega_controller import Controller

_SCOPE, _ADDRESS = "guarantees", "controller"
_SINK = ROOT / "examples" / "transactional_sinks" / "pravega"


@contextmanager
def pravega_of(root: Path) -> Iterator[None]:
    """A server with a stream for each kind of source, whose address is in the folder of the cells.

    Raises:
        Missing: There is no client for this Python, or the server cannot be fetched.
    """
    installed()
    _use_client()
    import pravega_client  # noqa: PLC0415 - beside the environment

    (root / "server").mkdir(parents=True)
    with pravega(root / "server") as server:
        manager = pravega_client.StreamManager(f"tcp://{server.controller}")
        manager.create_scope(_SCOPE)
        for source in Source:
            manager.create_stream(_SCOPE, source.name, 1)
        (root / _ADDRESS).write_text(server.controller)
        yield


def events_into_pravega(rows: DataFrame, folder: Path, checkpoint: str) -> DataStreamWriter:
    """The stream of one cell."""
    _use_client()
    import pravega_staging  # noqa: PLC0415 - as above
    from pravega_sink import PravegaSink  # noqa: PLC0415 - as above

    rows.sparkSession.sparkContext.addPyFile(pravega_staging.__file__)
    sink = PravegaSink(_controller(folder), sink_id=f"of-{folder.name.lower()}", staging=folder / "staging")
    return lakesink.stream_to(rows.selectExpr("to_json(struct(*)) AS value"), sink, checkpoint=checkpoint)


def events_in_pravega(folder: Path) -> Iterator[Row]:
    """The rows of every event in the stream of one cell."""
    _use_client()
    from testkit.pravega_events import events_of, segments_of  # noqa: PLC0415 - as above

    for segment in segments_of(_controller(folder)).values():
        for event in events_of(segment):
            row = json.loads(event)
            yield row["device"], row["reading"]


def _controller(folder: Path) -> "Controller":
    from pravega_controller import Controller  # noqa: PLC0415 - as above

    return Controller((folder.parent / _ADDRESS).read_text(), _SCOPE, folder.name)


def _use_client() -> None:
    for path in map(str, (_SINK, client_folder())):
        if path not in sys.path:
            sys.path.append(path)
