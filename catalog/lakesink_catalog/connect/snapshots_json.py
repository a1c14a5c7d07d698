"""The snapshots of a table's metadata as JSON, in pieces that consecutive metadata files share.

A metadata file repeats all snapshots of the one before it, and nearly always byte by byte. So the writer converts only
new snapshots to JSON, and the reader of a file that another process wrote parses only new ones.
"""

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

PIECE_BYTES = 256 * 1024
_KEY, _ARRAY = b'"snapshots"', b'"snapshots":['


@dataclass(frozen=True, slots=True)
class SnapshotsJson:
    """Snapshots of one metadata file and their JSON, in pieces that consecutive metadata files share.

    Attributes:
        pieces: The JSON of some snapshots, joined by commas. The writer puts a comma between two pieces.
    """

    snapshots: Sequence[Snapshot] = ()
    pieces: tuple[bytes, ...] = ()

    def extended_to(self, snapshots: Sequence[Snapshot], *, exclude_none: bool) -> "SnapshotsJson":
        """The JSON of `snapshots`. If they begin with the current ones, only the new ones are converted."""
        count = len(self.snapshots)
        same = count <= len(snapshots) and all(map(operator.is_, self.snapshots, snapshots))
        known, new = (self.pieces, snapshots[count:]) if same else ((), snapshots)
        texts = (one.model_dump_json(exclude_none=exclude_none).encode() for one in new)
        return SnapshotsJson(snapshots, tuple(_pieces(known, texts)))

    def end_in(self, data: bytes, start: int) -> int | None:
        """The end of this JSON in `data`, if it is there at `start`."""
        at = start
        for piece in self.pieces:
            at += at > start and data.startswith(b",", at)
            if not data.startswith(piece, at):
                return None
            at += len(piece)
        return at


NONE_KNOWN = SnapshotsJson()


def grown(data: bytes, known: SnapshotsJson) -> TableMetadata | None:
    """The metadata in a file whose snapshots begin with the known ones; None if they do not.

    The known ones are taken over as they are, because their bytes are the same. An error of PyIceberg is raised.
    """
    start = data.find(_ARRAY) + len(_ARRAY)
    end = known.end_in(data, start) if data.count(_KEY) == 1 else None
    if end is None or data[end : end + 2] not in (b",{", b"],", b"]}"):
        return None
    rest = data[:start] + data[end:].removeprefix(b",")
    metadata = TableMetadataUtil.parse_raw(rest.decode())
    share_fields_sets([*metadata.snapshots, *(one.summary for one in metadata.snapshots)])
    return metadata.model_copy(update={"snapshots": [*known.snapshots, *metadata.snapshots]})


def _pieces(known: Sequence[bytes], texts: Iterable[bytes]) -> Iterator[bytes]:
    """The known pieces and the new texts. The last known piece grows until it is large enough; the others stay."""
    yield from known[:-1]
    waiting, size = list(known[-1:]), sum(map(len, known[-1:]))
    for text in texts:
        if size >= PIECE_BYTES:
            yield b",".join(waiting)
            waiting, size = [], 0
        waiting.append(text)
        size += len(text)
    if waiting:
        yield b",".join(waiting)


def share_fields_sets(models: Sequence[BaseModel | None]) -> None:
    """Pydantic stores a set of field names with each object: a tenth of the memory of a long history."""
    for model in models:
        if model is not None:
            shared = _FIELDS_SETS.setdefault(frozenset(model.model_fields_set), model.model_fields_set)
            object.__setattr__(model, "__pydantic_fields_set__", shared)


_FIELDS_SETS: dict[frozenset[str], set[str]] = {}
