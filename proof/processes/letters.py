"""What a stream of documents left beside its rows: dead letters, columns that came once, and values under their names.

Payloads are read as JSON: each tells the row that it was, as the rows of the table do.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from pyiceberg.table import Table

from lakesink.rows.letters import SUFFIX
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import CatalogError
from proof.content import COLUMNS, NEW_COLUMNS, Content
from proof.oracle import Broken, Promise, Rows, rows_once
from proof.processes.checkpoint import PARTITIONS
from proof.processes.harness import Stream

_CHANGE = "lakesink.schema-change"


def judge_documents(stream: Stream, batches: Iterable[int], *, foreign: Collection[str] = ()) -> list[Broken]:
    """Everything that the oracle says of letters, values and columns of a stream whose table follows its documents.

    Args:
        stream: The stream.
        batches: Batches whose letters should be there.
        foreign: Columns that others have added.
    """
    table = stream.load()
    broken = _judge_letters(stream, batches) if stream.content.aside_every else []
    if table is None or not stream.content.follows:
        return broken
    return [*broken, *_judge_values(table, stream.content), *_judge_columns(table, foreign)]


def letters_of(stream: Stream) -> dict[int, Rows]:
    """The rows in the table of dead letters, by batch; empty if there is no such table."""
    try:
        table = load_table(connect("lake", stream.properties), f"{stream.table}{SUFFIX}")
    except CatalogError:
        return {}
    found: dict[int, Rows] = {}
    for letter in table.scan().to_arrow().to_pylist():
        row = json.loads(letter["payload"])
        found.setdefault(letter["batch_id"], Counter())[row["partition"], row["offset"]] += 1
    return found


def _judge_letters(stream: Stream, batches: Iterable[int]) -> list[Broken]:
    source, found = stream.orders.source, letters_of(stream)
    wanted = {batch_id: source.unfit(batch_id) for batch_id in batches}
    return [
        broken
        for batch_id in sorted({*found, *wanted})
        for broken in rows_once(found.get(batch_id, Counter()), wanted.get(batch_id, Counter()))
    ]


def _judge_values(table: Table, content: Content) -> list[Broken]:
    """Each value of each document is under its own name."""
    broken = []
    for row in table.scan().to_arrow().to_pylist():
        key = row["partition"], row["offset"]
        found: dict[str, Any] = {name: value for name, value in row.items() if value is not None}
        if None in key or (0 <= key[0] < PARTITIONS and found != content.document(key)):
            broken.append(Broken(Promise.EVERY_COLUMN_IS_THERE, f"row {key} reads {found}"))
    return broken


def _judge_columns(table: Table, foreign: Collection[str]) -> list[Broken]:
    """Each column has had one id only, and is in one commit with the first rows that have it, which says so."""
    ids: dict[str, set[int]] = {}
    for schema in table.metadata.schemas:
        for one in schema.fields:
            ids.setdefault(one.name, set()).add(one.field_id)
    broken = [f"column {name} came with the ids {sorted(found)}" for name, found in ids.items() if len(found) > 1]
    summaries = (snapshot.summary for snapshot in table.metadata.snapshots)
    changes = [summary.additional_properties.get(_CHANGE, "") for summary in summaries if summary is not None]
    for name in ids.keys() & {*NEW_COLUMNS}:
        times = sum(re.search(rf"added [^;]*\b{name}\b", change) is not None for change in changes)
        if times != (name not in foreign):
            broken.append(f"column {name} came with {times} commits of batches")
    wrong = [name for name in COLUMNS if name not in table.schema().column_names]
    return [Broken(Promise.EVERY_COLUMN_IS_THERE, what) for what in [*broken, *wrong]]
