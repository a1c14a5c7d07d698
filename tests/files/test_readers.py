"""What the page on files prints is what one can do: its SQL and its Python, run as they stand."""

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

import lakesink
from lakesink.sinks.files.marker import parse_marker
from lakesink.writer.part_formats import FORMATS
from lakesink_catalog.errors import CatalogError, SettingsError
from tests.builders import expected
from tests.files.directory import Stream

PAGE = (Path(__file__).parents[2] / "docs" / "files.md").read_text()


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    stream = Stream(tmp_path / "out")
    for number, rows in enumerate([0, 3, 3, 0, 3]):
        stream.run(number, rows=rows, tasks=2 if number == 2 else 1)
    return stream


def printed(language: str, stream: Stream, *, mentioning: str) -> str:
    """A block of code of the page, over this directory."""
    found: list[str] = [
        block for block in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if mentioning in block
    ]
    return found[0].replace("/data/clicks", str(stream.directory))


def test_the_sql_of_the_page_reads_committed_rows_and_no_others(stream: Stream) -> None:
    (stream.root / "parts" / "orphan.parquet").write_bytes(stream.part_files()[0].read_bytes())
    connection = duckdb.connect()
    setting, _, query = printed("sql", stream, mentioning="SET VARIABLE").partition(";")
    connection.execute(setting)
    assert connection.execute(query).fetchall() == [(12,)]
    listed = connection.execute("SELECT getvariable('files')").fetchall()[0][0]
    assert listed == lakesink.committed_files(stream.directory)


def test_the_python_of_the_page_reads_the_same_by_spark_alone(stream: Stream, spark: Any) -> None:
    names: dict[str, Any] = {"spark": spark}
    exec(printed("python", stream, mentioning="markers"), names)  # noqa: S102 - the page's own words
    assert names["rows"].count() == 12


def test_a_list_is_a_moment_and_its_files_never_change(stream: Stream) -> None:
    before = lakesink.committed_files(stream.directory)
    contents = [Path(path).read_bytes() for path in before]
    stream.run(5)
    after = lakesink.committed_files(stream.directory)
    assert after[: len(before)] == before
    assert len(after) == len(before) + 1
    assert [Path(path).read_bytes() for path in before] == contents


@pytest.mark.parametrize(
    ("up_to", "batches"), [(0, ()), (1, (1,)), (2, (1, 2)), (3, (1, 2)), (4, (1, 2, 4)), (99, (1, 2, 4))]
)
def test_a_list_ends_with_the_batch_that_is_asked_for(stream: Stream, up_to: int, batches: tuple[int, ...]) -> None:
    paths = lakesink.committed_files(stream.directory, sink_id="clicks", up_to_batch=up_to)
    found = {int(Path(path).name.split("-")[1]) for path in paths}
    assert found == set(batches)


def test_a_list_of_a_sink_that_is_not_there_names_the_nearest(stream: Stream) -> None:
    with pytest.raises(SettingsError, match="Did you mean 'clicks'"):
        lakesink.committed_files(stream.directory, sink_id="cliks")
    with pytest.raises(SettingsError, match="sink_id"):
        lakesink.committed_files(stream.directory, up_to_batch=3)
    assert lakesink.committed_files(stream.directory / "not-there", sink_id="clicks") == []


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"/parts/clicks-4", b"/parts/../clicks-4"), (b'"rows":', b'"more":1,"rows":'), (b'"number":4', b'"number":4.0')],
)
def test_no_reader_takes_a_marker_that_is_spelled_otherwise(stream: Stream, before: bytes, after: bytes) -> None:
    path = stream.marker_path(4)
    assert before in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(before, after))
    with pytest.raises(CatalogError, match="commit 4"):
        lakesink.committed_files(stream.directory)


def test_the_page_lists_every_field_of_a_marker_and_every_codec(stream: Stream) -> None:
    fields = set(stream.markers()[-1])
    [section] = re.findall(r"## The marker\n(.*?)\n##", PAGE, re.DOTALL)
    assert fields <= set(re.findall(r"`([a-z_]+)`", section))
    assert {codec for kind in FORMATS.values() for codec in kind.extensions} <= set(re.findall(r"`([a-z0-9]+)`", PAGE))


def test_a_marker_is_what_it_was_after_it_was_written_and_read(stream: Stream) -> None:
    data = stream.marker_path(4).read_bytes()
    assert parse_marker(data, 4, "clicks").to_bytes() == data
    assert stream.counted() == expected(1, 4) + expected(2, rows=6)
