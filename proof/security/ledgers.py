"""Forged ledger entries: whatever the property says, no batch is skipped that is not there, none comes twice."""

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lakesink_catalog.read.view import view_metadata
from lakesink_protocol.identity import Batch
from lakesink_protocol.ledger import TableView
from lakesink_protocol.refusals.message import refusal
from lakesink_protocol.situation import Situation
from lakesink_protocol.verdict import Commit, Refuse, Skip, Verdict, decide
from proof.security.judge import ACCEPTED, check_message, require
from proof.security.mutation import Forge, Forged, damaged, honest_json
from testkit.builders import Lake, Stream
from testkit.maintenance import append_foreign, expire

LAST = 4


@dataclass(slots=True)
class History:
    """A table with batches 0 to `LAST` and others' commits between; `expired` leaves what expiry leaves.

    Attributes:
        folder: Where it lies.
        expired: True if only the head and the ledger tag's snapshot are retained, and no link between them.
    """

    folder: Path
    expired: bool
    lake: Lake = field(init=False)
    stream: Stream = field(init=False)
    entries: tuple[Mapping[str, Any], ...] = field(init=False)

    def __post_init__(self) -> None:
        self.lake = Lake.make(self.folder)
        self.stream = Stream(self.lake)
        entries = []
        for batch_id in range(LAST + 1):
            self.stream.run(batch_id)
            append_foreign(self.lake)
            entries.append(json.loads(self.lake.table().properties[self.stream.key.ledger_property]))
        self.entries = tuple(entries)
        if self.expired:
            append_foreign(self.lake)
            expire(self.lake)


@dataclass(slots=True)
class Entries:
    """The ledger property of one sink."""

    history: History
    name: str = "ledger entry"
    _table: Any = field(init=False)
    _forge: Forge = field(init=False)

    def __post_init__(self) -> None:
        history = self.history
        self.name = f"ledger entry, {'expired' if history.expired else 'whole'} history"
        self._table = history.lake.table()
        before, now = history.entries[-2], history.entries[-1]
        snapshots = [snapshot.snapshot_id for snapshot in self._table.metadata.snapshots]
        tempting: list[Any] = [*snapshots, *before.values(), before, history.entries[0], LAST + 1, LAST - 1]
        if not history.expired:
            tempting += [asdict(self._next()), self._next().fingerprint]
        self._forge = Forge(now, tempting)

    def forge(self, chance: random.Random) -> Forged:
        if chance.random() < 0.05:
            return Forged("damaged bytes", damaged(honest_json(self._forge.honest), chance))
        return self._forge.text(chance)

    def feed(self, data: bytes) -> str:
        text = data.decode(errors="replace")
        metadata, key = self._table.metadata, self.history.stream.key
        properties = {**metadata.properties, key.ledger_property: text}
        view = view_metadata(metadata.model_copy(update={"properties": properties}), self._table.io, key)
        refused = [self._judge(view, batch, inside=inside) for batch, inside in self._batches()]
        return refused[0] or refused[1] or ACCEPTED  # of the newest batch and of the next

    def _batches(self) -> list[tuple[Batch, bool | None]]:
        """Batches with whether they are in the table; None if they are nobody's, and may be nothing but refused."""
        stream = self.history.stream
        changed = replace(stream.batch(LAST), fingerprint="0" * 32)
        return [
            (stream.batch(LAST), True),
            (self._next(), False),
            (stream.batch(LAST - 1), True),
            (changed, None),
            (stream.batch(LAST + 2), None),
        ]

    def _next(self) -> Batch:
        return self.history.stream.batch(LAST + 1)

    def _judge(self, view: TableView, batch: Batch, *, inside: bool | None) -> str:
        """What the batch is refused for; empty if it is not."""
        situation = Situation(view, self.history.stream.key, batch, str(self._table.metadata.table_uuid))
        verdict: Verdict = decide(situation)
        match verdict:
            case Commit(rule=rule):
                require(inside is False, f"rule {rule} commits a batch that is in the table, or does not follow")
            case Skip(rule=rule):
                require(inside is True, f"rule {rule} skips a batch that is not in the table")
            case Refuse(reason=reason):
                check_message(refusal(reason, situation))
                return reason.name
        return ""
