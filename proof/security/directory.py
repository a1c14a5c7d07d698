"""Hostile receipts, prepared records and markers against a real directory: the file sink and its readers."""

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lakesink
from lakesink.sinks.directory.directory_sink import FileSink
from lakesink.sinks.directory.marker import Marker
from lakesink.sinks.staged.ledger import PreparedParts
from lakesink.sinks.staged.sink import StagedTransaction
from lakesink_catalog.commit.record import RECORD_VERSION
from lakesink_protocol.identity import Batch, digest
from lakesink_protocol.outcome import AlreadyCommitted
from proof.security.judge import ACCEPTED, WRITTEN_AGAIN, check_counts, refused_by, require
from proof.security.mutation import Forge, Forged, damaged, honest_json
from testkit.directory import Stream

COMMITTED = 3
SINK = "clicks"


@dataclass(slots=True)
class Place:
    """A directory with three batches, and the next written by real tasks and prepared, its driver dead."""

    folder: Path
    stream: Stream = field(init=False)
    batch: Batch = field(init=False)
    votes: Sequence[bytes] = field(init=False)
    sink: FileSink = field(init=False)
    transaction: StagedTransaction[Marker] = field(init=False)
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.stream = Stream(self.folder, SINK)
        for batch_id in range(COMMITTED):
            self.stream.run(batch_id)
        self.batch = self.stream.batch(COMMITTED)
        sink, begun = self.begin()
        assert begun.writer is not None
        self.votes = self.stream.write(self.batch, tasks=2)({"it": begun.writer}).receipts("it")
        prepared = sink.pre_commit(begun, self.votes)
        begun.prepared_log.put(self.batch, {sink.name: prepared.payload})
        self.names = frozenset(part.name for part in prepared.parts)
        self.sink, self.transaction = self.begin()

    def begin(self) -> tuple[FileSink, StagedTransaction[Marker]]:
        """A fresh driver's look."""
        sink = self.stream.sink()
        begun = sink.begin(self.batch)
        assert isinstance(begun, StagedTransaction)
        return sink, begun

    @property
    def root(self) -> Path:
        return self.folder / "_lakesink" / SINK

    @property
    def record(self) -> Path:
        return self.root / "prepared" / f"{COMMITTED}-{self.batch.fingerprint}.json"

    @property
    def newest(self) -> Path:
        return self.root / "commits" / f"{COMMITTED - 1:020d}.json"

    def check(self, prepared: PreparedParts) -> None:
        """All parts are this batch's own."""
        names = [part.name for part in prepared.parts]
        require(set(names) <= self.names or all(_is_own(name) for name in names), "a part of another batch or place")
        require(len(set(names)) == len(names), "a part twice")
        check_counts([part.rows for part in prepared.parts], [part.size_bytes for part in prepared.parts])


@dataclass(slots=True)
class PartReceipts:
    """The vote of one task of two; the other's is honest."""

    place: Place
    name: str = "receipt of files"

    def forge(self, chance: random.Random) -> Forged:
        if chance.random() < 0.1:
            return Forged("damaged bytes", damaged(self.place.votes[1], chance))
        other, honest = (json.loads(vote) for vote in self.place.votes)
        return Forge(honest, [other["parts"][0], other["parts"][0][0], "../x", f"../commits/{0:020d}.json"]).text(
            chance
        )

    def feed(self, data: bytes) -> str:
        place = self.place
        votes = [place.votes[0], data]
        return refused_by(lambda: place.check(place.sink.pre_commit(place.transaction, votes))) or ACCEPTED


@dataclass(slots=True)
class PartRecords:
    """The prepared record of a batch of files."""

    place: Place
    name: str = "prepared record of files"
    _found: str = ""

    def forge(self, chance: random.Random) -> Forged:
        honest = _honest_record(self.place)
        if chance.random() < 0.08:
            return Forged("damaged bytes", damaged(_digested(honest_json(honest)), chance))
        committed = json.loads(self.place.newest.read_bytes())["parts"][0]
        name = committed["path"].rpartition("/")[2]
        made = Forge(honest, [name, [name, committed["rows"], committed["bytes"]], committed, "../x"]).text(chance)
        return Forged(made.kind, _digested(made.data))

    def feed(self, data: bytes) -> str:
        self.place.record.write_bytes(data)
        return refused_by(self._find) or self._found

    def _find(self) -> None:
        place = self.place
        payloads = place.transaction.prepared_log.find(place.batch)
        payload = None if payloads is None else payloads.get(place.sink.name)
        prepared = None if payload is None else place.sink.recover(place.transaction, payload)
        self._found = WRITTEN_AGAIN if prepared is None else ACCEPTED
        if prepared is not None:
            place.check(prepared)
            there = {path.name: path.stat().st_size for path in (place.root / "parts").iterdir()}
            require(all(there.get(part.name) == part.size_bytes for part in prepared.parts), "a part that is not there")


@dataclass(slots=True)
class Markers:
    """The newest marker of a directory, whose digest any writer can make anew; seen by a stream and by readers."""

    place: Place
    name: str = "marker"
    _honest: bytes = field(init=False)
    _found: str = ""

    def __post_init__(self) -> None:
        self._honest = self.place.newest.read_bytes()

    def forge(self, chance: random.Random) -> Forged:
        if chance.random() < 0.1:
            return Forged("damaged bytes", damaged(self._honest, chance))
        below = json.loads((self.place.root / "commits" / f"{0:020d}.json").read_bytes())
        tempting = [below, below["parts"], below["parts"][0], "../../../secret.parquet", "/etc/passwd"]
        made = Forge(json.loads(self._honest), tempting).text(chance)
        return Forged(made.kind, _signed(made.data) if chance.random() < 0.7 else made.data)

    def feed(self, data: bytes) -> str:
        place = self.place
        place.newest.write_bytes(data)
        try:
            return refused_by(self._look) or self._found
        finally:
            place.newest.write_bytes(self._honest)

    def _look(self) -> None:
        """A marker that is believed lists parts of this sink only, and never makes the next batch seem committed."""
        place = self.place
        read = lakesink.committed_files(place.folder)
        parts = f"{place.folder}/_lakesink/{SINK}/parts/"
        own = all(path.startswith(parts) and _is_own(path[len(parts) :], None) for path in read)
        require(own, "a reader was sent elsewhere")
        begun = place.stream.sink().begin(place.batch)
        require(not isinstance(begun, AlreadyCommitted), "a batch that is not there was skipped")
        self._found = ACCEPTED


def _is_own(name: str, batch: int | None = COMMITTED) -> bool:
    stem, _, rest = name.partition(f"{SINK}-" if batch is None else f"{SINK}-{batch}-")
    return not stem and bool(rest) and all(char.isascii() and (char.isalnum() or char in "-.") for char in rest)


def _honest_record(place: Place) -> Any:
    payload = place.sink.pre_commit(place.transaction, place.votes).payload
    identity = {"batch_id": COMMITTED, "query_id": place.batch.query_id, "fingerprint": place.batch.fingerprint}
    return {
        "version": RECORD_VERSION,
        "batch": identity,
        "created_ms": place.stream.chance.effects().now_ms(),
        "participants": {place.sink.name: payload},
    }


def _digested(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _signed(text: bytes) -> bytes:
    """The marker digests itself as it should."""
    try:
        document = json.loads(text)
        document.pop("digest", None)
        return honest_json(document | {"digest": digest(document)})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return text
