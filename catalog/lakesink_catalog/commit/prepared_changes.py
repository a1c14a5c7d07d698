"""The changes of rows by key in a prepared batch: what the batch says, independent of what the table contains. Pure.

Which rows they remove follows from the head of the commit, and is never part of the record.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakesink_protocol.ledger import typed_keys
from lakesink_protocol.receipt_json import MOST_IN_A_BATCH, plain_text, whole_count
from lakesink_protocol.row_changes import SUPERSEDED, KeysFile, Mode

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PreparedChanges:
    """The changes of a batch, after each task has kept the newest change of each key.

    Attributes:
        key_ids: Field ids of the key columns, in the order of the keys files.
        sequence_ids: Field ids of the columns whose greatest value is newest; empty without `sequence_by`.
        keys_files: One of each task that has a change.
        left_out: Changes that the tasks left out, because the same task had a newer one of the key.
        mode: What the rows of the batch are.
        changelog: The table that gets all changes; empty if there is none.
    """

    key_ids: tuple[int, ...]
    sequence_ids: tuple[int, ...]
    keys_files: tuple[KeysFile, ...]
    left_out: int
    mode: Mode
    changelog: str = ""

    @property
    def rows(self) -> int:
        """Upserts and deletes in the keys files."""
        return sum(file.rows for file in self.keys_files)

    def to_json(self) -> dict[str, Any]:
        """JSON form for the prepared record."""
        return {
            "keys": list(self.key_ids),
            "sequence": list(self.sequence_ids),
            "files": [[file.path, file.task, file.rows, file.size_bytes, file.sha256] for file in self.keys_files],
            SUPERSEDED.name: self.left_out,
            "mode": self.mode.value,
            "changelog": self.changelog,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "PreparedChanges":
        """The inverse of `to_json`; a malformed document raises ValueError, TypeError or KeyError."""
        found = cls(
            key_ids=typed_keys(document["keys"]),
            sequence_ids=typed_keys(document["sequence"]),
            keys_files=tuple(map(_keys_file, document["files"])),
            left_out=whole_count(document[SUPERSEDED.name]),
            mode=Mode(document["mode"]),
            changelog=plain_text(document["changelog"]),
        )
        if not found.key_ids or found.mode is Mode.APPEND:
            raise ValueError("changes without a key")
        for places in ([file.path for file in found.keys_files], [file.task for file in found.keys_files]):
            if len(set(places)) != len(places):
                raise ValueError("a keys file or a task occurs twice")
        if found.rows + found.left_out + sum(file.size_bytes for file in found.keys_files) > MOST_IN_A_BATCH:
            raise ValueError("too many changes or bytes")
        return found


def _keys_file(document: Sequence[Any]) -> KeysFile:
    path, task, rows, size_bytes, sha256 = document
    file = KeysFile(plain_text(path), whole_count(task), whole_count(rows), whole_count(size_bytes), plain_text(sha256))
    if not file.rows or not _SHA256.fullmatch(file.sha256):
        raise ValueError("a keys file without changes, or without a digest")
    return file
