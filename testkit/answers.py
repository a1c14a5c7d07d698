"""Answers of a catalog to one commit, true or false: each is a fault for `FaultyCatalog`."""

from collections.abc import Callable

from pydantic import BaseModel, ValidationError
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    ServerError,
    ServiceUnavailableError,
    UnauthorizedError,
)
from pyiceberg.table import CommitTableResponse
from requests.exceptions import ChunkedEncodingError, ReadTimeout
from requests.exceptions import ConnectionError as Disconnected

from testkit.builders import Apply, Fault, Lake


def _garbled() -> Exception:
    class Body(BaseModel):
        metadata: int

    try:
        Body.model_validate({"metadata": "<html>"})
    except ValidationError as error:
        return error
    raise AssertionError


ERRORS: dict[str, Exception] = {
    "409 conflict": CommitFailedException("Requirement failed: branch main has changed"),
    "500 state unknown": CommitStateUnknownException("500"),
    "502 bad gateway": ServerError("502"),
    "503 unavailable": ServiceUnavailableError("503"),
    "429 too many": ServerError("429"),
    "400 bad request": BadRequestError("400"),
    "401 token expired": UnauthorizedError("401"),
    "404 in between": NoSuchTableError("404"),
    "time-out": ReadTimeout("read timed out"),
    "reset": Disconnected("reset by peer"),
    "cut body": ChunkedEncodingError("ended early"),
    "garbled body": _garbled(),
    "sequence number": ValueError("Cannot add snapshot with sequence number 2 older than last sequence number 2"),
    "disk": OSError("no space left on device"),
    "a library's own mistake": AttributeError("'NoneType' object has no attribute 'metadata'"),
}


def refuses_with(error: Exception) -> Fault:
    """The commit is not applied."""

    def fault(_: Apply) -> CommitTableResponse:
        raise error

    return fault


def lands_but_says(error: Exception) -> Fault:
    """The commit is applied, but the answer is this error."""

    def fault(apply: Apply) -> CommitTableResponse:
        apply()
        raise error

    return fault


def sent_twice(apply: Apply) -> CommitTableResponse:
    """The transport repeats the request: the second attempt fails because the first one landed."""
    apply()
    return apply()


def first(action: Callable[[], object]) -> Fault:
    """Another action comes first."""

    def fault(apply: Apply) -> CommitTableResponse:
        action()
        return apply()

    return fault


def lands_then(action: Callable[[], object]) -> Fault:
    """The commit is applied, another action follows, and the answer is lost."""

    def fault(apply: Apply) -> CommitTableResponse:
        apply()
        action()
        raise ReadTimeout("read timed out")

    return fault


def says_yes_and_shows_what_was(lake: Lake) -> Fault:
    """The commit is not applied; the answer is the table as it was."""

    def fault(_: Apply) -> CommitTableResponse:
        table = lake.table()
        return CommitTableResponse(metadata=table.metadata, metadata_location=table.metadata_location)

    return fault


def says_yes_and_shows_another_branch(lake: Lake, branch: str) -> Fault:
    """The commit is applied, but the answer shows another head of the branch: a catalog without compare-and-swap."""

    def fault(apply: Apply) -> CommitTableResponse:
        answer = apply()
        moved = {name: ref for name, ref in answer.metadata.refs.items() if name != branch}
        before = lake.table().metadata.refs[branch]
        refs = moved | {branch: before.model_copy(update={"snapshot_id": answer.metadata.snapshots[0].snapshot_id})}
        metadata = answer.metadata.model_copy(update={"refs": refs})
        return CommitTableResponse(metadata=metadata, metadata_location=answer.metadata_location)

    return fault


def says_yes_and_shows_another_parent(apply: Apply) -> CommitTableResponse:
    """The commit is applied, but the answer shows another parent of the snapshot than the commit asserted."""
    answer = apply()
    *older, newest = answer.metadata.snapshots
    moved = [*older, newest.model_copy(update={"parent_snapshot_id": None})]
    metadata = answer.metadata.model_copy(update={"snapshots": moved})
    return CommitTableResponse(metadata=metadata, metadata_location=answer.metadata_location)
