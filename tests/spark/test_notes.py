"""A real query says at its start what bears on its guarantee, and leaves that beside its checkpoint."""

import logging
import socketserver
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.functions import col, current_timestamp, expr, rand, udf

from examples.guarantees.forgetful import ForgetfulSource
from lakesink.checkpoint.query_facts import QUERY_FACTS, Functions
from lakesink.spark.query_plan import functions_of, sources_of
from lakesink.spark.report import SPECULATION
from lakesink_tools.checks.doctor.finding import Finding, Standing
from lakesink_tools.checks.doctor.query import check_query
from testkit.http_servers import serving
from tests.spark.directory_sink import DirectorySink
from tests.spark.streams import file_stream, forget_commits, run, write_files, writer


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def rows(spark: Any, tmp_path: Path) -> Any:
    write_files(tmp_path / "in", 1)
    return file_stream(spark, tmp_path / "in")


def noted(rows: Any, checkpoint: Path) -> dict[str, Finding]:
    """Findings about a query that has run."""
    run(writer(rows, DirectorySink(checkpoint.with_name("sink")), checkpoint))
    return {finding.check: finding for finding in check_query(str(checkpoint))}


def started(caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    [record] = [record for record in caplog.records if record.getMessage().startswith("lakesink.query.started")]
    return record


def test_a_query_over_files_is_exactly_once_and_says_so_in_one_line(
    rows: Any, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lakesink")
    found = noted(rows, checkpoint)
    assert [name for name, finding in found.items() if finding.standing is not Standing.OK] == ["texts"]
    assert found["guarantee"].found == "exactly once (FileSource)"
    assert found["output mode"].found.startswith("append")
    assert found["atomic create"].found.startswith("file")
    line = started(caplog)
    assert line.levelno == logging.INFO
    assert "unstable='' output_mode=append speculation=false checkpoint=file" in line.getMessage()


def test_a_source_of_texts_that_hides_what_it_cannot_read_is_named(spark: Any, tmp_path: Path) -> None:
    def lenient(columns: str, **options: str) -> list[bool]:
        rows = spark.readStream.schema(columns).options(**options)
        return [source.lenient for source in sources_of(rows.json(str(tmp_path)).select("id"))]

    assert lenient("id INT") == lenient("id INT", mode="PERMISSIVE") == [True]
    assert lenient("id INT", mode="FAILFAST") == lenient("id INT, _corrupt_record STRING") == [False]
    assert lenient("id INT, rest STRING", columnNameOfCorruptRecord="rest") == [False]
    assert [source.lenient for source in sources_of(spark.readStream.text(str(tmp_path)))] == [False]
    assert [source.lenient for source in sources_of(spark.readStream.format("rate").load())] == [False]


def test_expressions_that_need_not_give_the_same_again_are_named(
    rows: Any, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @udf("long")
    def price(value: int) -> int:
        return value

    @udf("long")
    def guess(value: int) -> int:
        return value

    unstable = rows.where(rand() >= 0).withColumn("key", expr("uuid()")).withColumn("price", price("id"))
    found = noted(unstable.withColumn("guess", guess.asNondeterministic()("id")).select("id"), checkpoint)
    assert found["expressions"].standing is Standing.WARNING
    named = found["expressions"].found.partition(". ")[0].removeprefix("Not deterministic: ")
    assert set(named.split(", ")) == {"rand", "uuid", "guess"}
    assert "price" in found["functions"].found
    assert started(caplog).levelno == logging.WARNING


def test_the_time_of_a_batch_is_the_same_in_its_replay(rows: Any, checkpoint: Path) -> None:
    timed = rows.withColumn("now", current_timestamp())
    assert functions_of(timed) == Functions()
    seen: list[Any] = []
    stream = timed.writeStream.option("checkpointLocation", str(checkpoint))
    for _ in range(2):
        run(stream.foreachBatch(lambda batch, _: seen.append({row.now for row in batch.collect()})))
        forget_commits(checkpoint, -1)
    assert len(seen) == 2
    assert seen[0] == seen[1]


def test_a_source_that_lakesink_does_not_know_is_trusted_and_named(
    spark: Any, tmp_path: Path, checkpoint: Path
) -> None:
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue/0.json").write_text('{"device": 1, "reading": 2}\n')
    spark.dataSource.register(ForgetfulSource)
    queue = spark.readStream.format("forgetful").load(str(tmp_path / "queue"))
    found = noted(queue.select(col("device").alias("id")), checkpoint)
    assert found["guarantee"].standing is Standing.WARNING
    assert "the same rows for the same offsets (forgetful)" in found["guarantee"].found


class _OneLine(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"hello\n")
        self.request.recv(1)  # until the reader hangs up


@pytest.fixture
def port() -> Iterator[int]:
    with serving(_OneLine) as served:
        yield served


def test_a_socket_is_at_most_once(spark: Any, checkpoint: Path, port: int) -> None:
    lines = spark.readStream.format("socket").options(host="127.0.0.1", port=port).load()
    stream = writer(lines.selectExpr("1L as id"), DirectorySink(checkpoint.with_name("sink")), checkpoint).start()
    try:
        while not (checkpoint / "commits/0").exists():
            assert stream.isActive, stream.exception()
            time.sleep(0.05)
    finally:
        stream.stop()
    found = {finding.check: finding for finding in check_query(str(checkpoint))}
    assert found["guarantee"].standing is Standing.FAILED
    assert "at most once" in found["guarantee"].found


def test_of_a_query_of_another_sink_the_checkpoint_tells_that_it_reads_files(rows: Any, checkpoint: Path) -> None:
    run(rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)))
    found = {finding.check: finding for finding in check_query(str(checkpoint))}
    assert found["guarantee"].found == "sources by their offsets: files; these can replay"
    assert found["notes"].standing is Standing.SKIPPED


def test_speculation_is_noted(spark: Any, rows: Any, checkpoint: Path) -> None:
    conf = spark.sparkContext._conf  # noqa: SLF001 - a running session takes no other way
    conf.set(SPECULATION, "true")
    try:
        assert noted(rows, checkpoint)["speculation"].standing is Standing.WARNING
    finally:
        conf.set(SPECULATION, "false")


def test_notes_that_cannot_be_written_do_not_end_the_stream(
    rows: Any, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint.mkdir()
    (checkpoint / Path(QUERY_FACTS).parent).write_text("a file, where a folder is needed")
    sink = DirectorySink(checkpoint.with_name("sink"))
    run(writer(rows, sink, checkpoint))
    assert sink.files_written() == 1
    assert "lakesink.query.notes-unwritten" in caplog.text
