"""Files that a batch reads and that are gone when it is to be written: refused, listed, and never passed over."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakesink
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_tools.audit.audit import audit
from tests.spark.adapters import Adapter
from tests.spark.directory_sink import DirectorySink
from tests.spark.streams import failure, file_stream, forget_commits, ids, run, write_files, writer

pytestmark = pytest.mark.usefixtures("home")
TABLE = "demo.events"
OPTIONS: dict[str, Any] = {"sink_id": "events", "checkpoint": "ck", "create_table": True}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three files, with names that a URI spells otherwise."""
    folder = tmp_path / "in put"
    write_files(folder, 3)
    for path in sorted(folder.iterdir()):
        path.rename(path.with_name(f"ä {path.name}"))
    return folder


def _rows(spark: Any, source: Path) -> Any:
    return file_stream(spark, source, files=3)


def _fail_before_writing(spark: Any, adapter: Adapter, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "batch-start@0=raise")
    assert "FailpointReached" in failure(adapter(_rows(spark, source), TABLE, **OPTIONS))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")


def _table() -> Any:
    return load_table(connect(create=False), TABLE)


def _in_table() -> list[int]:
    return ids(_table().scan().to_arrow().to_pylist())


def _word(text: str, action: str) -> str:
    found = re.search(rf'accept="(InputMissing:\d+@\S+:{action})"', text)
    assert found is not None, text
    return found[1]


def _accepted(text: str) -> list[str]:
    """Each word once: Spark prints a message again and again."""
    return list(dict.fromkeys(re.findall(r'accept="(\S+)"', text)))


def _values(path: Path) -> list[int]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_a_replay_whose_files_are_gone_is_refused_with_the_files_listed(
    spark: Any, either: Adapter, source: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail_before_writing(spark, either, source, monkeypatch)
    away = source / "ä 001.json"
    content = away.read_bytes()
    away.unlink()
    text = failure(either(_rows(spark, source), TABLE, **OPTIONS))
    assert "[LAKESINK_INPUT_MISSING]" in text
    assert "in put/ä 001.json" in text
    assert "000.json" not in text.partition("Missing: ")[2].partition("\n")[0]
    assert not list(home.rglob("*.parquet"))
    away.write_bytes(content)
    run(either(_rows(spark, source), TABLE, **OPTIONS))
    assert _in_table() == list(range(30))


def test_an_accepted_batch_says_what_it_lacks_and_nothing_is_read_twice_when_the_file_comes_back(
    spark: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail_before_writing(spark, lakesink.stream, source, monkeypatch)
    away = source / "ä 001.json"
    content = away.read_bytes()
    away.unlink()
    word = _word(failure(lakesink.stream(_rows(spark, source), TABLE, **OPTIONS)), "commit")
    run(lakesink.stream(_rows(spark, source), TABLE, **OPTIONS, accept=word))
    kept = [*range(10), *range(20, 30)]
    assert _in_table() == kept
    [record] = lakesink.history(TABLE)
    assert (record.accepted, record.missing_inputs) == (word, 1)
    assert _table().current_snapshot().summary["lakesink.missing-inputs"] == "1"
    assert any("without 1 input file" in finding.found for finding in audit(_table()).findings)
    away.write_bytes(content)
    run(lakesink.stream(_rows(spark, source), TABLE, **OPTIONS, accept=word))
    assert _in_table() == kept


def test_one_word_overrules_another_refusal_of_the_batch_and_its_missing_files(
    spark: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lakesink.stream(_rows(spark, source), TABLE, **OPTIONS))
    write_files(source, 3, first=3)
    elsewhere = OPTIONS | {"checkpoint": "ck2"}
    monkeypatch.setenv("LAKESINK_FAILPOINTS", "batch-start@0=raise")
    assert "FailpointReached" in failure(lakesink.stream(_rows(spark, source), TABLE, **elsewhere))
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    for name in ("ä 000.json", "ä 001.json"):
        (source / name).unlink()
    first = _accepted(failure(lakesink.stream(_rows(spark, source), TABLE, **elsewhere)))
    assert [word.partition(":")[0] for word in first] == ["NewCheckpoint", "NewCheckpoint"]
    both, instead = _accepted(failure(lakesink.stream(_rows(spark, source), TABLE, **elsewhere, accept=first[0])))
    assert both == first[0].replace("NewCheckpoint:", "NewCheckpoint+InputMissing:")
    assert instead == first[1]
    before = _in_table()
    run(lakesink.stream(_rows(spark, source), TABLE, **elsewhere, accept=both))
    found = [(batch.accepted, batch.missing_inputs) for batch in lakesink.history(TABLE)]
    assert found == [("", 0), (both, 2), ("", 0)]
    left = [value for path in source.iterdir() for value in _values(path)]
    assert _in_table() == sorted([*before, *left])


def test_a_skipped_batch_takes_its_place_without_rows(
    spark: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail_before_writing(spark, lakesink.stream, source, monkeypatch)
    for path in source.iterdir():
        path.unlink()
    word = _word(failure(lakesink.stream(_rows(spark, source), TABLE, **OPTIONS)), "skip")
    run(lakesink.stream(_rows(spark, source), TABLE, **OPTIONS, accept=word))
    write_files(source, 1, first=7)
    run(lakesink.stream(_rows(spark, source), TABLE, **OPTIONS))
    assert _in_table() == list(range(70, 80))


@pytest.mark.parametrize(
    ("either", "failpoint"),
    [
        ("stream", "after-prepared@0=raise"),
        ("stream", "after-call@0=raise"),
        ("format", "after-prepared@0=raise"),
        pytest.param("format", "after-call@0=raise", marks=pytest.mark.nightly),
    ],
    indirect=["either"],
)
def test_what_is_prepared_or_in_the_table_does_not_need_its_files(
    spark: Any, either: Adapter, source: Path, monkeypatch: pytest.MonkeyPatch, failpoint: str
) -> None:
    monkeypatch.setenv("LAKESINK_FAILPOINTS", failpoint)
    try:
        run(either(_rows(spark, source), TABLE, **OPTIONS))
    except Exception:  # noqa: BLE001 - after the call the batch is found in the table, or the query has failed
        forget_commits(Path("ck"), -1)
    monkeypatch.delenv("LAKESINK_FAILPOINTS")
    forget_commits(Path("ck"), -1)
    for path in source.iterdir():
        path.unlink()
    run(either(_rows(spark, source), TABLE, **OPTIONS))
    assert _in_table() == list(range(30))


def test_a_file_that_goes_between_plan_and_batch_is_missed(spark: Any, source: Path) -> None:
    stream = lakesink.stream(_rows(spark, source), TABLE, **OPTIONS)
    rows = _rows(spark, source).where("id >= 0")
    sink = DirectorySink(source.parent / "out")

    def removing(function: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        def run_batch(batch: Any, batch_id: int) -> None:
            (source / "ä 002.json").unlink(missing_ok=True)
            function(batch, batch_id)

        return run_batch

    assert stream is not None
    assert "[LAKESINK_INPUT_MISSING]" in failure(writer(rows, sink, source.parent / "ck2", wrap=removing))


def test_files_in_an_archive_are_asked_back_after_a_rollback(spark: Any, source: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    options = {"cleanSource": "archive", "sourceArchiveDir": str(archive)}

    def rows() -> Any:
        reader = spark.readStream.schema("id long, text string").option("maxFilesPerTrigger", 1).options(**options)
        return reader.json(str(source))

    run(lakesink.stream(rows(), TABLE, **OPTIONS))
    run(lakesink.stream(rows(), TABLE, **OPTIONS))
    assert _in_table() == list(range(30))
    table = _table()
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshot_log[0].snapshot_id).commit()
    for path in list(source.iterdir()):
        path.rename(tmp_path / path.name)  # as the archive would, whose threads may be late
    forget_commits(Path("ck"), 0, offsets=True)
    write_files(source, 1, first=3)
    text = failure(lakesink.stream(rows(), TABLE, **OPTIONS))
    assert "[LAKESINK_INPUT_MISSING]" in text


def test_a_directory_of_files_has_the_same_protection(spark: Any, source: Path) -> None:
    def stream(**more: Any) -> Any:
        return lakesink.stream_files(_rows(spark, source), "out", sink_id="events", checkpoint="ck", **more)

    run(stream())
    write_files(source, 2, first=3)
    poisoned = _rows(spark, source).selectExpr("1 div (id - 35) as id", "text")
    text = failure(lakesink.stream_files(poisoned, "out", sink_id="events", checkpoint="ck"))
    assert "DIVIDE_BY_ZERO" in text
    (source / "003.json").unlink()
    word = _word(failure(stream()), "commit")
    run(stream(accept=word))
    [marker] = [json.loads(path.read_text()) for path in Path("out").rglob("commits/*1.json")]
    assert marker["accepted"] == word
    assert marker["rows"] == 10
