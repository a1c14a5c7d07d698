"""``spark.readStream.format("lakesink")``: a stream over the batches of a sink, on real Spark."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame

import lakesink
from lakesink.checkpoint.query_facts import Replay
from lakesink.read.begin import followed
from lakesink.spark.query_plan import sources_of
from lakesink.spark.source.data_source import LakesinkDataSource
from lakesink.spark.source.source_readers import ADMITS, BatchesReader, Loaded, read_settings
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from lakesink_tools.cli.main import main
from testkit.builders import Lake, Stream
from tests.spark.adapters import embedded_catalog
from tests.spark.streams import failure, file_stream, forget_commits, run, write_files

pytestmark = pytest.mark.usefixtures("home")
BRONZE, SILVER = "demo.bronze", "demo.silver"


@pytest.fixture(autouse=True)
def registered(spark: Any) -> None:
    spark.dataSource.register(LakesinkDataSource)


def bronze(spark: Any, source: Path, **options: Any) -> None:
    """Write what is new in the folder, a file a batch."""
    given: dict[str, Any] = {"sink_id": "bronze", "checkpoint": "ck-bronze", "create_table": True} | options
    run(lakesink.stream(file_stream(spark, source), BRONZE, **given))


def read(spark: Any, **options: Any) -> DataFrame:
    spelled = {name.replace("_", "-"): str(value) for name, value in options.items()}
    found: DataFrame = (
        spark.readStream.format("lakesink").options(**(embedded_catalog() | {"table": BRONZE} | spelled)).load()
    )
    return found


def silver(rows: DataFrame) -> Any:
    return lakesink.stream(rows, SILVER, sink_id="silver", checkpoint="ck-silver", create_table=True)


def ids(table: str = SILVER) -> "Counter[int]":
    return Counter(load_table(connect(create=False), table).scan().to_arrow()["id"].to_pylist())


def each_once(count: int) -> "Counter[int]":
    return Counter(range(count))


def offsets() -> dict[str, Any]:
    """The offset of the reader in silver's newest batch mark."""
    [found] = json.loads(lakesink.history(SILVER)[-1].offsets)
    assert isinstance(found, dict)
    return found


@pytest.mark.dear
def test_each_row_of_bronze_is_in_silver_once(spark: Any, source: Path) -> None:
    bronze(spark, source)
    run(silver(read(spark)))
    write_files(source, 2, first=3)
    bronze(spark, source)
    run(silver(read(spark)))
    run(silver(read(spark)))
    assert ids() == each_once(50)
    assert offsets()["batch"] == 4


@pytest.mark.dear
def test_the_offset_in_silvers_mark_names_bronzes_batch(spark: Any, source: Path) -> None:
    bronze(spark, source)
    run(silver(read(spark)))
    found = offsets()
    table = load_table(connect(create=False), BRONZE)
    newest = lakesink.history(BRONZE)[-1]
    wanted = {"lakesink": 1, "table": BRONZE, "uuid": str(table.metadata.table_uuid), "sink": "bronze"}
    wanted |= {"batch": 2, "snapshot": newest.snapshot_id, "sequence": newest.sequence_number}
    assert found == wanted | {"query": found["query"], "fingerprint": found["fingerprint"]}


def test_a_query_that_reads_a_sink_is_exactly_once(spark: Any, source: Path) -> None:
    bronze(spark, source)
    [found] = sources_of(read(spark))
    assert found.replay is Replay.YES


@pytest.mark.dear
def test_a_batch_that_silver_lost_is_read_again_with_the_same_rows(spark: Any, source: Path) -> None:
    bronze(spark, source)
    run(silver(read(spark)))
    write_files(source, 1, first=3)
    bronze(spark, source)
    forget_commits(Path("ck-silver"), -1)
    for _ in range(1 if ADMITS else 2):  # in Spark 4.1, the trigger is one micro-batch, be it one that is repeated
        run(silver(read(spark)))
    assert ids() == each_once(40)


@pytest.mark.dear
def test_a_running_query_follows_bronze(spark: Any, source: Path) -> None:
    bronze(spark, source)
    query = silver(read(spark)).trigger(processingTime="0 seconds").start()
    try:
        for number in (3, 4):
            write_files(source, 1, first=number)
            bronze(spark, source)
            query.processAllAvailable()
            assert ids() == each_once(10 * (number + 1))
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"starting_batch": "earliest"}, range(30)),
        ({"starting_batch": 1}, range(10, 30)),
        ({"starting_batch": "latest"}, range(0)),
        ({"starting_timestamp": "2001-01-01"}, range(30)),
        ({"starting_timestamp": "2901-01-01T00:00:00+02:00"}, range(0)),
    ],
)
def test_a_new_query_begins_where_it_is_told(spark: Any, source: Path, options: Any, rows: range) -> None:
    bronze(spark, source)
    query = read(spark, **options).writeStream.format("memory").queryName("begun")
    query = query.option("checkpointLocation", f"{source}-ck")
    run(query)
    assert sorted(row.id for row in spark.table("begun").collect()) == list(rows)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"tabel": "x"}, "OPTION_UNKNOWN"),
        ({"table": "demo.absent"}, "TABLE_MISSING"),
        ({"sink_id": "gold"}, "SINK_UNKNOWN"),
        ({"starting_batch": "first"}, "OPTION_INVALID"),
        ({"starting_batch": 1, "starting_timestamp": "2026-01-01"}, "OPTION_INVALID"),
        ({"catalog.token": "canary-1234"}, "OPTION_SECRET"),
    ],
)
def test_bad_options_are_refused_at_the_load(spark: Any, source: Path, options: Any, code: str) -> None:
    bronze(spark, source)
    with pytest.raises(AnalysisException) as raised:
        read(spark, **options)
    assert f"[LAKESINK_{code}]" in str(raised.value)
    assert "canary" not in str(raised.value)


def test_a_schema_and_a_read_that_is_no_stream_are_refused(spark: Any, source: Path) -> None:
    bronze(spark, source)
    options = embedded_catalog() | {"table": BRONZE}
    with pytest.raises(PySparkException, match="LAKESINK_READ_UNSUPPORTED"):
        spark.read.format("lakesink").options(**options).load().count()
    given = spark.readStream.format("lakesink").options(**options).schema("id long").load()
    query = given.writeStream.format("noop").option("checkpointLocation", f"{source}-ck")
    assert "LAKESINK_READ_SCHEMA_GIVEN" in failure(query)


def test_several_sinks_are_read_by_name(spark: Any, source: Path, tmp_path: Path) -> None:
    bronze(spark, source)
    write_files(tmp_path / "more", 1, first=50)
    rows = file_stream(spark, tmp_path / "more")
    run(lakesink.stream(rows, BRONZE, sink_id="other", checkpoint="ck-other"))
    with pytest.raises(AnalysisException, match="LAKESINK_SINK_AMBIGUOUS"):
        read(spark)
    run(silver(read(spark, sink_id="other")))
    assert sorted(ids()) == list(range(500, 510))


def test_a_column_that_comes_while_the_query_runs_ends_it_and_is_read_after_a_restart(
    spark: Any, source: Path, tmp_path: Path
) -> None:
    bronze(spark, source)
    rows = read(spark)
    run(silver(rows))
    table = load_table(connect(create=False), BRONZE)
    with table.update_schema() as update:
        update.add_column("word", table.schema().find_field("text").field_type)
        update.rename_column("text", "old_text")
    (tmp_path / "wide").mkdir()
    (tmp_path / "wide" / "0.json").write_text('{"id": 30, "old_text": "t", "word": "w"}\n')
    wider = spark.readStream.schema("id long, old_text string, word string").json(str(tmp_path / "wide"))
    run(lakesink.stream(wider, BRONZE, sink_id="bronze", checkpoint="ck-wide", accept=_accepted(wider)))
    assert "LAKESINK_READ_SCHEMA_CHANGED" in failure(silver(rows))
    run(lakesink.stream(read(spark), SILVER, sink_id="silver", checkpoint="ck-silver", schema_evolution="widen"))
    found = load_table(connect(create=False), SILVER).scan().to_arrow().to_pylist()
    assert len(found) == 31
    assert [row["word"] for row in found if row["id"] == 30] == ["w"]


def _accepted(rows: DataFrame) -> str:
    refused = failure(lakesink.stream(rows, BRONZE, sink_id="bronze", checkpoint="ck-wide"))
    return refused.partition('accept="')[2].partition('"')[0]


LIMITS: list[tuple[dict[str, int], list[int]]] = [({}, [30])]
"""Options, and the sizes of micro-batches that they give."""
if ADMITS:
    LIMITS += [({"max_batches_per_trigger": 2}, [20, 10]), ({"max_rows_per_trigger": 15}, [10, 10, 10])]


@pytest.mark.parametrize(("options", "sizes"), LIMITS)
def test_micro_batches_have_as_much_as_limits_allow(
    spark: Any, source: Path, options: dict[str, int], sizes: list[int]
) -> None:
    bronze(spark, source)
    run(silver(read(spark, **options)))
    assert [record.rows for record in lakesink.history(SILVER)] == sizes
    assert ids() == each_once(30)


def test_limits_are_refused_where_spark_has_none(spark: Any, source: Path) -> None:
    bronze(spark, source)
    if ADMITS:
        run(silver(read(spark, max_batches_per_trigger=1)))
        assert len(lakesink.history(SILVER)) == 3
        return
    with pytest.raises(AnalysisException, match="LAKESINK_READ_LIMITS_UNSUPPORTED"):
        read(spark, max_batches_per_trigger=1)


def changed(spark: Any, source: Path) -> None:
    """A table whose rows are replaced, with its changelog."""
    rows = file_stream(spark, source).selectExpr("id % 7 as id", "text")
    options: dict[str, Any] = {"mode": "upsert", "keys": "id", "sequence_by": "text", "changelog_table": "demo.log"}
    run(lakesink.stream(rows, BRONZE, sink_id="bronze", checkpoint="ck-bronze", create_table=True, **options))


def test_a_table_of_upserts_is_read_by_its_changelog(spark: Any, source: Path) -> None:
    changed(spark, source)
    query = read(spark).writeStream.format("noop").option("checkpointLocation", f"{source}-ck")
    assert "LAKESINK_READ_CHANGES" in failure(query)
    run(silver(read(spark, table="demo.log")))
    found = load_table(connect(create=False), SILVER).scan().to_arrow().to_pylist()
    assert Counter((row["id"], row["text"], row["_batch_id"]) for row in found) == Counter(
        (number % 7, f"t{number % 10}", number // 10) for number in range(30)
    )


def test_replayed_dead_letters_come_to_silver_and_to_gold_once(spark: Any, source: Path) -> None:
    rules: dict[str, Any] = {"expect": {"even": ("id % 2 = 0", "quarantine")}, "max_dead_letter_ratio": 1.0}
    gold = "demo.gold"

    def chain() -> None:
        bronze(spark, source, **rules)
        run(silver(read(spark)))
        run(lakesink.stream(read(spark, table=SILVER), gold, sink_id="gold", checkpoint="ck-gold", create_table=True))

    chain()
    assert ids(gold) == Counter(range(0, 30, 2))
    first = "SELECT letter_id, row.* FROM letters WHERE row.id < 10"
    assert lakesink.replay_dead_letters(spark, BRONZE, first).letters == 5
    forget_commits(Path("ck-silver"), -1)
    for _ in range(2):  # after a crash, Spark 4.1 ends with the interrupted micro-batch
        chain()
    assert ids(gold) == Counter([*range(10), *range(10, 30, 2)])
    write_files(source, 1, first=3)
    bronze(spark, source, **rules)
    assert lakesink.replay_dead_letters(spark, BRONZE, "SELECT letter_id, row.* FROM letters").letters == 15
    for _ in range(2):
        chain()
    assert ids() == ids(gold) == ids(BRONZE) == each_once(40)


def test_a_named_reader_holds_what_it_reads_and_the_writer_goes_on(spark: Any, source: Path) -> None:
    bronze(spark, source)
    run(silver(read(spark, reader_id="silver")))
    table = load_table(connect(create=False), BRONZE)
    held = table.metadata.refs["lakesink-reader-silver"]
    assert (held.snapshot_id, held.min_snapshots_to_keep) == (table.metadata.current_snapshot_id, 3)
    write_files(source, 1, first=3)
    bronze(spark, source)
    run(silver(read(spark, reader_id="silver")))
    assert ids() == each_once(40)


def test_files_that_come_back_in_other_batches_are_refused_and_silver_is_taken_back(spark: Any, tmp_path: Path) -> None:
    """A number in the log of a file source does not say which files were read."""
    source = tmp_path / "inbox"
    write_files(source, 1)
    bronze(spark, source)
    run(silver(read(spark)))
    write_files(source, 2, first=1)
    bronze(spark, source)
    run(silver(read(spark)))
    assert ids() == each_once(30)
    roll_back(BRONZE)
    rewind("ck-bronze")
    bronze(spark, source)
    if ADMITS:
        run(silver(read(spark)))  # it waits: bronze may come to batch 2 again
        assert ids() == each_once(30)
    else:
        assert "LAKESINK_READ_ROLLED_BACK" in failure(silver(read(spark)))
    roll_back(SILVER)
    rewind("ck-silver")
    for _ in range(2):  # after a crash, Spark 4.1 ends with the interrupted micro-batch
        run(silver(read(spark)))
    assert ids() == each_once(30)


def test_a_first_micro_batch_whose_beginning_has_moved_says_how_to_go_on(spark: Any, source: Path) -> None:
    """Spark stores where a micro-batch ends. Where the first began, only the options say."""
    found: list[int] = []
    checkpoint = source.parent / "ck-found"

    def collected(begin: object) -> Any:
        writer = read(spark, starting_batch=begin).writeStream.option("checkpointLocation", str(checkpoint))
        return writer.foreachBatch(lambda rows, _: found.extend(row["id"] for row in rows.collect()))

    bronze(spark, source)
    run(collected("latest"))
    forget_commits(checkpoint, -1)
    write_files(source, 1, first=3)
    bronze(spark, source)
    text = failure(collected("latest"))
    assert (
        "The first micro-batch was planned up to batch 2 of demo.bronze, and the options now begin at batch 3" in text
    )
    assert "starting-batch=2" in text
    for _ in range(1 if ADMITS else 2):
        run(collected(2))
    assert Counter(found) == Counter(range(20, 40))


def test_a_batch_that_comes_between_spark_s_first_two_questions_is_read_by_a_query_that_begins_at_the_latest(
    lake: Lake,
) -> None:
    stream = Stream(lake)
    stream.run(0)
    catalog = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{lake.folder}/catalog.db"}
    options = catalog | {"catalog": "test", "table": lake.name, "starting-batch": "latest"}
    reader = BatchesReader(read_settings(options), Loaded(followed(lake.table(), lake.name, "", "main"), "{}"))
    newest = reader.latestOffset()
    stream.run(1)
    assert reader.initialOffset() == newest
    assert reader.latestOffset()["batch"] == 1


def roll_back(name: str) -> None:
    """Take a table back to its first batch."""
    table = load_table(connect(create=False), name)
    table.manage_snapshots().set_current_snapshot(lakesink.history(name)[0].snapshot_id).commit()


def rewind(checkpoint: str) -> None:
    """Take a query back to its first batch."""
    done = CliRunner().invoke(main, ["rewind", checkpoint, "--to-batch", "0", "--yes"])
    assert done.exit_code == 0, done.output
