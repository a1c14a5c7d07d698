"""Where rows of new files came from: what is deleted in the old files is found in the new ones."""

import random

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from lakesink.sinks.iceberg.upkeep.origins import Origins, live_numbers
from lakesink_protocol.change import ContentFile
from testkit.examples import seeds


def a_file(name: str, partition: bytes, count: int) -> ContentFile:
    return ContentFile(name, 0, (partition,), count, 1, {}, {}, {}, {}, {}, {}, ())


@pytest.mark.parametrize("seed", seeds(30))
def test_each_deleted_row_is_found_at_its_new_place(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [(f"old{number}", chance.randrange(1, 20)) for number in range(chance.randrange(1, 5))]
    before = {path: BitMap64(at for at in range(rows) if chance.random() < 0.3) for path, rows in sizes}
    now = {
        path: gone | BitMap64(at for at in range(20) if chance.random() < 0.3 and at < dict(sizes)[path])
        for path, gone in before.items()
    }
    live = [(path, at) for path, rows in sizes for at in range(rows) if at not in before[path]]
    origins, written, start = Origins(), dict[bytes, list[tuple[str, int]]](), 0
    while start < len(live):
        count = min(chance.randrange(1, 8), len(live) - start)
        numbers = list(range(start, start + count))
        if chance.random() < 0.5:
            chance.shuffle(numbers)
            cut = chance.randrange(count + 1)
            for partition, part in ((b"a", numbers[:cut]), (b"b", numbers[cut:])):
                origins.add((partition,), pa.array(part, pa.int64()))
                written.setdefault(partition, []).extend(live[number] for number in part)
        else:
            origins.add((b"a",), range(start, start + count))
            written.setdefault(b"a", []).extend(live[number] for number in numbers)
        start += count
    assert origins.are_all(len(live))
    files, content = [], {}
    for partition, rows in written.items():
        at = 0
        while at < len(rows):
            count = min(chance.randrange(1, 9), len(rows) - at)
            file = a_file(f"{partition!r}{at}", partition, count)
            files.append(file)
            content[file.path] = rows[at : at + count]
            at += count
    gone_now = live_numbers((rows, before[path], now[path]) for path, rows in sizes)
    assert gone_now is not None
    found = {content[file.path][place] for file, places in origins.find(files, gone_now) for place in places}
    assert found == {(path, at) for path, gone in now.items() for at in gone - before[path]}


def test_rows_that_come_back_are_known() -> None:
    assert live_numbers([(5, BitMap64([1, 2]), BitMap64([1, 3]))]) is None


@pytest.mark.parametrize("rows", [[0, 1], [0, 1, 1], [0, 1, 3], [0, 1, 2, 2]])
def test_rows_that_are_lost_or_doubled_are_not_all(rows: list[int]) -> None:
    origins = Origins()
    origins.add((), pa.array(rows, pa.int64()))
    assert not origins.are_all(3)
