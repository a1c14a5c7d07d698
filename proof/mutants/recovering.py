"""Bugs of the prepared record: believed when it is torn, of another table, of another history, or too old."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lakesink.sinks.iceberg import logs
from lakesink.sinks.iceberg.iceberg_sink import IcebergSink
from lakesink.sinks.iceberg.transaction import IcebergTransaction
from lakesink_catalog.commit import batch_commit as commit
from lakesink_catalog.commit import record
from lakesink_catalog.commit.batch_commit import FencedCommit
from lakesink_catalog.commit.decision import Decision, still_usable
from lakesink_catalog.commit.prepared import PreparedBatch, TableLog
from lakesink_protocol.identity import Batch
from lakesink_protocol.two_phase import Payload
from lakesink_protocol.verdict import Commit
from proof.mutants.mutant import Focus, Patches, mutant

FOR_EVER_MS = 10**15
PIECES: Mapping[str, Any] = {"files": [], "manifests": [], "rows": 0, "partitions": 0, "premises": {"specs": []}}


@mutant(
    "P9: a record that was cut short is believed as far as it goes.",
    seen_in="the write-ahead-log sinks of Flink's family: a partial write of the logged batch",
    focus=Focus(("write torn",)),
    scenario="the record is torn",
)
def torn_record_believed(patches: Patches) -> None:
    """The record is a log, a line each for what was written; the last whole line ends it."""

    def write(self: TableLog, path: str, data: bytes) -> None:
        real(self, path, _lines(data))

    real = patches.put(TableLog, "_write", write)
    patches.put(record, "parse_record", _as_far_as_it_goes)


@mutant(
    "P9: a record is used for whatever table has the name now.",
    seen_in="tables dropped and made again under their name, with staged files found by path",
    focus=Focus(("request lost",), ("replace the table",)),
    scenario="the table is replaced before the restart",
)
def record_of_an_older_table_used(patches: Patches) -> None:
    """The table's UUID is not compared."""

    def recover(self: IcebergSink, transaction: IcebergTransaction, payload: Payload) -> Any:
        return real(self, transaction, {**payload, "table_uuid": transaction.decision.situation.view.table_uuid})

    real = patches.put(IcebergSink, "recover", recover)


@mutant(
    "P9: a record is used whatever has become of the history that it was written for.",
    seen_in="the protocol's own model: a record used after a rollback resurrects files that expiry deletes",
    focus=Focus(actions=("roll back", "roll back"), seed=1),
    scenario="rolled back behind a record",
)
def follows_ignored(patches: Patches) -> None:
    """Neither the ledger's entry is compared nor whether the record's snapshot is in the table."""

    def usable(decision: Decision, prepared: PreparedBatch) -> bool:
        assert isinstance(decision.verdict, Commit)
        agrees = replace(prepared, follows=decision.situation.entry, accepted=decision.verdict.accepted, snapshot_id=0)
        return still_usable(decision, agrees)

    patches.put(commit, "still_usable", usable)
    patches.put(logs, "still_usable", usable)


@mutant(
    "P9: what was prepared long ago is committed unseen, although orphan cleaners have been there.",
    seen_in="other tools' orphan cleaners, which take unreferenced files after a day",
    focus=Focus(actions=("freeze", "clean orphans", "clean orphans"), seed=65),
    scenario="held up while an orphan cleaner runs",
)
def prepared_max_age_ignored(patches: Patches) -> None:
    """Files never grow old."""

    def find(self: TableLog, batch: Batch) -> Any:
        return real(replace(self, max_age_ms=FOR_EVER_MS), batch)

    real = patches.put(record.PreparedRecords, "find", find)
    patches.put(FencedCommit, "is_old", lambda _fence, _made_ms: False)
    patches.put(FencedCommit, "was_held_up", lambda _fence, _started: False)


def _begun(part: Mapping[str, Any]) -> dict[str, Any]:
    """What is recorded of a participant before any of its pieces: it agrees in itself, with nothing written."""
    return {**part, **PIECES, "premises": {**part["premises"], **PIECES["premises"]}}


def _lines(data: bytes) -> bytes:
    body = json.loads(data.partition(b"\n")[2])
    parts = body["participants"]
    first = {**body, "participants": {name: _begun(part) for name, part in parts.items()}}
    rest = [[name, {piece: part[piece] for piece in PIECES}] for name, part in parts.items()]
    return "\n".join(map(json.dumps, [first, *rest])).encode()


def _as_far_as_it_goes(data: bytes) -> dict[str, Any] | None:
    first, *rest = data.split(b"\n")
    try:
        body: dict[str, Any] = json.loads(first)
    except ValueError:
        return None
    for line in rest:
        try:
            name, pieces = json.loads(line)
        except ValueError:
            break
        body["participants"][name] |= pieces
    return body


MUTANTS = (
    torn_record_believed,
    record_of_an_older_table_used,
    follows_ignored,
    prepared_max_age_ignored,
)
