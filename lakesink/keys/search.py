"""Searches data files, wherever they are, for the rows of changed keys: local files in place, others by copies."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.keys.data_file import DataFile
from lakesink.keys.footers import Footer, Source, footer_of, open_parquet
from lakesink.keys.key_cache import KeyCache
from lakesink.keys.key_columns import KeyColumns
from lakesink.keys.locate_errors import file_unreadable, reading
from lakesink.keys.scan import FILE, ScanLimits, find_rows, found_schema
from lakesink.parquet.filesystem import local_path, many_at_once, scheme_of
from lakesink_protocol.errors import WriteError


@dataclass(slots=True)
class Search:
    """Searches data files for keys.

    Attributes:
        footers: Of local data files.
    """

    columns: KeyColumns
    source: Source
    cache: KeyCache
    limits: ScanLimits = field(default_factory=ScanLimits)
    footers: dict[DataFile, Footer] = field(default_factory=dict)

    def find(self, files: Sequence[DataFile], changes: pa.Table) -> pa.Table:
        """The rows of the changes' keys, see `find_rows`; a file is its place in the list."""
        if not files or not changes.num_rows:
            return found_schema(self.columns).empty_table()
        for is_last in (False, True):
            with self._searchable(files) as (places, paths):
                try:
                    found = find_rows(paths, changes, self.columns, self.limits)
                    break
                except WriteError:
                    if is_last or not self.cache.forget(files, self.columns):  # a copy that is damaged is made anew
                        raise
        index = found.schema.get_field_index(FILE)
        files_of = pc.take(pa.array(places, pa.int32()), found[FILE])
        return found.set_column(index, found.schema.field(FILE), files_of)

    @contextmanager
    def _searchable(self, files: Sequence[DataFile]) -> Iterator[tuple[list[int], list[str]]]:
        """Places and local paths of the files. A file is copied, too, if the partition has the value of a column."""
        here = {place: file for place, file in enumerate(files) if scheme_of(file.path) == "file"}
        if unknown := [file for file in here.values() if file not in self.footers]:
            read = many_at_once(partial(_read_footer, source=self.source), unknown, unknown[0].path)
            self.footers.update(zip(unknown, read, strict=True))
        footers = {place: self.footers[file] for place, file in here.items()}
        in_place = [
            place
            for place, footer in footers.items()
            if footer.has_ids and all(field_id in footer.columns for field_id, _ in files[place].constants)
        ]
        copied = list(set(range(len(files))).difference(in_place))
        local = [local_path(files[place].path) for place in in_place]
        if not copied:
            yield in_place, local
            return
        with self.cache.held([files[place] for place in copied], self.columns, self.source) as copies:
            yield [*in_place, *copied], [*local, *copies]


def _read_footer(file: DataFile, source: Source) -> Footer:
    with reading(file.path, file_unreadable), source.open_input(file.path) as opened:
        parquet = open_parquet(file.path, opened, file.rows)
        return footer_of(parquet.schema_arrow, source.mapping)
