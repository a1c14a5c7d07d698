"""What the model prints, told as a story, and as the lines that real drivers would have written of it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from proof.model.steps import State

STATES = tuple(State)
EVENTS = (
    "begin:commit",
    "begin:skip",
    "begin:refuse",
    "recovered",
    "prepared",
    "recorded",
    "aborted",
    "look:commit",
    "look:skip",
    "look:refuse",
    "attempt",
    "answer:landed",
    "answer:not-shown",
    "answer:unknown",
    "committed",
    "known",
    "again",
    "refused",
    "unresolved",
    "failed",
)
"""By their numbers in ``lakesink.pml``."""

REASONS = ("", "UnknownHistory", "RolledBack", "NewCheckpoint", "BatchChanged", "Rewound", "Gap", "LedgerLost")
PROMISES = (
    "",
    "rows twice",
    "rows missing",
    "files that are gone were committed",
    "files that are not whole were committed",
    "another writer's rows lost",
    "taken for committed, and not in the table",
    "refused although nobody gave a reason",
    "committed files deleted",
    "committed files overwritten",
    "a row that was replaced or deleted is back",
    "a key has two live rows",
    "a live row of a key is gone",
    "a change is neither in the table nor a dead letter",
    "dead letters or changes of a batch twice",
    "a dead letter is replayed twice",
    "a dead letter counts as replayed, and is not",
)

DEEDS = {
    "lands": "the catalog: snapshot {0} lands",
    "conflict": "the catalog: the request for snapshot {0} is refused",
    "arrives": "the network: the request for snapshot {0} arrives, late or once more",
    "foreign": "another writer: commits snapshot {0}",
    "compacts": "a compaction: begins to rewrite the files of snapshot {0}",
    "rewrites": "a compaction: commits snapshot {0}",
    "gives_up": "a compaction: is refused, rows of the files of snapshot {0} were deleted meanwhile",
    "repairs": "a replay: repairs letters for replay {0}",
    "goes_on": "a replay: goes on with the letters of replay {0}",
    "assigns": "a replay: the letters are assigned to replay {0}",
    "replays": "a replay: replay {0} commits snapshot {1}",
    "replay_dies": "a replay: dies",
    "expires": "expiry: removes snapshot {0}",
    "ages": "hours pass",
    "cleans": "a cleaner: deletes files that no snapshot holds",
    "rollback": "a person: rolls the table back to snapshot {0}",
    "mends": "a person: mends the checkpoint; batch {0} is the next",
    "restores": "a person: restores an older checkpoint; {0} batches planned, {1} committed",
    "renews": "a person: starts a new checkpoint, query {0}, at {1}",
    "returns": "a person: restores the catalog as it was at snapshot {0}",
    "broken": "BROKEN: {promise}",
}
LIFE = {"starts": "starts", "dies": "dies", "stops": "finds that the other one has been here, and stops"}
BESIDE = {
    "logs": "the changelog has the changes of batch {}",
    "puts_aside": "the table of dead letters has those of batch {}",
}


def told(said: Iterable[str]) -> Iterator[str]:
    """A story of one line a step."""
    for words in (line.split()[1:] for line in said):
        who, what, *numbers = words
        if what == "look":
            yield f"driver {who}: {_look([int(number) for number in numbers])}"
        elif what == "step":
            yield f"driver {who}: {_step([int(number) for number in numbers])}"
        elif what in LIFE:
            yield f"driver {who}: {LIFE[what]}"
        elif what in BESIDE:
            yield f"driver {who}: {BESIDE[what].format(*numbers)}"
        else:
            promise = PROMISES[int(numbers[0])] if what == "broken" else ""
            yield DEEDS[what].format(*numbers, promise=promise)


def steps_taken(taken: Iterable[tuple[int, int, int]]) -> set[str]:
    """Names of steps, as `proof.model.steps` spells them."""
    return {f"{STATES[before].value} {EVENTS[event]} {STATES[after].value}" for before, event, after in taken}


def _look(numbers: list[int]) -> str:
    _, event, _, batch, query, start, end, rule, reason, head, tag, entry, *_ = numbers
    verdict = REASONS[reason] or EVENTS[event].partition(":")[2]
    begins = "begins" if EVENTS[event].startswith("begin") else "looks again:"
    batch_in_words = f"{begins} batch {batch} of query {query} (from {start} to {end})"
    seen = f"head {head or '-'}, tag {tag or '-'}, entry {entry or '-'}"
    return f"{batch_in_words}; {seen}: rule {rule}, {verdict}"


def _step(numbers: list[int]) -> str:
    _, event, _, batch, snapshot, head, tag = numbers
    name = EVENTS[event]
    if name == "attempt":
        return f"sends snapshot {snapshot} for head {head or '-'} and tag {tag or '-'}"
    if name in ("prepared", "recovered"):
        return f"has {name} snapshot {snapshot} for batch {batch}"
    return {
        "recorded": "puts the record",
        "aborted": "gives the batch up",
        "answer:landed": "is shown its snapshot",
        "answer:not-shown": "is told yes, and not shown its snapshot",
        "answer:unknown": "gets no answer that proves anything",
        "committed": f"batch {batch} is committed",
        "known": f"batch {batch} was committed by another one",
        "again": "the ledger has moved on: writes the batch again",
        "refused": "ends: refused",
        "unresolved": "ends: unresolved",
    }[name]


@dataclass(slots=True)
class _Run:
    """One driver, from a start to its end."""

    name: str
    steps: int = 0
    found: int = 0


@dataclass(slots=True)
class Tracer:
    """Writes what the model prints as `testkit.tracing` writes what real drivers do."""

    runs: dict[str, _Run] = field(default_factory=dict)
    starts: int = 0
    batches: dict[int, dict[str, Any]] = field(default_factory=dict)
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)

    def lines(self, said: Iterable[str]) -> list[str]:
        """The trace of a story."""
        return [json.dumps(line) for words in said for line in self._line(*words.split()[1:])]

    def _line(self, who: str, what: str, *numbers: str) -> Iterator[dict[str, Any]]:
        values = [int(number) for number in numbers]
        if what == "starts":
            self.starts += 1
            self.runs[who] = _Run(f"{who}.{self.starts}")
        elif what == "look":
            yield {**self._head(who, values), **self._facts(who, values)}
        elif what == "step":
            yield {**self._head(who, values), **self._rest(who, values)}

    def _head(self, who: str, values: list[int]) -> dict[str, Any]:
        run = self.runs[who]
        run.steps += 1
        event = EVENTS[values[1]].partition(":")[0]
        return {"driver": run.name, "step": run.steps, "event": event, "batch_id": values[3]}

    def _facts(self, who: str, values: list[int]) -> dict[str, Any]:
        _, event, _, batch, query, start, end, rule, reason, head, tag, entry, gone, newest, shown, complete = values
        asked = {"batch_id": batch, "query_id": f"query {query}", "fingerprint": f"{start} to {end}", "end": str(end)}
        self.asked[who], self.runs[who].found = asked, shown or entry
        return {
            "sink": "modelled",
            "kind": "stream",
            "table": "modelled",
            "batch": {name: value for name, value in asked.items() if name != "batch_id"} | {"start": str(start)},
            "rule": rule,
            "verdict": REASONS[reason] or EVENTS[event].partition(":")[2],
            "accepted": "",
            "head": head or None,
            "tag": tag or None,
            "entry": {**self.batches[entry], "snapshot": entry} if entry else None,
            "gone": bool(gone),
            "newest": self.batches[newest] if newest else None,
            "shown": shown or None,
            "marked": bool(newest),
            "elsewhere": False,
            "complete": bool(complete),
            "tagged": True,
        }

    def _rest(self, who: str, values: list[int]) -> dict[str, Any]:
        _, event, _, _, snapshot, head, tag = values
        name, _, kind = EVENTS[event].partition(":")
        if name == "prepared":
            self.batches[snapshot] = self.asked[who]
        if name == "attempt":
            return {"snapshot": snapshot, "head": head or None, "tag": tag or None}
        if name == "answer":
            return {"shows": kind}
        return {"snapshot": self.runs[who].found if name == "known" else snapshot}
