"""Searches data files, wherever they are, for the rows of changed keys: local files in place, others by copies."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.locate.data_file import DataFile
from lakesink.locate.footers import Footer, footer_of, open_parquet
from lakesink.locate.key_cache import KeyCache, Wanted
from lakesink.locate.key_columns import KeyColumns
from lakesink.locate.keys_files import AT_ONCE, OpenInput
from lakesink.locate.refusals import file_unreadable, reading
from lakesink.locate.scan import FILE, ScanLimits, find_rows, found_schema
from lakesink.writer.filesystem import local_path, scheme_of

MOST_FOOTERS = 100_000
"""Footers to remember: a data file never changes."""


@dataclass(slots=True)
class Search:
    """Searches data files for keys.

    Attributes:
        mapping: Field ids by names, for files without field ids.
    """

    columns: KeyColumns
    open_input: OpenInput
    cache: KeyCache
    mapping: Mapping[str, int] = field(default_factory=dict)
    limits: ScanLimits = field(default_factory=ScanLimits)
    footers: dict[str, Footer] = field(default_factory=dict)

    def find(self, files: Sequence[DataFile], changes: pa.Table) -> pa.Table:
        """The rows of the changes' keys, see `find_rows`; a file is its place in the list."""
        if not files or not changes.num_rows:
            return found_schema(self.columns).empty_table()
        with self._searchable(files) as (places, paths):
            found = find_rows(paths, changes, self.columns, self.limits)
        index = found.schema.get_field_index(FILE)
        files_of = pc.take(pa.array(places, pa.int32()), found[FILE])
        return found.set_column(index, found.schema.field(FILE), files_of)

    @contextmanager
    def _searchable(self, files: Sequence[DataFile]) -> Iterator[tuple[list[int], list[str]]]:
        """Places and local paths of the files that can have a key; a file without a key column has only NULLs."""
        key_ids = [column.field_id for column in self.columns.keys]
        footers = self._footers(files)
        with_keys = [place for place, footer in enumerate(footers) if footer.has(key_ids)]
        in_place = [place for place in with_keys if _is_local(files[place]) and footers[place].has_ids]
        others = sorted(set(with_keys) - set(in_place))
        wanted = [Wanted(files[place], footers[place]) for place in others]
        local = [local_path(files[place].path) for place in in_place]
        if not wanted:
            yield in_place, local
            return
        with self.cache.held(wanted, self.columns, self.open_input) as copies:
            yield [*in_place, *others], [*local, *copies]

    def _footers(self, files: Sequence[DataFile]) -> list[Footer]:
        unknown = [file for file in files if file.path not in self.footers]
        if unknown:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                read = partial(_read_footer, open_input=self.open_input, mapping=self.mapping)
                self.footers.update(zip((file.path for file in unknown), pool.map(read, unknown), strict=True))
        found = [self.footers[file.path] for file in files]
        for path in list(islice(self.footers, max(len(self.footers) - MOST_FOOTERS, 0))):
            del self.footers[path]
        return found


def _is_local(file: DataFile) -> bool:
    return scheme_of(file.path) == "file"


def _read_footer(file: DataFile, open_input: OpenInput, mapping: Mapping[str, int]) -> Footer:
    with reading(file.path, file_unreadable), open_input(file.path) as source:
        opened = open_parquet(file.path, source, file.rows)
        return footer_of(opened.schema_arrow, opened.metadata.num_rows, mapping)
