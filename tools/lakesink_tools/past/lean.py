"""Sets the snapshots of a table apart before PyIceberg reads its metadata, for callers that only read history.

Catalogs differ in where the metadata comes from. While `lean_loading` is active in a context, each catalog of
`lakesink_catalog.connect` asks this module: for its storage, and about an answer of a REST service. A catalog that does
not is loaded as usual. Text that is not read exactly like PyIceberg would read it is left to PyIceberg as it is.
"""

import codecs
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, InputStream, OutputFile
from pyiceberg.serializers import Compressor
from pyiceberg.table import Table
from pyiceberg.typedef import Properties

from lakesink_catalog.connect.kinds import READING
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import CatalogError
from lakesink_tools.past.lean_json import NotLean, SetApart, set_apart

if TYPE_CHECKING:
    from requests import Response

PIECE_BYTES = 64 * 1024
_LOCAL = re.compile(r"file://(/[^?#;%\x00-\x20]+)")
"""Locations that PyIceberg reads as this path of a local file."""
_REST_NAME = "rest.metadata.json"
"""A name without ``.gz``: the rest is not compressed, even if the file was."""


@dataclass(slots=True)
class LeanLoading:
    """What was set apart while a table was loaded; None if nothing was.

    `was_tried` is true as soon as metadata came through this module.
    """

    apart: SetApart | None = field(default=None, init=False)
    was_tried: bool = field(default=False, init=False)

    def complete(self, table: Table) -> Table:
        """The table with all that was set apart, as objects that have the same names as PyIceberg's."""
        if self.apart is not None:
            table.metadata = table.metadata.model_copy(update=dict(self.apart.lists))
        return table

    def storage(self, properties: Properties, load: Callable[[], FileIO]) -> FileIO:
        """One whose metadata files come without snapshots within `lean_loading`."""
        return LeanIO(properties, load)

    def answer(self, response: "Response") -> "Response":
        """Without snapshots, if the answer has a table's metadata."""
        if not response.ok or (response.encoding or "").lower() != "utf-8":
            return response
        body = response.content
        pieces = (body[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES))
        apart = _set_apart(pieces, inside="metadata")
        if apart is None or "snapshots" not in apart.lists:
            return response
        self.was_tried, self.apart = True, apart
        from requests import Response  # noqa: PLC0415 - only a REST service needs it

        lean = Response()
        lean.status_code, lean.encoding, lean.url = response.status_code, response.encoding, response.url
        lean.raw = BytesIO(apart.rest.encode())
        return lean


@contextmanager
def lean_loading() -> Iterator[LeanLoading]:
    """Within, catalogs set snapshots apart."""
    loading = LeanLoading()
    token = READING.set(loading)
    try:
        yield loading
    finally:
        READING.reset(token)


def load_to_read(catalog: Catalog, identifier: str) -> Table:
    """Load the current table as `load_table` does, in less time and memory, for callers that do not write to it.

    Its snapshots are `LeanSnapshot`s, if the catalog and the metadata allow it: they have the attributes of PyIceberg's
    snapshots that readers of history use.
    """
    with lean_loading() as loading:
        try:
            return loading.complete(load_table(catalog, identifier))
        except CatalogError:
            if not loading.was_tried:
                raise
    return load_table(catalog, identifier)  # PyIceberg names what is wrong in all of the metadata


def storage_of(table: Table) -> FileIO:
    """The storage of a table, as PyIceberg's own functions need it."""
    return table.io.inner if isinstance(table.io, LeanIO) else table.io


def local_path(location: str, properties: Properties) -> str | None:
    """The path of a local file or folder that PyIceberg would read at this location; None if it is not certain."""
    found = None if PY_IO_IMPL in properties else _LOCAL.fullmatch(location)
    return None if found is None else found[1]


class LeanIO(FileIO):
    """Reads metadata files without their snapshots within `lean_loading`, and local files; else the storage itself."""

    def __init__(self, properties: Properties, load: Callable[[], FileIO]) -> None:
        super().__init__(properties)
        self._load = load

    @cached_property
    def inner(self) -> FileIO:
        """The storage itself; PyIceberg's imports PyArrow, which many readers of history do not need."""
        return self._load()

    def new_input(self, location: str) -> InputFile:
        """Get the file, of a table's metadata the rest."""
        loading = READING.get()
        if not isinstance(loading, LeanLoading):
            return self._file(location)
        loading.was_tried, loading.apart = True, None
        # PyIceberg, which reads the file again, tells what is wrong with it.
        with suppress(OSError, EOFError, zlib.error), self._file(location).open() as stream:
            text = Compressor.get_compressor(location).stream_decompressor(stream)
            loading.apart = _set_apart(iter(partial(text.read, PIECE_BYTES), b""))
        return self.inner.new_input(location) if loading.apart is None else _Rest(loading.apart.rest.encode())

    def new_output(self, location: str) -> OutputFile:
        """See `FileIO`."""
        return self.inner.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See `FileIO`."""
        self.inner.delete(location)

    def _file(self, location: str) -> InputFile:
        path = local_path(location, self.properties)
        return self.inner.new_input(location) if path is None else _LocalFile(location, Path(path))


class _LocalFile(InputFile):
    def __init__(self, location: str, path: Path) -> None:
        super().__init__(location)
        self._path = path

    def __len__(self) -> int:
        with self.open() as stream:  # a folder has a size as well, but cannot be opened
            return stream.seek(0, os.SEEK_END)

    def exists(self) -> bool:
        return self._path.exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - PyIceberg's signature
        return self._path.open("rb")


class _Rest(InputFile):
    def __init__(self, data: bytes) -> None:
        super().__init__(_REST_NAME)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - PyIceberg's signature
        return BytesIO(self._data)


def _set_apart(pieces: Iterator[bytes], *, inside: str = "") -> SetApart | None:
    try:
        return set_apart(codecs.iterdecode(pieces, "utf-8"), inside=inside)
    except (NotLean, UnicodeDecodeError):
        return None
