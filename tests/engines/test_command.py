"""`lakesink engines` without the engines: what it prints for every catalog, and how it says what it cannot do."""

import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lakesink_catalog.connect.catalog import connect
from lakesink_tools.cli.main import main
from testkit.builders import TABLE, Lake, Stream, parquet_files
from testkit.maintenance import edit_metadata
from tests.audit.deletes import delete_by_equality, delete_by_position
from tests.audit.terminal import Run, found, refused, terminal
from tests.doctor.programs import distribution

ENGINES = ("trino", "spark", "duckdb", "flink", "pyiceberg")
JSON = ("--output", "json")


@pytest.fixture
def run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Run:
    return terminal(lake, monkeypatch)


@pytest.fixture
def stream(lake: Lake) -> Stream:
    return Stream(lake, options={"tag_every": 2}).filled(4)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_is_told_where_the_catalog_is_and_how_to_go_back(run: Run, stream: Stream, engine: str) -> None:
    document = found(run("engines", "--for", engine, *JSON))
    text = run("engines", "--for", engine).stdout
    assert (document["table"], document["catalog"]) == (TABLE, "test")
    where = "metadata.json" if engine == "duckdb" else str(stream.lake.folder / "catalog.db")
    printed = [file["text"] for file in document["files"]] + [query["text"] for query in document["queries"]]
    assert any(where in part for part in printed)
    assert any(str(stream.snapshot_of(3)) in part for part in printed)
    for part in printed:
        assert all(line in text for line in part.splitlines())


def test_a_batch_is_asked_for_by_its_number_and_its_tag_is_used(run: Run, stream: Stream) -> None:
    document = found(run("engines", "--for", "spark", "--batch", 2, "--sink", "events", *JSON))
    assert [query["text"] for query in document["queries"][2:]] == [
        f"SELECT * FROM `test`.`demo`.`events` VERSION AS OF {stream.snapshot_of(2)}",
        "SELECT * FROM `test`.`demo`.`events` VERSION AS OF 'lakesink-events/batch-2'",
    ]


@pytest.mark.usefixtures("stream")
def test_the_moving_tag_of_the_ledger_is_not_offered(run: Run) -> None:
    document = found(run("engines", "--for", "spark", *JSON))
    assert [query["what"] for query in document["queries"]][2:] == ["the table as of batch 3"]


def test_an_empty_table_has_nothing_to_go_back_to(run: Run) -> None:
    assert len(found(run("engines", "--for", "trino", *JSON))["queries"]) == 2


@pytest.mark.usefixtures("stream")
def test_a_table_that_no_stream_wrote_to_is_shown_as_it_is(run: Run, lake: Lake) -> None:
    edit_metadata(
        lake, lambda metadata: [snapshot["summary"].pop("lakesink.version") for snapshot in metadata["snapshots"]]
    )
    document = found(run("engines", "--for", "trino", *JSON))
    assert document["queries"][2]["text"].endswith(f"FOR VERSION AS OF {lake.head().snapshot_id}")


@pytest.mark.usefixtures("stream")
def test_a_pyspark_without_an_iceberg_runtime_is_a_note_for_spark_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def notes(engine: str) -> list[str]:
        return [note for note in found(run("engines", "--for", engine, *JSON))["notes"] if "pyspark" in note]

    assert notes("spark") == []
    distribution(tmp_path / "site", "pyspark", "4.3.0")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    [note] = notes("spark")
    assert note.startswith("pyspark 4.3.0 is installed")
    assert 'pip install "pyspark==4.1.*"' in note
    assert notes("trino") == []


# What it cannot do


@pytest.mark.usefixtures("stream")
def test_a_batch_that_is_not_there_is_said(run: Run) -> None:
    assert refused(run("engines", "--for", "spark", "--batch", 9, *JSON))["code"] == "LAKESINK_BATCH_NOT_YET"


def test_a_sink_goes_with_a_batch(run: Run) -> None:
    assert refused(run("engines", "--for", "spark", "--sink", "events", *JSON))["code"] == "LAKESINK_OPTION_INVALID"


@pytest.mark.usefixtures("stream")
def test_pyiceberg_is_not_told_to_read_equality_deletes(run: Run, lake: Lake) -> None:
    [first, *_] = sorted(parquet_files(lake))
    delete_by_position(lake, f"file://{first}", [0])
    assert found(run("engines", "--for", "pyiceberg", *JSON))["engine"] == "PyIceberg 0.12"
    delete_by_equality(lake, 1)
    error = refused(run("engines", "--for", "pyiceberg", *JSON))
    assert error["code"] == "LAKESINK_DELETES_UNSUPPORTED"
    assert "--for spark" in error["action"]
    assert found(run("engines", "--for", "spark", *JSON))["engine"] == "Spark 4.1"


def test_a_view_is_said_to_be_one(run: Run, lake: Lake) -> None:
    as_view(lake)
    error = refused(run("engines", "--for", "trino", *JSON))
    assert (error["code"], error["what"]) == (
        "LAKESINK_TABLE_IS_VIEW",
        "demo.events in the catalog 'test' is a view.",
    )


def as_view(lake: Lake) -> None:
    with sqlite3.connect(lake.folder / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET iceberg_type = 'VIEW'")


def test_a_table_under_another_name_of_the_catalog_is_said(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{lake.folder}/catalog.db")
    error = refused(ask("--for", "spark", "--catalog", "prod", *JSON))
    assert error["code"] == "LAKESINK_TABLE_MISSING"
    assert "under the catalog name test. SQL catalogs store the name in every row" in error["action"]


@pytest.mark.usefixtures("stream")
def test_metadata_that_cannot_be_read_is_said(run: Run, lake: Lake) -> None:
    manifest_list = Path(lake.head().manifest_list.removeprefix("file://"))
    manifest_list.unlink()
    error = refused(run("engines", "--for", "spark", *JSON))
    assert error["code"] == "LAKESINK_WAREHOUSE_UNWRITABLE"


@pytest.mark.parametrize("place", ["gs://bucket/data", "abfss://c@account/data", "hdfs://host/data"])
def test_a_storage_without_recipe_is_said(run: Run, lake: Lake, place: str) -> None:
    edit_metadata(lake, lambda metadata: metadata["properties"].update({"write.data.path": place}))
    error = refused(run("engines", "--for", "spark", *JSON))
    assert error["code"] == "LAKESINK_RECIPE_MISSING"
    assert place.partition(":")[0] in error["what"]


def test_a_catalog_in_memory_has_no_recipe(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TYPE": "in-memory", "WAREHOUSE": f"file://{lake.folder}"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__MEMORY__{name}", value)
    held = connect("memory")
    held.create_namespace("demo")
    held.create_table(TABLE, lake.table().schema())
    assert refused(ask("--for", "spark", "--catalog", "memory", *JSON))["code"] == "LAKESINK_RECIPE_MISSING"


@pytest.mark.parametrize("name", ["Demo.events", "demo.Events", "a.b.events"])
@pytest.mark.usefixtures("run")
def test_trino_is_not_told_a_name_that_it_cannot_say(lake: Lake, name: str) -> None:
    namespace = tuple(name.split(".")[:-1])
    for depth in range(1, len(namespace) + 1):
        lake.catalog.create_namespace_if_not_exists(namespace[:depth])
    lake.catalog.rename_table(TABLE, tuple(name.split(".")))
    arguments = ["engines", name, "--catalog", "test", *JSON, "--for"]
    error = refused(CliRunner().invoke(main, [*arguments, "trino"]))
    assert error["code"] == "LAKESINK_NAME_UNREADABLE"
    assert found(CliRunner().invoke(main, [*arguments, "spark"]))["table"] == name


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["engines", TABLE, *arguments], catch_exceptions=False)
