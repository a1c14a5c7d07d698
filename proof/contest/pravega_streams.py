"""A Pravega of the streams of one sink, and what a reader sees in a stream. Its client is beside the environment.

A stream has one segment: only there a reader sees the end of a transaction in one step.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakesink
from proof.contest.target import Target, View, seen
from proof.oracle import Key
from servers.jars import ROOT
from servers.pravega import client_folder, installed, pravega

if TYPE_CHECKING:
    from pravega_controller import Controller

_SCOPE, _ADDRESS = "contest", "controller"
_SINK = ROOT / "examples" / "transactional_sinks" / "pravega"


@contextmanager
def pravega_of(targets: Sequence[Target]) -> Iterator[None]:
    """A server with a stream for each of ours, whose address is beside their folders.

    Raises:
        Missing: There is no client for this Python, or the server cannot be fetched.
    """
    installed()
    _use_client()
    import pravega_client  # noqa: PLC0415 - beside the environment

    root = targets[0].folder.parent
    (root / "server").mkdir(parents=True)
    with pravega(root / "server") as server:
        manager = pravega_client.StreamManager(f"tcp://{server.controller}")
        manager.create_scope(_SCOPE)
        for target in targets:
            manager.create_stream(_SCOPE, target.folder.name, 1)
        (root / _ADDRESS).write_text(server.controller)
        yield


def into_pravega(rows: DataFrame, target: Target) -> DataStreamWriter:
    """A stream into Pravega's."""
    _use_client()
    import pravega_staging  # noqa: PLC0415 - as above
    from pravega_sink import PravegaSink  # noqa: PLC0415 - as above

    rows.sparkSession.sparkContext.addPyFile(pravega_staging.__file__)
    sink = PravegaSink(_controller(target), sink_id=f"of-{target.folder.name}", staging=target.folder / "staging")
    return lakesink.stream_to(rows.selectExpr("to_json(struct(*)) AS value"), sink, checkpoint=target.checkpoint)


def events(target: Target) -> View:
    """What every event in the stream holds."""
    return seen(_rows(target))


def _rows(target: Target) -> Iterator[Key]:
    _use_client()
    from testkit.pravega_events import events_of, segments_of  # noqa: PLC0415 - as above

    for segment in segments_of(_controller(target)).values():
        for event in events_of(segment):
            row = json.loads(event)
            yield row["device"], row["reading"]


def _controller(target: Target) -> "Controller":
    from pravega_controller import Controller  # noqa: PLC0415 - as above

    return Controller((target.folder.parent / _ADDRESS).read_text(), _SCOPE, target.folder.name)


def _use_client() -> None:
    for path in map(str, (_SINK, client_folder())):
        if path not in sys.path:
            sys.path.append(path)
