"""The positions that older delete files delete from the data files of a batch's rows."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakesink.locate.keys_files import OpenInput
from lakesink.locate.live_rows import OldDeletes
from lakesink.locate.refusals import file_unreadable, reading
from lakesink.writer.deletes import FILE_PATH, POS
from lakesink.writer.filesystem import many_at_once
from lakesink.writer.schema import FIELD_ID_KEY
from lakesink_protocol.redact import describe

_PATHS, _POSITIONS = "path", "pos"
_SCHEMA = pa.schema([(_PATHS, pa.string()), (_POSITIONS, pa.int64())])
_Read = tuple[Mapping[str, pa.Array], bool]
MOST_REMEMBERED = 8 * 2**20
"""Positions, of eight bytes each."""


@dataclass(slots=True)
class Deleted:
    """Deleted positions by data file.

    Attributes:
        positions: From all delete files.
        merged: From the delete files in `replaced`: a new delete file of the data file has to contain these.
        replaced: Delete files that name one data file, by this data file.
    """

    positions: dict[str, list[pa.Array]] = field(default_factory=lambda: defaultdict(list))
    merged: dict[str, list[pa.Array]] = field(default_factory=lambda: defaultdict(list))
    replaced: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


@dataclass(slots=True)
class WrittenDeletes:
    """The positions in delete files that this process wrote, up to a limit: the next batch replaces most of them."""

    most_positions: int = MOST_REMEMBERED
    _known: dict[str, tuple[str, pa.Array]] = field(default_factory=dict)

    def keep(self, deletes: Sequence[tuple[str, str, pa.Array]]) -> None:
        """Remember the newest delete files: path, data file and positions of each."""
        left = self.most_positions
        for path, data_file, positions in deletes:
            self._known[path] = data_file, positions
        kept = {}
        for path, (data_file, positions) in reversed(self._known.items()):
            left -= len(positions)
            if left < 0:
                break
            kept[path] = data_file, positions
        self._known = dict(reversed(kept.items()))

    def of(self, file: OldDeletes) -> "_Read | None":
        """What the file has of its data file; None if this process did not write it."""
        data_file, positions = self._known.get(file.path, ("", None))
        if positions is None or file.data_files != {data_file} or len(positions) != file.rows:
            return None
        return {data_file: positions}, True


def read_deleted(files: Sequence[OldDeletes], open_input: OpenInput, written: WrittenDeletes | None = None) -> Deleted:
    """Read delete files, but for those in `written`; raises WriteError for an unreadable one."""
    found, known = Deleted(), {file.path: written.of(file) for file in files} if written else {}
    unknown = [file for file in files if known.get(file.path) is None]
    read = many_at_once(partial(_read, open_input=open_input), unknown, unknown[0].path if unknown else "")
    for file in files:
        positions, is_single = known.get(file.path) or next(read)
        for data_file, array in positions.items():
            found.positions[data_file].append(array)
            if is_single:
                found.merged[data_file].append(array)
                found.replaced[data_file].append(file.path)
    return found


def _read(file: OldDeletes, open_input: OpenInput) -> _Read:
    """Positions by data file, and whether the file names one data file and no other."""
    table = _rows(file, open_input)
    wanted = pc.is_in(table[_PATHS], pa.array(sorted(file.data_files), pa.string()))
    is_single = file.only and bool(pc.all(wanted).as_py())
    rows = table.filter(wanted)
    if len(file.data_files) == 1:
        [data_file] = file.data_files
        return {data_file: rows[_POSITIONS].combine_chunks()} if rows.num_rows or is_single else {}, is_single
    names = pc.unique(rows[_PATHS]).to_pylist()
    return {name: rows.filter(pc.equal(rows[_PATHS], name))[_POSITIONS].combine_chunks() for name in names}, is_single


def _rows(file: OldDeletes, open_input: OpenInput) -> pa.Table:
    try:
        with reading(file.path, file_unreadable), open_input(file.path) as source:
            opened = pq.ParquetFile(source)
            path, position = _column(opened, FILE_PATH, "file_path"), _column(opened, POS, "pos")
            table = opened.read(columns=[path, position], use_threads=False)  # other threads keep memory
        found = table.select([path, position]).rename_columns([_PATHS, _POSITIONS]).cast(_SCHEMA)
    except (pa.ArrowException, KeyError) as error:
        raise file_unreadable(file.path, describe(error)) from error
    if found.num_rows != file.rows:
        raise file_unreadable(file.path, f"it has {found.num_rows} rows, and its manifest has {file.rows}")
    return found


def _column(opened: pq.ParquetFile, field_id: int, name: str) -> str:
    """The name of a column by its field id; some writers leave out the ids, and the names are reserved."""
    fields = ((str(field.name), (field.metadata or {}).get(FIELD_ID_KEY.encode())) for field in opened.schema_arrow)
    return next((column for column, found in fields if found == str(field_id).encode()), name)
