"""The key columns of an outbox's records, by the names that each batch has for them. Pure.

The names are a part of every key in the topic. So a batch that has other names for them is refused: its rows and
tombstones would not replace those in the topic.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import shown
from lakesink_tools.operate.outbox.position import LONGEST_KEY_BYTES, Outbox, Progress

_SHOWN = 60


def key_names(batch_schema: str, table_schema: str, asked: Sequence[str] | None) -> tuple[str, ...]:
    """The names, in the schema of a batch, of the columns that make the key.

    Args:
        batch_schema: The schema of the batch in Iceberg's JSON form.
        table_schema: The present schema of the table.
        asked: Names of the user, present ones or those of the batch; None for the identifier fields of the table.
    """
    then, now = _names(batch_schema), _names(table_schema)
    if asked is None:
        return tuple(sorted(then.get(one, now.get(one, "")) for one in _identifier_ids(table_schema)))
    ids = {name: number for number, name in now.items()}
    return tuple(dict.fromkeys(then.get(ids.get(name, -1), name) for name in asked))


def check_unique(
    key: Sequence[str], batch_schema: str, key_ids: Collection[int], outbox: Outbox, batch_id: int
) -> None:
    """Refuse a key of a batch that replaced or deleted rows, if several rows of the table can have it.

    Args:
        key: The names of its columns in the schema of the batch.
        batch_schema: The schema of the batch in Iceberg's JSON form.
        key_ids: Columns by which the stream replaces and deletes rows; empty for the identifier fields of the batch.
        outbox: The outbox.
        batch_id: The batch.
    """
    names = _names(batch_schema)
    needed = sorted(names.get(one, f"field {one}") for one in key_ids or _identifier_ids(batch_schema))
    if key and needed and set(needed) <= set(key):
        return
    what = f"Batch {batch_id} of {shown(outbox.table, _SHOWN)} replaced or deleted rows"
    if not key or not needed:
        if not needed:
            raise SettingsError.of("OUTBOX_KEY.unknown", what=what)
        raise SettingsError.of("OUTBOX_KEY.unnamed", what=what, keys=" --key ".join(needed))
    raise SettingsError.of("OUTBOX_KEY.not_unique", what=what, needed=_listed(needed), key=_listed(key))


def check_same_key(key: Sequence[str], known: Progress | None, batch: str) -> None:
    """Refuse a key with other names than the records in the topic have."""
    if len(json.dumps(key).encode()) > LONGEST_KEY_BYTES:
        raise SettingsError.of("OUTBOX_KEY.too_long", longest=LONGEST_KEY_BYTES)
    if known is None or tuple(key) == known.keys:
        return
    then = _listed(known.keys)
    raise SettingsError.of("OUTBOX_KEY.changed", batch=batch.capitalize(), key=_listed(key), then=then)


def _names(schema: str) -> dict[int, str]:
    """The columns by field id, in their order."""
    return {field["id"]: field["name"] for field in _parsed(schema)["fields"]}


def _identifier_ids(schema: str) -> list[int]:
    return list(_parsed(schema).get("identifier-field-ids") or ())


def _parsed(schema: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(schema)
    return parsed


def _listed(names: Sequence[str]) -> str:
    return f"({shown(', '.join(names), _SHOWN)})" if names else "(none)"
