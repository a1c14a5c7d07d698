"""Splits the only segment of a stream in two, as Pravega does by itself under load."""

import time
from typing import Any

import grpc

from tests.interop.pravega.place import PATIENCE_SECONDS, SCOPE, Place

messages = grpc.protos("tests/interop/pravega/scaling.proto")
SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService"


def split(place: Place) -> None:
    """Seal segment 0 of epoch 0, and go on with two."""
    info = messages.StreamInfo(scope=SCOPE, stream=place.stream)
    halves = [messages.ScaleRequest.KeyRangeEntry(start=start, end=start + 0.5) for start in (0.0, 0.5)]
    now = time.time_ns() // 1_000_000
    request = messages.ScaleRequest(streamInfo=info, sealedSegments=[0], newKeyRanges=halves, scaleTimestamp=now)
    with grpc.insecure_channel(place.controller) as channel:
        started = _ask(channel, "scale", request, messages.ScaleResponse)
        assert started.status == messages.ScaleResponse.STARTED
        wanted = messages.ScaleStatusRequest(streamInfo=info, epoch=0)
        deadline = time.monotonic() + PATIENCE_SECONDS
        status = messages.ScaleStatusResponse
        while _ask(channel, "checkScale", wanted, status).status != status.SUCCESS:
            assert time.monotonic() < deadline, "the stream did not scale"
            time.sleep(0.1)


def _ask(channel: Any, call: str, request: Any, answer: Any) -> Any:
    ask = channel.unary_unary(
        f"{SERVICE}/{call}",
        request_serializer=lambda it: it.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    return ask(request, timeout=PATIENCE_SECONDS)
