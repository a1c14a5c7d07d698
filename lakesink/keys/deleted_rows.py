"""The positions that older delete files delete from the data files of a batch's rows."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lakesink.keys.footers import field_id_of
from lakesink.keys.keys_file import OpenInput
from lakesink.keys.live_rows import OldDeletes
from lakesink.keys.locate_errors import file_unreadable, reading
from lakesink.parquet.deletes import FILE_PATH, POS
from lakesink.parquet.filesystem import many_at_once
from lakesink.parquet.positions import positions_of
from lakesink_protocol.redact import describe

_PATHS, _POSITIONS = "path", "pos"
_NONE = BitMap64()
_SCHEMA = pa.schema([(_PATHS, pa.string()), (_POSITIONS, pa.int64())])
_Read = tuple[Mapping[str, BitMap64], bool]
MOST_REMEMBERED = 32 * 2**20
"""Positions: 64 MiB if they are far apart, and 4 MiB if most rows are deleted."""


@dataclass(slots=True)
class Deleted:
    """Deleted positions by data file.

    Attributes:
        positions: From all delete files.
        alone: From the delete files that name no other data file, by the path of the delete file.
    """

    positions: dict[str, BitMap64] = field(default_factory=dict)
    alone: dict[str, dict[str, BitMap64]] = field(default_factory=lambda: defaultdict(dict))


@dataclass(slots=True)
class KnownDeletes:
    """The positions in delete files that name one data file, up to a limit: later batches need most of them again."""

    most_positions: int = MOST_REMEMBERED
    _known: dict[str, tuple[str, BitMap64]] = field(default_factory=dict, init=False)
    _positions: int = field(default=0, init=False)

    def retain(self, paths: Collection[str]) -> None:
        """Forget all delete files but these."""
        self._known = {path: known for path, known in self._known.items() if path in paths}
        self._positions = sum(len(positions) for _, positions in self._known.values())

    def keep(self, path: str, data_file: str, positions: BitMap64) -> None:
        """Remember a delete file if there is room: others stay, since an order of use would push out each in turn."""
        if self._positions + len(positions) <= self.most_positions:
            self._known[path] = data_file, positions
            self._positions += len(positions)

    def of(self, file: OldDeletes) -> "_Read | None":
        """What the file has of its data file; None if that is not known."""
        data_file, positions = self._known.get(file.path, ("", _NONE))
        if file.data_files != {data_file} or len(positions) != file.rows:
            return None
        return {data_file: positions}, True


def read_deleted(files: Sequence[OldDeletes], open_input: OpenInput, known: KnownDeletes) -> Deleted:
    """Read delete files that are not known; raises WriteError for an unreadable one."""
    found, had = Deleted(), {file.path: known.of(file) for file in files}
    unknown = [file for file in files if had[file.path] is None]
    read = many_at_once(partial(_read, open_input=open_input), unknown, unknown[0].path if unknown else "")
    for file in files:
        positions, is_alone = had[file.path] or next(read)
        for data_file, deleted in positions.items():
            found.positions[data_file] = found.positions.get(data_file, _NONE) | deleted
            if is_alone:
                found.alone[data_file][file.path] = deleted
                if had[file.path] is None:
                    known.keep(file.path, data_file, deleted)
    return found


def _read(file: OldDeletes, open_input: OpenInput) -> _Read:
    """Positions by data file, and whether the file names one data file and no other."""
    table = _rows(file, open_input)
    wanted = pc.is_in(table[_PATHS], pa.array(sorted(file.data_files), pa.string()))
    is_alone = file.only and bool(pc.all(wanted).as_py())
    rows = table.filter(wanted)
    if len(file.data_files) == 1:
        [data_file] = file.data_files
        return {data_file: _set_of(rows)} if rows.num_rows or is_alone else {}, is_alone
    names = pc.unique(rows[_PATHS]).to_pylist()
    return {name: _set_of(rows.filter(pc.equal(rows[_PATHS], name))) for name in names}, is_alone


def _set_of(rows: pa.Table) -> BitMap64:
    return positions_of(rows[_POSITIONS].combine_chunks())


def _rows(file: OldDeletes, open_input: OpenInput) -> pa.Table:
    try:
        with reading(file.path, file_unreadable), open_input(file.path) as source:
            opened = pq.ParquetFile(source)
            path, position = _column(opened, FILE_PATH, "file_path"), _column(opened, POS, "pos")
            table = opened.read(columns=[path, position], use_threads=False)  # other threads keep memory
        found = table.select([path, position]).rename_columns([_PATHS, _POSITIONS]).cast(_SCHEMA)
    except (pa.ArrowException, KeyError) as error:
        raise file_unreadable(file.path, describe(error)) from error
    if found[_POSITIONS].null_count or pc.any(pc.less(found[_POSITIONS], 0)).as_py():
        raise file_unreadable(file.path, "a position is NULL or negative")
    if found.num_rows != file.rows:
        raise file_unreadable(file.path, f"it has {found.num_rows} rows, and its manifest has {file.rows}")
    return found


def _column(opened: pq.ParquetFile, field_id: int, name: str) -> str:
    """The name of a column by its field id; some writers leave out the ids, and the names are reserved."""
    return next((str(found.name) for found in opened.schema_arrow if field_id_of(found) == field_id), name)
