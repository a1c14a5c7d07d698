"""What the page on files prints is what one can do: its SQL and its Python, run as they stand."""

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

import lakesink
from lakesink.sinks.directory.marker import parse_marker
from lakesink.sinks.directory.settings import CODECS
from lakesink.sinks.storage import LocalStorage
from lakesink_protocol.errors import CatalogError, SettingsError
from lakesink_protocol.identity import digest
from lakesink_protocol.outcome import Committed
from testkit.builders import expected
from testkit.directory import Stream

PAGE = (Path(__file__).parents[2] / "docs/use/directory.md").read_text()


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


def test_a_folder_named_like_a_partition_does_not_overwrite_a_column(tmp_path: Path) -> None:
    stream = Stream(tmp_path / "batch=7" / "number=9")
    stream.run(0)
    with duckdb.connect() as connection:
        setting, _, query = printed("sql", stream, mentioning="SET VARIABLE").partition(";")
        connection.execute(setting)
        assert connection.execute(query.replace("count(*)", "list(DISTINCT batch)")).fetchall() == [([0],)]


@pytest.mark.dear
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


@pytest.mark.parametrize("sink_id", [None, "clicks"])
@pytest.mark.parametrize("name", ["misspelt", "empty"])
def test_a_directory_that_no_stream_has_written_to_is_an_error(tmp_path: Path, name: str, sink_id: str | None) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CatalogError, match=f"LAKESINK_DIRECTORY_MISSING.*{name}"):
        lakesink.committed_files(tmp_path / name, sink_id=sink_id)


@pytest.mark.parametrize("hidden", [(4,), (3,), (3, 4), (2, 3), (0, 1, 2, 3, 4)])
def test_a_marker_that_a_listing_does_not_show_is_looked_for_by_name(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, hidden: tuple[int, ...]
) -> None:
    """A file system gives a listing in pieces: of two commits meanwhile it may show the later one only."""
    whole = LocalStorage.listing
    names = {stream.marker_path(number).name for number in hidden}

    def listing(self: LocalStorage, folder: str) -> dict[str, int]:
        return {name: size for name, size in whole(self, folder).items() if name not in names}

    monkeypatch.setattr(LocalStorage, "listing", listing)
    assert stream.counted() == expected(1, 4) + expected(2, rows=6)
    assert isinstance(stream.run(5), Committed)
    assert len(stream.markers()) == 6


def test_a_file_that_two_commits_list_is_damage_whoever_digested_them(stream: Stream) -> None:
    """One batch twice by an operator's word has files of its own each time."""
    stream.overrule(stream.batch(4, end=9), "commit")
    first, path = stream.markers()[4], stream.marker_path(5)
    document = json.loads(path.read_bytes())
    document |= {name: first[name] for name in ("parts", "rows", "bytes")}
    del document["digest"]
    path.write_bytes(json.dumps(document | {"digest": digest(document)}).encode())
    with pytest.raises(CatalogError, match="commit 5 lists a file of another commit"):
        lakesink.committed_files(stream.directory)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"/parts/clicks-4", b"/parts/../clicks-4"),
        (b'"rows":', b'"more":1,"rows":'),
        (b'"number":4', b'"number":4.0'),
        (b'"rows":', b'"rows":9,"rows":'),
    ],
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
    assert set(CODECS) <= set(re.findall(r"`([a-z0-9]+)`", PAGE))


def test_a_marker_is_what_it_was_after_it_was_written_and_read(stream: Stream) -> None:
    data = stream.marker_path(4).read_bytes()
    assert parse_marker(data, 4, "clicks").to_bytes() == data
    assert stream.counted() == expected(1, 4) + expected(2, rows=6)
