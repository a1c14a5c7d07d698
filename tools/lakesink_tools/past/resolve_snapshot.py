"""Chooses the snapshot that shows a table as of a batch, a time or a tag, and the SQL that reads it.

An expired snapshot is reported as expired. The error names the nearest retained one, which never replaces it. Pure:
works on one version of the metadata.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lakesink_catalog.read.past import PastCommit, Retained, by_sink, time_of
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.quality import REPLAY
from lakesink_protocol.suggest import did_you_mean
from lakesink_tools.past.records import runs

_SHOWN = 8
_LARGEST_INTEGER = 2**31 - 1
_SAFE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SAFE_TAG = re.compile(r"[A-Za-z][A-Za-z0-9._@%/:+-]*")


@dataclass(frozen=True, slots=True)
class LookBack:
    """What one version of a table's metadata still shows, and what readers of one branch saw."""

    table: str  # identifier, for messages
    branch: str
    retained: Retained
    last: Mapping[SinkKey, int]  # the last batch of each sink, by the ledger or its newest mark
    heads: Sequence[tuple[int, int]]  # each change of the branch's head: milliseconds and snapshot id, oldest first
    tags: Mapping[str, int]  # tag -> snapshot id

    def batches(self, snapshot_id: int) -> dict[SinkKey, int]:
        """The newest batch of each sink in that snapshot, as far as the ancestry is retained."""
        found: dict[SinkKey, int] = {}
        for commit in self.retained.ancestry(snapshot_id):
            if commit.mark is not None:
                found.setdefault(commit.mark.key, commit.mark.batch_id)
        return found


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen snapshot."""

    commit: PastCommit
    key: SinkKey | None = None  # the sink of the batch; None for a time or a tag
    note: str = ""  # explains an answer that is not exact; else empty


def by_batch(past: LookBack, batch_id: int, sink: str | None = None) -> Chosen:
    """The snapshot of a batch; of several with this id, the newest that was not rolled back.

    `sink` may be None if the branch has one sink, beside replays of its dead letters.
    """
    key = _sink(past, sink)
    batches = by_sink(past.retained.commits).get(key, ())
    same = [batch for batch in batches if batch.batch_id == batch_id]
    if same:
        there = [batch for batch in same if batch.is_counted] or same
        best = ([batch for batch in there if _moved(batch) is None] or there)[-1]
        return Chosen(best, key, _note(best, same))
    last = past.last.get(key, -1)
    if batch_id > last:
        raise CatalogError.of(
            "BATCH_NOT_YET", batch_id=batch_id, name=key.name, branch=key.branch, table=past.table, last=last
        )
    if before := _left_unchanged(past.retained, batches, batch_id):
        return Chosen(
            before,
            key,
            f"Batch {batch_id} made no snapshot of its own: the table stayed as batch {before.batch_id} had left it.",
        )
    ids = [batch.batch_id for batch in batches]
    retained = _cut(f"batches {ranges(ids)}") if ids else "no batch of it any more"
    raise CatalogError.of("BATCH_EXPIRED", batch_id=batch_id, name=key.name, retained=retained)


def by_time(past: LookBack, time_ms: int) -> Chosen:
    """What readers of the branch saw at a time: milliseconds since 1970 in UTC, by the clocks of the committers."""
    passed = [place for place, (at_ms, _) in enumerate(past.heads) if at_ms <= time_ms]
    if not passed or not _was_head(past, passed[-1]):
        raise _unseen(past, time_ms)
    return Chosen(past.retained.by_id[past.heads[passed[-1]][1]])


def by_tag(past: LookBack, tag: str) -> Chosen:
    """The snapshot that a tag points at."""
    commit = past.retained.by_id.get(past.tags.get(tag, 0))
    if commit is not None:
        return Chosen(commit)
    if tag in past.tags:
        raise CatalogError.of("TAG_DANGLING", tag=tag[:60], table=past.table)
    near = did_you_mean(tag, past.tags) or "The table has no tags: ask for a --batch or a --time."
    raise SettingsError.of("TAG_UNKNOWN", table=past.table, tag=tag[:60], near=near)


def queries(parts: Sequence[str], metadata_file: str, snapshot_id: int, tag: str | None) -> dict[str, str]:
    """One query for each engine, by the engine's name, to copy; an engine may need its name of the catalog in front.

    `parts` are namespaces and name of the table. A tag that stays at the snapshot outlives expiry.
    """
    # Engines quote other characters by different rules; the id needs no quotes.
    named = f"'{tag}'" if tag is not None and _SAFE_TAG.fullmatch(tag) else None
    file = metadata_file.removeprefix("file://").replace("'", "''")
    spark, trino = _quoted(parts, "`"), _quoted(parts, '"')
    return {
        "Spark": f"SELECT * FROM {spark} VERSION AS OF {named or snapshot_id};",
        "Trino": f"SELECT * FROM {trino} FOR VERSION AS OF {named or id_for_trino(snapshot_id)};",
        "DuckDB": f"SELECT * FROM iceberg_scan('{file}', snapshot_from_id => {snapshot_id});",
    }


def id_for_trino(snapshot_id: int) -> str:
    """Trino reads a number that fits an integer as INTEGER, and refuses it as a version."""
    return f"BIGINT '{snapshot_id}'" if snapshot_id <= _LARGEST_INTEGER else str(snapshot_id)


def _sink(past: LookBack, sink: str | None) -> SinkKey:
    here = {key for key in past.last if key.branch == past.branch}
    fitting = sorted((key for key in here if sink in (None, key.name)), key=lambda key: (key.name, key.kind.value))
    named_or_own = [key for key in fitting if sink is not None or not key.name.startswith(REPLAY)] or fitting
    if len(named_or_own) == 1:
        return named_or_own[0]
    if fitting:
        named = ", ".join(f"{key.name} ({key.kind.value})" for key in named_or_own)
        raise SettingsError.of("SINK_AMBIGUOUS.of_command", branch=past.branch, table=past.table, sinks=_cut(named))
    elsewhere = sorted({key.branch for key in past.last if sink in (None, key.name)})
    wanted = "a sink" if sink is None else f"sink {sink[:60]!r}"
    near = did_you_mean(sink, {key.name for key in here}) if sink else ""
    hint = f"There is one on branch {', '.join(elsewhere)}: give --branch." if elsewhere else near
    raise SettingsError.of("SINK_UNKNOWN", branch=past.branch, table=past.table, wanted=wanted, hint=hint)


def _moved(batch: PastCommit) -> int | None:
    """The later batch that the ledger had when an operator accepted this one; None if the batch came in order."""
    mark = batch.known_mark
    return None if mark.ledger_batch_id == mark.batch_id else mark.ledger_batch_id


def _note(batch: PastCommit, same: Sequence[PastCommit]) -> str:
    number, after = batch.batch_id, _moved(batch)
    if after is not None:
        return (
            f"An operator accepted batch {number} after batch {after}: this snapshot shows the batches up to {after}"
            f" too. The table as batch {number} first left it is not retained."
        )
    if batch.in_branch is False:
        return f"Rolled back: branch {batch.known_mark.key.branch} no longer contains this snapshot of batch {number}."
    if len(same) > 1:
        return f"{len(same)} retained snapshots contain batch {number}: this is the newest in the branch."
    return ""


def _left_unchanged(retained: Retained, batches: Sequence[PastCommit], batch_id: int) -> PastCommit | None:
    """The previous batch, if the ancestry of the next one shows no commit between them."""
    kept = [batch for batch in batches if batch.is_counted]
    for before, after in reversed(list(pairwise(kept))):
        if before.batch_id < batch_id < after.batch_id:
            linked = any(one.snapshot_id == before.snapshot_id for one in retained.ancestry(after.snapshot_id))
            return before if linked else None
    return None


def _was_head(past: LookBack, place: int) -> bool:
    """True if no expired snapshot was the head between this head and the next one."""
    head = past.retained.by_id.get(past.heads[place][1])
    if head is None or place + 1 == len(past.heads):
        return head is not None
    following = past.retained.by_id.get(past.heads[place + 1][1])
    if following is None or following.parent_snapshot_id == head.snapshot_id:
        return following is not None
    return following.sequence_number <= head.sequence_number  # the branch was rolled back to it


def _unseen(past: LookBack, time_ms: int) -> CatalogError:
    later = next(((at_ms, found) for at_ms, found in past.heads if at_ms > time_ms), None)
    first = past.retained.by_id.get(later[1]) if later and later == past.heads[0] else None
    if first is not None and first.parent_snapshot_id is None and first.sequence_number <= 1:
        reason = "The table was empty then: that one is its first."
    else:
        reason = "Either the table was empty then, or what it held has expired (tag_every keeps some)."
    kept = f"lakesink log {past.table} shows what is retained."
    if past.tags:
        kept = f"Tags are kept: {_cut(', '.join(sorted(past.tags)))}."
    shown = f"the next that is retained is {later[1]} of {moment_of(later[0])}" if later else "none is retained"
    return CatalogError.of(
        "TIME_NOT_RETAINED", branch=past.branch, moment=moment_of(time_ms), next=shown, reason=reason, kept=kept
    )


def ranges(numbers: Sequence[int]) -> str:
    """Format ranges, ``0, 6-9``; of many ranges, only the newest."""
    parts = runs(sorted(set(numbers)))
    return ", ".join(["…"] * (len(parts) > _SHOWN) + parts[-_SHOWN:])


def moment_of(time_ms: int) -> str:
    """ISO 8601 in UTC, in milliseconds."""
    return time_of(time_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def _quoted(parts: Sequence[str], mark: str) -> str:
    return ".".join(
        part if _SAFE_NAME.fullmatch(part) else f"{mark}{part.replace(mark, mark * 2)}{mark}" for part in parts
    )
