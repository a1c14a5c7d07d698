import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lakesink.spark.query import RunningQuery
from lakesink.spark.rows.arrow_limits import MAX_BYTES, MAX_RECORDS
from lakesink_protocol.identity import Batch
from tests.spark.directory_sink import DirectorySink
from tests.spark.streams import (
    LOST_METADATA,
    counter_stream,
    failure,
    file_stream,
    forget_commits,
    ids,
    run,
    run_batches,
    write_files,
    writer,
)


@pytest.fixture
def sink(tmp_path: Path) -> DirectorySink:
    return DirectorySink(tmp_path / "sink")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def _events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().partition(" ")[0] for record in caplog.records if record.name == "lakesink"]


def test_every_row_arrives_once_and_each_batch_leaves_one_line(
    spark: Any, source: Path, sink: DirectorySink, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lakesink")
    run(writer(file_stream(spark, source), sink, checkpoint))
    assert ids(sink.rows()) == list(range(30))
    assert _events(caplog) == ["lakesink.query.started"] + ["lakesink.batch.committed"] * 3
    start, first = caplog.records[0].getMessage(), caplog.records[1].getMessage()
    assert "guarantee='exactly once'" in start
    assert "sources=FileSource" in start
    assert "batch=0 snapshot=1 rows=10 files=1" in first
    assert "seconds=" in first


def test_a_replayed_batch_is_neither_written_nor_committed_again(
    spark: Any, source: Path, sink: DirectorySink, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(writer(file_stream(spark, source), sink, checkpoint))
    forget_commits(checkpoint, 1)
    caplog.set_level(logging.INFO, "lakesink")
    run(writer(file_stream(spark, source), sink, checkpoint))
    assert sink.begun[-1] == sink.begun[-2]
    assert sink.files_written() == 3
    assert "lakesink.batch.already-committed" in _events(caplog)


def test_a_batch_that_spark_cuts_anew_after_offsets_were_removed_is_seen_to_be_another(
    spark: Any, source: Path, sink: DirectorySink, checkpoint: Path
) -> None:
    run(writer(file_stream(spark, source), sink, checkpoint))
    forget_commits(checkpoint, 0, offsets=True)
    assert "[LAKESINK_BATCH_CHANGED]" in failure(writer(file_stream(spark, source), sink, checkpoint))
    first, again = sink.begun[1], sink.begun[-1]
    assert (first.batch_id, first.start) == (again.batch_id, again.start)
    assert again.end == sink.begun[2].end  # Spark's log of files was not cut: one batch now reads what two did
    assert sink.files_written() == 3


@pytest.mark.parametrize("replayed", [9, 10])
def test_a_fingerprint_is_the_same_whether_or_not_the_source_log_was_compacted(
    spark: Any, tmp_path: Path, sink: DirectorySink, checkpoint: Path, replayed: int
) -> None:
    write_files(tmp_path / "in", replayed + 1, rows=1)
    run(writer(file_stream(spark, tmp_path / "in"), sink, checkpoint))
    compacted = {path.name for path in (checkpoint / "sources" / "0").iterdir() if path.name.endswith(".compact")}
    assert compacted == {"9.compact"}
    forget_commits(checkpoint, replayed - 1)
    run(writer(file_stream(spark, tmp_path / "in"), sink, checkpoint))
    assert sink.begun[-1] == sink.begun[-2]
    assert len({batch.fingerprint for batch in sink.begun}) == replayed + 1


def test_another_file_in_a_replayed_batch_changes_its_fingerprint(
    spark: Any, source: Path, sink: DirectorySink, checkpoint: Path
) -> None:
    run(writer(file_stream(spark, source), sink, checkpoint))
    forget_commits(checkpoint, 1)
    log = checkpoint / "sources" / "0" / "2"
    (source / "002.json").rename(source / "other.json")
    log.write_text(log.read_text().replace("002.json", "other.json"))
    (log.parent / ".2.crc").unlink()
    text = failure(writer(file_stream(spark, source), sink, checkpoint))
    assert "[LAKESINK_BATCH_CHANGED]" in text
    assert sink.files_written() == 3


def test_two_file_streams_in_one_query_have_their_own_logs(
    spark: Any, tmp_path: Path, sink: DirectorySink, checkpoint: Path
) -> None:
    write_files(tmp_path / "in", 2)
    write_files(tmp_path / "more", 4, first=100)
    rows = file_stream(spark, tmp_path / "in").union(file_stream(spark, tmp_path / "more"))
    run(writer(rows, sink, checkpoint))
    assert ids(sink.rows()) == [*range(20), *range(1000, 1040)]
    forget_commits(checkpoint, 2)
    run(writer(rows, sink, checkpoint))
    assert sink.begun[-1] == sink.begun[-2]
    assert len({batch.fingerprint for batch in sink.begun}) == 4


def test_a_source_that_is_read_twice_does_not_shift_the_logs_of_the_others(
    spark: Any, tmp_path: Path, sink: DirectorySink, checkpoint: Path
) -> None:
    write_files(tmp_path / "in", 2)
    write_files(tmp_path / "more", 2, first=100)
    twice = file_stream(spark, tmp_path / "in")
    rows = twice.union(twice).union(file_stream(spark, tmp_path / "more"))
    run(writer(rows, sink, checkpoint))
    assert len((checkpoint / "offsets" / "0").read_text().splitlines()) == 5
    assert sorted(path.name for path in (checkpoint / "sources").iterdir()) == ["0", "1"]
    assert ids(sink.rows()) == sorted([*range(20), *range(20), *range(1000, 1020)])


def test_a_source_without_an_offset_yet_is_part_of_the_batch(
    spark: Any, tmp_path: Path, sink: DirectorySink, checkpoint: Path
) -> None:
    (tmp_path / "in").mkdir()
    write_files(tmp_path / "more", 1)
    rows = file_stream(spark, tmp_path / "in").union(file_stream(spark, tmp_path / "more"))
    run(writer(rows, sink, checkpoint))
    assert (checkpoint / "offsets" / "0").read_text().splitlines()[2] == "-"
    write_files(tmp_path / "in", 1, first=50)
    run(writer(rows, sink, checkpoint))
    assert ids(sink.rows()) == [*range(10), *range(500, 510)]


def test_empty_batches_are_committed_too(
    spark: Any, source: Path, sink: DirectorySink, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lakesink")
    run(writer(file_stream(spark, source).where("id between 10 and 19"), sink, checkpoint))
    assert sink.batches() == [0, 1, 2]
    assert _events(caplog)[1:] == ["lakesink.batch.empty", "lakesink.batch.committed", "lakesink.batch.empty"]


def test_the_settings_of_user_and_stream_stay_as_they_are_where_rows_can_be_of_any_width(
    spark: Any, source: Path, sink: DirectorySink, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunningQuery, "plan", lambda _self, _batch_id: None)
    seen = {}

    def wrap(function: Any) -> Any:
        def spying(rows: Any, batch_id: int) -> None:
            function(rows, batch_id)
            seen[batch_id] = [rows.sparkSession.conf.get(key, None) for key in (MAX_BYTES, MAX_RECORDS)]

        return spying

    run(writer(file_stream(spark, source), sink, checkpoint, wrap=wrap))
    assert seen == {batch_id: [None, None] for batch_id in range(3)}
    assert [spark.conf.get(key, None) for key in (MAX_BYTES, MAX_RECORDS)] == [None, None]


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_another_output_mode_is_refused_before_anything_is_written(
    spark: Any, source: Path, sink: DirectorySink, checkpoint: Path, mode: str
) -> None:
    counted = file_stream(spark, source).groupBy("text").count()
    text = failure(writer(counted, sink, checkpoint).outputMode(mode))
    assert "[LAKESINK_OUTPUT_MODE]" in text
    assert mode in text
    assert sink.begun == []


def test_a_checkpoint_put_in_place_of_ours_is_refused(
    spark: Any, source: Path, sink: DirectorySink, checkpoint: Path, tmp_path: Path
) -> None:
    stream = writer(file_stream(spark, source), sink, checkpoint).option("checkpointLocation", str(tmp_path / "other"))
    assert "[LAKESINK_FOREIGN_CHECKPOINT]" in failure(stream)
    assert sink.begun == []


@pytest.mark.parametrize("content", ['{"id":"00000000-0000-0000-0000-000000000000"}', None, "{}"])
def test_a_checkpoint_that_belongs_to_another_query_is_refused(
    spark: Any, source: Path, sink: DirectorySink, checkpoint: Path, content: str | None
) -> None:
    def wrap(function: Any) -> Any:
        def tampering(rows: Any, batch_id: int) -> None:
            (checkpoint / ".metadata.crc").unlink()
            (checkpoint / "metadata").unlink()
            if content is not None:
                (checkpoint / "metadata").write_text(content)
            function(rows, batch_id)

        return tampering

    text = failure(writer(file_stream(spark, source), sink, checkpoint, wrap=wrap))
    assert ("[LAKESINK_FOREIGN_CHECKPOINT]" if content and "0000" in content else "[LAKESINK_CHECKPOINT_") in text
    assert sink.begun == []


def test_a_lost_metadata_file_makes_the_next_run_another_query(
    spark: Any, source: Path, sink: DirectorySink, checkpoint: Path
) -> None:
    run(writer(file_stream(spark, source), sink, checkpoint))
    forget_commits(checkpoint, 1)
    (checkpoint / "metadata").unlink()
    (checkpoint / ".metadata.crc").unlink()
    text = failure(writer(file_stream(spark, source), sink, checkpoint))
    assert any(told in text for told in LOST_METADATA)
    assert sink.files_written() == 3


def test_two_queries_in_one_driver_do_not_know_of_each_other(spark: Any, tmp_path: Path) -> None:
    sinks = {name: DirectorySink(tmp_path / f"sink-{name}") for name in "ab"}
    queries = []
    for number, (name, sink) in enumerate(sinks.items()):
        write_files(tmp_path / name, 3, first=number * 10)
        stream = writer(file_stream(spark, tmp_path / name), sink, tmp_path / f"checkpoint-{name}")
        queries.append(stream.trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination()
    assert [ids(sink.rows()) for sink in sinks.values()] == [list(range(30)), list(range(100, 130))]
    assert sinks["a"].begun[0].query_id != sinks["b"].begun[0].query_id


def test_one_writer_can_be_started_again(spark: Any, source: Path, sink: DirectorySink, checkpoint: Path) -> None:
    stream = writer(file_stream(spark, source), sink, checkpoint)
    run(stream)
    write_files(source, 1, first=3)
    run(stream)
    assert sink.batches() == [0, 1, 2, 3]
    assert ids(sink.rows()) == list(range(40))


def test_the_rows_of_a_batch_are_evaluated_once(
    spark: Any, source: Path, sink: DirectorySink, checkpoint: Path
) -> None:
    evaluated = spark.sparkContext.accumulator(0)

    def count(value: int) -> int:
        evaluated.add(1)
        return value

    spark.udf.register("counted", count, "long")
    run(writer(file_stream(spark, source).selectExpr("counted(id) as id"), sink, checkpoint))
    assert ids(sink.rows()) == list(range(30))
    assert evaluated.value == 30


@pytest.fixture
def held(spark: Any, tmp_path: Path) -> str:
    """A column whose task says that it is busy, and goes on when it is let go."""
    busy, hold = tmp_path / "busy", tmp_path / "hold"
    hold.touch()

    def holding(value: int) -> int:
        busy.touch()
        while hold.exists():
            time.sleep(0.05)
        return value

    spark.udf.register("holding", holding, "long")
    return "holding(id) as id"


@pytest.mark.parametrize("when", ["reading", "writing"])
def test_stopping_a_query_in_the_middle_of_a_batch_is_quiet_and_the_replay_exact(
    spark: Any, tmp_path: Path, sink: DirectorySink, checkpoint: Path, held: str, when: str
) -> None:
    write_files(tmp_path / "in", 2, rows=30)
    rows = file_stream(spark, tmp_path / "in").selectExpr(held, "text")
    entered = threading.Event()

    def wrap(function: Any) -> Any:
        def announcing(batch: Any, batch_id: int) -> None:
            entered.set()
            if when == "reading":
                time.sleep(0.5)  # the stop arrives before the checkpoint is read
            function(batch, batch_id)

        return announcing

    query = writer(rows, sink, checkpoint, wrap=wrap).start()
    assert entered.wait(60)
    while when == "writing" and not (tmp_path / "busy").exists():
        time.sleep(0.05)
    query.stop()
    assert query.exception() is None
    assert not query.isActive
    assert sink.batches() == []
    (tmp_path / "hold").unlink()
    run(writer(rows, sink, checkpoint))
    assert ids(sink.rows()) == list(range(60))


@pytest.mark.driver
def test_spark_says_little_about_a_query_that_was_stopped_while_writing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.stopping", str(tmp_path)]
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {"exception": "None", "batches": []}
    assert "StackOverflowError" not in done.stderr
    assert len(done.stderr.splitlines()) < 70


def test_an_error_of_a_task_ends_the_query_with_its_code(
    spark: Any, source: Path, tmp_path: Path, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = DirectorySink(tmp_path / "sink", fail_on=12)
    text = failure(writer(file_stream(spark, source), sink, checkpoint))
    assert "WriteError: [LAKESINK_TEST_VALUE] value 12 is refused" in text
    assert "py4j.protocol.Py4JJavaError" not in text
    assert sink.batches() == [0]
    [line] = [record.getMessage() for record in caplog.records if record.name == "lakesink"][-1:]
    assert line.startswith("lakesink.batch.failed ")
    assert "batch=1 code=LAKESINK_TEST_VALUE" in line


def test_an_unexpected_error_does_not_carry_a_secret_into_sparks_log(
    spark: Any, source: Path, tmp_path: Path, checkpoint: Path
) -> None:
    class Leaking(DirectorySink):
        def begin(self, batch: Batch) -> Any:
            raise ConnectionError(f"cannot reach https://user:hunter22@host for batch {batch.batch_id}")

    text = failure(writer(file_stream(spark, source), Leaking(tmp_path / "sink"), checkpoint))
    assert "[LAKESINK_UNEXPECTED]" in text
    assert "for batch 0" in text
    assert "hunter22" not in text


def test_a_counting_source_is_replayed_from_its_counter(spark: Any, sink: DirectorySink, checkpoint: Path) -> None:
    run_batches(writer(counter_stream(spark), sink, checkpoint), 2)
    last = sink.batches()[-1]
    forget_commits(checkpoint, last - 1)
    files = sink.files_written()
    run_batches(writer(counter_stream(spark), sink, checkpoint), last + 2)
    assert sink.files_written() > files
    values = ids(sink.rows())
    assert values == list(range(len(values)))


def test_the_offsets_of_a_batch_are_there_for_people(
    spark: Any, source: Path, sink: DirectorySink, checkpoint: Path
) -> None:
    run(writer(file_stream(spark, source), sink, checkpoint))
    assert [json.loads(batch.offsets) for batch in sink.begun] == [[{"logOffset": number}] for number in range(3)]
    assert sink.begun[0].start is None
    assert [batch.start for batch in sink.begun[1:]] == [batch.end for batch in sink.begun[:-1]]
