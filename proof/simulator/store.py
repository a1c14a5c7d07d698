"""A store of files that may fail before or after the effect, and keeps part of what it was given."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile

from proof.oracle import Key, Rows
from proof.simulator.world import World

Read = Callable[[str], bytes]
Write = Callable[[str, bytes], None]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file.

    Attributes:
        content: Its bytes, or what makes them when they are asked for.
        created_ms: When it was put there.
        rows: Rows in a data file; None for other files.
    """

    content: bytes | Callable[[], bytes]
    created_ms: int
    rows: Rows | None = None

    def read(self) -> bytes:
        """Its bytes."""
        return self.content if isinstance(self.content, bytes) else self.content()


@dataclass(eq=False)
class SimulatedStore:
    """All files of a world, by location.

    Attributes:
        world: Clock, chance and scheduler.
        files: What is there.
        columns: Columns of a data file that a task wrote, by field id and name.
        lost: Values of its documents for which a data file has no column.
        refused: Rows that a task put aside because their documents have keys that get no column.
        referenced: Asked whether a retained snapshot refers to a location.
        touched: Locations that were deleted or overwritten while they were referenced.
    """

    world: World
    files: dict[str, StoredFile] = field(default_factory=dict)
    columns: dict[str, frozenset[tuple[int, str]]] = field(default_factory=dict)
    lost: dict[str, tuple[str, ...]] = field(default_factory=dict)
    refused: set[Key] = field(default_factory=set)
    referenced: Callable[[str], bool] = field(default=lambda _: False)
    touched: list[str] = field(default_factory=list)

    def read(self, location: str) -> bytes:
        """The bytes of a file."""
        self._call("read", location)
        return self.peek(location)

    def note_columns(self, location: str, schema_json: str) -> None:
        """Remember under which columns a data file was written, by field id and name."""
        self.columns[location] = frozenset((one["id"], one["name"]) for one in json.loads(schema_json)["fields"])

    def put(self, location: str, content: bytes, rows: Rows | None = None) -> None:
        """Create or replace a file; it may be torn, and be there although the caller is told that it is not."""
        self._call("write", location)
        if self.world.strikes("write torn"):
            self.set(location, content[: self.world.random.randrange(len(content))])
            raise OSError(f"connection lost while writing {location}")
        self.set(location, content, rows)
        if self.world.strikes("write done, said to have failed"):
            raise OSError(f"connection lost after writing {location}")

    def peek(self, location: str) -> bytes:
        """`read`, by somebody whose calls are not simulated."""
        found = self.files.get(location)
        if found is None:
            raise FileNotFoundError(location)
        return found.read()

    def set(self, location: str, content: bytes | Callable[[], bytes], rows: Rows | None = None) -> None:
        """`put`, by somebody whose calls are not simulated."""
        if self.world.over:
            return
        if location in self.files and self.referenced(location):
            self.touched.append(location)
        self.files[location] = StoredFile(content, self.world.now_ms, rows)

    def delete(self, location: str) -> None:
        """Remove a file."""
        self._call("delete", location)
        self.remove(location)

    def remove(self, location: str) -> None:
        """Remove a file on behalf of somebody whose calls are not simulated."""
        if self.world.over:
            return
        if location not in self.files:
            raise FileNotFoundError(location)
        if self.referenced(location):
            self.touched.append(location)
        del self.files[location]

    def _call(self, verb: str, location: str) -> None:
        self.world.pause()
        if self.world.strikes(f"{verb} failed"):
            raise OSError(f"store unavailable, {verb} {location}")


class SimulatedIO(FileIO):
    """The store as PyIceberg sees it.

    Args:
        store: The store.
        quiet: True for somebody whose calls are not simulated.
    """

    def __init__(self, store: SimulatedStore, *, quiet: bool = False) -> None:
        super().__init__({})
        self._store = store
        self._read: Read = store.peek if quiet else store.read
        self._write: Write = store.set if quiet else store.put

    def new_input(self, location: str) -> "SimulatedInput":
        """See `FileIO`."""
        return SimulatedInput(location, self._read)

    def new_output(self, location: str) -> "SimulatedOutput":
        """See `FileIO`."""
        return SimulatedOutput(location, self._read, self._write)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See `FileIO`."""
        self._store.delete(location if isinstance(location, str) else location.location)


class SimulatedInput(InputFile):
    """A file to read.

    Args:
        location: Where it is.
        read: Reads it.
    """

    def __init__(self, location: str, read: Read) -> None:
        super().__init__(location)
        self._read = read

    def __len__(self) -> int:
        return len(self._read(self.location))

    def exists(self) -> bool:
        """See `InputFile`."""
        try:
            self._read(self.location)
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002, FBT001, FBT002 - PyIceberg's signature
        """See `InputFile`."""
        return io.BytesIO(self._read(self.location))


class SimulatedOutput(OutputFile):
    """A file to write: it is there once its stream was closed.

    Args:
        location: Where it will be.
        read: Reads it.
        write: Writes it.
    """

    def __init__(self, location: str, read: Read, write: Write) -> None:
        super().__init__(location)
        self._read = read
        self._write = write
        self._size = 0

    def __len__(self) -> int:
        return self._size or len(self._read(self.location))

    def exists(self) -> bool:
        """See `OutputFile`."""
        return self.to_input_file().exists()

    def to_input_file(self) -> SimulatedInput:
        """See `OutputFile`."""
        return SimulatedInput(self.location, self._read)

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyIceberg's signature
        """See `OutputFile`."""
        if not overwrite and self.exists():
            raise FileExistsError(self.location)
        return Upload(self.close_with)

    def close_with(self, content: bytes) -> None:
        """What was written is complete."""
        self._write(self.location, content)
        self._size = len(content)


class Upload(io.BytesIO):
    """Nobody sees a part of it; left by an exception it is not there at all."""

    def __init__(self, complete: Callable[[bytes], None]) -> None:
        super().__init__()
        self._complete = complete

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._complete(content)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            super().close()

    def __del__(self) -> None:
        super().close()
