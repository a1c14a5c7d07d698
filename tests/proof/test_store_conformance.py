"""What lakesink asks of a store, asked of all of them alike: PyIceberg's own on a disk, and the simulator's.

It asks no store whether a file exists, nor to create one only if it does not: PyIceberg's fsspec store answers neither
for a ``file://`` location.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from proof.simulator.store import SimulatedIO, SimulatedStore
from proof.simulator.world import World

CONTENT = bytes(range(256)) * 1000


@dataclass(frozen=True, slots=True)
class Place:
    """A store, and the location of a file that is not there."""

    io: FileIO
    location: str

    def put(self, content: bytes, **how: Any) -> None:
        with self.io.new_output(self.location).create(**how) as stream:
            stream.write(content)

    def read(self) -> bytes:
        with self.io.new_input(self.location).open() as stream:
            return bytes(stream.read())


STORES: dict[str, Callable[[Path], Place]] = {
    "pyarrow": lambda folder: Place(PyArrowFileIO(), f"file://{folder}/deep/file"),
    "fsspec": lambda folder: Place(FsspecFileIO({}), f"file://{folder}/file"),
    "simulated": lambda _: Place(SimulatedIO(SimulatedStore(World(seed=1))), "mem://lake/deep/file"),
    "simulated, quiet": lambda _: Place(SimulatedIO(SimulatedStore(World(seed=1)), quiet=True), "mem://lake/file"),
}


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return STORES[request.param](tmp_path)


@pytest.mark.parametrize("content", [CONTENT, b""])
def test_what_was_written_is_read_as_often_as_one_likes(place: Place, content: bytes) -> None:
    place.put(content)
    assert [place.read(), place.read()] == [content, content]


def test_the_size_is_that_of_the_content(place: Place) -> None:
    place.put(CONTENT)
    assert len(place.io.new_input(place.location)) == len(CONTENT)
    assert len(place.io.new_output(place.location)) == len(CONTENT)


def test_the_size_is_known_as_soon_as_the_stream_is_closed(place: Place) -> None:
    output = place.io.new_output(place.location)
    with output.create() as stream:
        stream.write(CONTENT[:1000])
        stream.write(CONTENT[1000:])
    assert len(output) == len(CONTENT)
    assert len(output.to_input_file()) == len(CONTENT)


def test_a_part_of_a_file_can_be_read(place: Place) -> None:
    place.put(CONTENT)
    with place.io.new_input(place.location).open() as stream:
        assert bytes(stream.read(3)) == CONTENT[:3]
        stream.seek(100_000)
        assert (bytes(stream.read(2)), stream.tell()) == (CONTENT[100_000:100_002], 100_002)
        stream.seek(-1, 2)
        assert bytes(stream.read()) == CONTENT[-1:]


def test_what_is_there_is_replaced_whole(place: Place) -> None:
    place.put(b"first")
    place.put(b"second, and longer", overwrite=True)
    assert place.read() == b"second, and longer"
    place.put(b"3", overwrite=True)
    assert (place.read(), len(place.io.new_input(place.location))) == (b"3", 1)


def test_a_file_may_be_overwritten_that_is_not_there(place: Place) -> None:
    place.put(CONTENT, overwrite=True)
    assert place.read() == CONTENT


def test_what_is_not_there_is_said_to_be_missing_in_every_call(place: Place) -> None:
    missing = place.io.new_input(place.location)
    assert not missing.exists()
    assert not place.io.new_output(place.location).exists()
    calls: tuple[Callable[[], object], ...] = (
        missing.open,
        lambda: len(missing),
        lambda: place.io.delete(place.location),
    )
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call()


def test_what_was_deleted_is_gone_and_its_name_is_free(place: Place) -> None:
    place.put(b"first")
    place.io.delete(place.location)
    with pytest.raises(FileNotFoundError):
        place.read()
    with pytest.raises(FileNotFoundError):
        place.io.delete(place.location)
    place.put(b"second")
    assert place.read() == b"second"


def test_a_file_may_be_deleted_by_its_object_as_well_as_by_its_name(place: Place) -> None:
    place.put(b"first")
    place.io.delete(place.io.new_input(place.location))
    place.put(b"second")
    place.io.delete(place.io.new_output(place.location))
    with pytest.raises(FileNotFoundError):
        place.read()


def test_names_are_kept_as_they_were_given(place: Place) -> None:
    assert place.io.new_output(place.location).location == place.location
    assert place.io.new_input(place.location).location == place.location


def test_files_do_not_disturb_each_other(place: Place) -> None:
    other = Place(place.io, f"{place.location}-2")
    place.put(b"first")
    other.put(b"second")
    place.io.delete(place.location)
    assert other.read() == b"second"
