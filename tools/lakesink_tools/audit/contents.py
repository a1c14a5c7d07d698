"""Checks that manifests and summaries agree and no file is referenced twice. Pure: works on what was read before.

What batches say about their changes by key is checked from summaries alone. Rows that a batch wrote are upserts, or
superseded ones that it removed itself. Live rows are the rows of data files without the deleted ones, so each batch
changes their number by what its counts say, whatever others did before it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lakesink_catalog.read.past import FileCounts, Past, PastCommit
from lakesink_catalog.words import counted
from lakesink_protocol.row_changes import MODE, ChangeCounts
from lakesink_tools.audit.finding import Code, Finding, Note, listed
from lakesink_tools.audit.inventory import Inventory, sums

_NAMES = ("files", "rows", "bytes", "delete files", "position deletes")

_NOTHING = FileCounts(0, 0, 0, 0, 0)
_COMPARED = 3
"""Totals of a head that are compared with its files: other engines do not agree on how they count delete files."""


def damaged(inventory: Inventory) -> Iterator[Finding]:
    """Manifests and manifest lists that cannot be read."""
    for path, why in inventory.damaged.items():
        yield Finding(Code.MANIFEST_UNREADABLE, "", f"{path}: {why}.", (path,))


def disagreeing_manifests(inventory: Inventory) -> Iterator[Finding]:
    """Manifests with other contents than their manifest list states."""
    for manifest in inventory.known():
        there = (len(manifest.entries), sum(entry.rows for entry in manifest.entries))
        if manifest.stated is not None and manifest.stated != there:
            found = f"{manifest.path}: {_counts(there)}, where the list states {_counts(manifest.stated)}."
            yield Finding(Code.MANIFEST_DISAGREES, "", found, (manifest.path,))


def doubled_files(snapshots: Iterable[PastCommit], inventory: Inventory) -> Iterator[Finding]:
    """Data files that one snapshot references more than once, reported in the first snapshot that shows them."""
    reported: set[str] = set()
    for snapshot in snapshots:
        times = Counter(entry.path for entry in inventory.entries(snapshot) if entry.is_data)
        paths = sorted(path for path, count in times.items() if count > 1 and path not in reported)
        reported.update(paths)
        if paths:
            found = f"Snapshot {snapshot.snapshot_id} references {counted(len(paths), 'data file')} more than once:"
            yield Finding(Code.FILE_TWICE, "", f"{found} {listed(paths)}.", tuple(paths))


def added_twice(inventory: Inventory, own: Iterable[int]) -> Iterator[Finding]:
    """Data files that two batches added; `own` lists the snapshots of batches that are on a branch."""
    ours = frozenset(own)
    brought: dict[str, int] = {}
    twice = set()
    for entry in (entry for manifest in inventory.known() for entry in manifest.entries):
        if entry.is_data and entry.added_by in ours:
            first = brought.setdefault(entry.path, entry.added_by)
            if first != entry.added_by:
                twice.add(entry.path)
    if paths := sorted(twice):
        found = f"{counted(len(paths), 'data file')} were added by two batches each: {listed(paths)}."
        yield Finding(Code.FILE_ADDED_TWICE, "", found, tuple(paths))


def unshown(batches: Iterable[PastCommit], shown: Sequence[Mapping[int, FileCounts]]) -> list[PastCommit]:
    """Batches whose files are not all live together in one of the read snapshots, as their summary counts them.

    `shown` has, for each read snapshot, what its files hold by the snapshot that added them.
    """
    return [one for one in batches if not any(_agrees(one, sums.get(one.snapshot_id, _NOTHING)) for sums in shown)]


def disagreeing_summaries(subject: str, batches: Iterable[PastCommit], inventory: Inventory) -> Iterator[Finding]:
    """Batches whose own manifests, read before, differ from their summaries."""
    for batch in batches:
        own = sums(entry for entry in inventory.entries(batch) if entry.is_new)
        there = own.get(batch.snapshot_id, _NOTHING)
        if inventory.is_whole(batch) and not _agrees(batch, there):
            claimed = _counts([count or 0 for count in batch.added])
            found = f"Batch {batch.batch_id}: its manifests hold {_counts(there)}, its summary states {claimed}."
            yield Finding(Code.SUMMARY_DISAGREES, subject, found, (str(batch.snapshot_id),))


def broken_sums(subject: str, batches: Sequence[PastCommit], known: Mapping[int, PastCommit]) -> Iterator[Finding]:
    """Batches whose totals are not the parent's totals with what they added and removed."""
    for batch in batches:
        parent = known.get(batch.parent_snapshot_id or 0)
        if parent is None:
            continue
        counts = zip(parent.totals, batch.added, batch.removed, batch.totals, _NAMES, strict=True)
        for before, added, removed, after, name in counts:
            expected = None if before is None else before + (added or 0) - (removed or 0)
            if None not in (expected, after) and expected != after:
                found = f"Batch {batch.batch_id}: its summary totals {after:,} {name}, its parent and it {expected:,}."
                yield Finding(Code.SUMMARY_DISAGREES, subject, found, (str(batch.snapshot_id),))


def contradictions(subject: str, batches: Sequence[PastCommit], known: Mapping[int, PastCommit]) -> Iterator[Finding]:
    """Batches whose counts contradict each other, the rows that they wrote, or the rows before and after them."""
    for batch in batches:
        if batch.changes is not None:
            said = list(_of_counts(batch.changes, batch, known.get(batch.parent_snapshot_id or 0)))
        else:
            said = ["its summary does not state what became of its changes"] if batch.text(MODE) else []
        if said:
            found = f"Batch {batch.batch_id}: {'; '.join(said)}."
            yield Finding(Code.CHANGES_DISAGREE, subject, found, (str(batch.snapshot_id),))


def totals(branch: str, past: Past, inventory: Inventory) -> Iterator[Finding | Note]:
    """Compare the totals of a branch's head with its files."""
    head = past.head
    if head is None or not inventory.is_whole(head):
        return
    parts, claims = sums(inventory.entries(head)).values(), head.totals[:_COMPARED]
    there = [sum(counts[place] or 0 for counts in parts) for place in range(_COMPARED)]
    wrong = [
        f"{number:,} {name} where its summary totals {claim:,}"
        for number, claim, name in zip(there, claims, _NAMES, strict=False)
        if claim is not None and claim != number
    ]
    if wrong:
        found = f"The head of {branch} has {', '.join(wrong)}."
        yield Finding(Code.TOTALS_DISAGREE, branch, found, (str(head.snapshot_id),))
    if None in claims:
        unknown = [name for name, claim in zip(_NAMES, claims, strict=False) if claim is None]
        found = f"The summary of the head of {branch} does not total {', '.join(unknown)}: not compared."
        yield Note("not stated", branch, found)


def _agrees(commit: PastCommit, there: FileCounts) -> bool:
    return all((claim or 0) == number for claim, number in zip(commit.added, there, strict=True))


def _counts(counts: Sequence[int | None]) -> str:
    """Files, rows and bytes; deletes only if there are any."""
    named = list(zip(counts, _NAMES, strict=False))
    shown = [*named[:_COMPARED], *(pair for pair in named[_COMPARED:] if pair[0])]
    return ", ".join(counted(number, name[:-1]) for number, name in shown)


def _of_counts(counts: ChangeCounts, batch: PastCommit, parent: PastCommit | None) -> Iterator[str]:
    """Of changes of a key in two tasks, both rows are written, and the batch deletes the superseded one."""
    if batch.is_append and batch.added.delete_files:
        yield "it is an append with delete files: a compaction at the same time can bring deleted rows back"
    if not counts.balanced:
        yield (
            f"{counted(counts.upserts, 'upsert')} became {counts.inserted:,} inserted, {counts.updated:,} updated and"
            f" {counts.late_upserts:,} late rows, and {counted(counts.deletes, 'delete')} became {counts.deleted:,}"
            f" deleted, {counts.late_deletes:,} late and {counts.absent:,} absent"
        )
    masked = batch.rows - counts.upserts
    deletes = (batch.added.position_deletes or 0) - (batch.removed.position_deletes or 0)
    expected = counts.rows_removed + counts.late_upserts + masked
    if not 0 <= masked <= counts.superseded:
        yield (
            f"it wrote {counted(batch.rows, 'row')} for {counted(counts.upserts, 'upsert')} and"
            f" {counted(counts.superseded, 'superseded change')}"
        )
    elif deletes != expected:
        yield f"it added {counted(deletes, 'position delete')}, and {counted(expected, 'row')} had to be removed"
    before, after = None if parent is None else _live(parent.totals), _live(batch.totals)
    if before is not None and after is not None:
        live = before + counts.upserts - counts.late_upserts - counts.rows_removed
        if after != live:
            yield f"its changes turn {before:,} live rows into {live:,}, and its summary states {after:,}"


def _live(totals: FileCounts) -> int | None:
    if totals.rows is None or totals.position_deletes is None:
        return None
    return totals.rows - totals.position_deletes
