"""The key columns of an outbox's records, by the names that each batch has for them. Pure.

The names are a part of every key in the topic. So a batch that has other names for them is refused: its rows and
tombstones would not replace those in the topic.
"""

import json
from collections.abc import Collection, Sequence

from pyiceberg.schema import Schema

from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import shown
from lakesink_tools.operate.outbox.position import LONGEST_KEY_BYTES, Outbox, Progress

_SHOWN = 60


def key_names(batch: Schema, table: Schema, asked: Sequence[str] | None) -> tuple[str, ...]:
    """The names, in the schema of a batch, of the columns that make the key; `table` is the present schema.

    `asked` has names of the user, present ones or those of the batch; None for the identifier fields of the table.
    """
    then, now = ({field.field_id: field.name for field in schema.fields} for schema in (batch, table))
    if asked is None:
        return tuple(sorted(then.get(one, now.get(one, "")) for one in table.identifier_field_ids))
    ids = {name: number for number, name in now.items()}
    return tuple(dict.fromkeys(then.get(ids.get(name, -1), name) for name in asked))


def check_unique(key: Sequence[str], batch: Schema, key_ids: Collection[int], outbox: Outbox, batch_id: int) -> None:
    """Refuse a key of a batch that replaced or deleted rows, if several rows of the table can have it.

    `key` has names of the schema `batch`. `key_ids` are the columns by which the stream replaces and deletes rows;
    empty for its identifier fields.
    """
    names = {field.field_id: field.name for field in batch.fields}
    needed = sorted(names.get(one, f"field {one}") for one in key_ids or batch.identifier_field_ids)
    if key and needed and set(needed) <= set(key):
        return
    what = f"Batch {batch_id} of {shown(outbox.table, _SHOWN)} replaced or deleted rows"
    if not needed:
        raise SettingsError.of("OUTBOX_KEY.unknown", what=what)
    if not key:
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


def _listed(names: Sequence[str]) -> str:
    return f"({shown(', '.join(names), _SHOWN)})" if names else "(none)"
