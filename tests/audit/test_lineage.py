"""`lakesink lineage`: the offsets behind a batch, through tables that were read into each other."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lakesink.rows.letters import letters_key
from lakesink_protocol.identity import SinkKind, stream_batch
from lakesink_tools.cli.main import main
from lakesink_tools.past.source_ranges import KafkaRange, merged
from testkit.builders import Stream
from testkit.maintenance import edit_metadata, expire, expire_like_java, roll_back
from tests.audit.chain import BRONZE, GOLD, SILVER, Chain, Hand, offsets


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chain:
    """Six batches of bronze, three of silver that read two each, one of gold behind each two of silver."""
    chain = Chain.make(tmp_path)
    for name, value in {"TYPE": "sql", "URI": f"sqlite:///{tmp_path}/catalog.db"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TEST__{name}", value)
    for number in range(1, 7):
        chain.bronze.run(offsets(100 * number, 10 * number))
        if number % 2 == 0:
            chain.silver.run(chain.position(chain.bronze))
        if number % 4 == 2:
            chain.gold.run(chain.position(chain.silver))
    return chain


def run(table: str, batch: int, *options: object) -> Result:
    arguments = ["lineage", table, "--catalog", "test", "--batch", batch, *options]
    return CliRunner().invoke(main, [str(one) for one in arguments], catch_exceptions=False)


def told(table: str, batch: int, *options: object, exit_code: int = 0) -> Any:
    result = run(table, batch, *options, "--output", "json")
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def kafka(document: Any) -> list[tuple[str, int, int | None, int]]:
    return [(one["topic"], one["partition"], one["first_offset"], one["last_offset"]) for one in document["kafka"]]


def behind(document: Any) -> list[tuple[str, int, int]]:
    """Tables and batches of a chain without branches, nearest first."""
    found, batch = [], document["batch"]
    while batch is not None:
        found.append((batch["table"], batch["first_batch"], batch["last_batch"]))
        behind = [one for source in batch["sources"] for one in source.get("batches", [])]
        batch = behind[0] if behind else None
    return found


# Through the tables


@pytest.mark.usefixtures("chain")
def test_the_offsets_of_kafka_behind_a_batch_of_gold() -> None:
    document = told(GOLD, 1)
    assert behind(document) == [(GOLD, 1, 1), (SILVER, 1, 2), (BRONZE, 2, 5)]
    assert kafka(document) == [("orders", 0, 200, 599), ("orders", 1, 20, 59)]
    assert (document["complete"], document["not_known"]) == (True, [])
    hops = [document["batch"], document["batch"]["sources"][0]["batches"][0]]
    assert [hop["known_by"] for hop in hops] == ["proven", "proven"]
    assert hops[1]["rows"] == 6


def test_consecutive_batches_read_everything_once(chain: Chain) -> None:
    chain.bronze.run(offsets(700, 60))
    chain.silver.run(chain.position(chain.bronze))
    chain.gold.run(chain.position(chain.silver))
    read = [one for batch in (1, 2) for one in kafka(told(GOLD, batch)) if one[1] == 0]
    assert read == [("orders", 0, 200, 599), ("orders", 0, 600, 699)]
    assert kafka(told(BRONZE, 6)) == [("orders", 0, 600, 699)], "nothing came from partition 1"


@pytest.mark.usefixtures("chain")
def test_a_reader_does_not_record_where_it_began_and_the_answer_says_so() -> None:
    document = told(GOLD, 0, exit_code=1)
    assert behind(document) == [(GOLD, 0, 0), (SILVER, 0, 0), (BRONZE, 0, 1)]
    assert kafka(document) == [("orders", 0, 0, 199), ("orders", 1, 0, 19)]
    assert any("Batch 0 of gold in demo.gold: where it began is not recorded" in one for one in document["not_known"])


@pytest.mark.usefixtures("chain")
def test_offsets_that_begin_at_0_are_proven_by_the_fingerprint_of_the_first_batch() -> None:
    document = told(BRONZE, 0)
    assert kafka(document) == [("orders", 0, 0, 99), ("orders", 1, 0, 9)]
    assert document["batch"]["known_by"] == "proven"


def test_a_first_batch_that_began_elsewhere_is_not_guessed(chain: Chain) -> None:
    late = chain.hand(chain.lake, "demo.late")
    late.first = [offsets(40, 4)]
    late.run(offsets(100, 10))
    document = told("demo.late", 0, exit_code=1)
    assert kafka(document) == [("orders", 0, None, 99), ("orders", 1, None, 9)]
    assert "began is not in the table" in document["not_known"][0]


def test_a_partition_that_was_added_has_no_first_offset(chain: Chain) -> None:
    chain.bronze.run({"orders": {"0": 600, "1": 60, "2": 5}})
    assert kafka(told(BRONZE, 6)) == [("orders", 2, None, 4)]


def test_two_sources_of_one_query(chain: Chain) -> None:
    both = chain.hand(chain.lake, "demo.both")
    both.run(chain.position(chain.silver), offsets(5, 5, "rates"))
    chain.bronze.run(offsets(700, 70))
    chain.silver.run(chain.position(chain.bronze))
    both.run(chain.position(chain.silver), offsets(8, 5, "rates"))
    document = told("demo.both", 1)
    assert kafka(document) == [("orders", 0, 600, 699), ("orders", 1, 60, 69), ("rates", 0, 5, 7)]


def test_what_only_a_batch_in_the_middle_read_is_named_too(chain: Chain) -> None:
    chain.bronze.run({"orders": {"0": 700, "1": 60}, "old": {"0": 50}})
    chain.bronze.run({"orders": {"0": 800, "1": 60}, "old": {"0": 90}})
    chain.bronze.run({"orders": {"0": 900, "1": 60}})
    chain.silver.run(chain.position(chain.bronze))
    document = told(SILVER, 3)
    assert kafka(document) == [("old", 0, None, 89), ("orders", 0, 600, 899)]


def test_a_topic_that_was_created_again_is_not_one_stretch(chain: Chain) -> None:
    chain.bronze.run(offsets(3, 60))
    chain.bronze.run(offsets(650, 60))
    chain.silver.run(chain.position(chain.bronze))
    document = told(SILVER, 3, exit_code=1)
    assert [one[2:] for one in kafka(document) if one[1] == 0] == [(None, 649)]
    assert "the offsets of orders, partition 0 went back from 600 to 3" in document["not_known"][0]


def test_a_source_that_came_later_may_have_begun_anywhere(chain: Chain) -> None:
    late = chain.hand(chain.lake, "demo.late")
    late.first = [offsets(0, 0), None]
    late.run(offsets(10, 1), None)
    late.run(offsets(20, 2), offsets(500, 7, "rates"))
    document = told("demo.late", 1, exit_code=1)
    assert ("rates", 0, None, 499) in kafka(document)
    assert "where it began is not recorded by its source" in document["not_known"][0]


@pytest.mark.parametrize("offset", [{"lakesink": 7, "table": BRONZE}, {"lakesink": 1, "table": BRONZE, "batch": "x"}])
def test_an_offset_of_a_table_that_cannot_be_read_is_not_left_out_silently(chain: Chain, offset: Any) -> None:
    start = chain.silver.ends[-1]
    chain.silver.run(offset)
    document = told(SILVER, 3, exit_code=1)
    assert "an offset of format('lakesink') cannot be read" in document["not_known"][0]
    assert start != [offset]


@pytest.mark.usefixtures("chain")
def test_a_checkpoint_of_no_query_on_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metadata").write_text('{"id": "another-query"}')
    document = told(BRONZE, 1, "--checkpoint", tmp_path / "other", exit_code=1)
    assert document["not_known"] == ["No batch is of query another-query, whose checkpoint was given."]


def test_tables_that_are_read_twice_are_followed_once(chain: Chain) -> None:
    below = chain.gold
    for number in range(12):
        read = chain.position(below)
        below = chain.hand(chain.lake, f"demo.tower{number}")
        below.run(read, read)
    result = run("demo.tower11", 0, "--output", "json")
    assert kafka(json.loads(result.stdout)) == [("orders", 0, 0, 599), ("orders", 1, 0, 59)]
    assert (result.exit_code, len(result.stdout) < 100_000) == (1, True)
    lines = run("demo.tower11", 0).stdout.splitlines()
    assert sum("as above" in line for line in lines) == 12


# What happened to the tables since


@pytest.mark.parametrize("expiry", [expire, expire_like_java])
def test_expired_batches_are_told_from_earlier_metadata(chain: Chain, expiry: Any) -> None:
    before = kafka(told(GOLD, 1))
    chain.gold.run(chain.position(chain.silver))
    for hand in (chain.bronze, chain.silver, chain.gold):
        expiry(hand.stream.lake)
        assert len(hand.stream.lake.table().metadata.snapshots) <= 2
    assert kafka(told(GOLD, 1)) == before


def test_a_batch_that_was_rolled_back_and_written_again_is_told_once(chain: Chain) -> None:
    last = chain.gold.ends[1]
    roll_back(chain.bronze.stream.lake, chain.bronze.stream.snapshot_of(3))
    for number in (5, 6):
        chain.bronze.run(offsets(100 * number, 10 * number), batch_id=number - 1)
    assert chain.position(chain.bronze) != chain.silver.ends[2][0]
    assert last == chain.gold.ends[1]
    document = told(GOLD, 1)
    assert behind(document) == [(GOLD, 1, 1), (SILVER, 1, 2), (BRONZE, 2, 5)]
    assert kafka(document) == [("orders", 0, 200, 599), ("orders", 1, 20, 59)]


def test_a_table_that_was_rolled_back_behind_what_was_read_is_named(chain: Chain) -> None:
    roll_back(chain.bronze.stream.lake, chain.bronze.stream.snapshot_of(3))
    document = told(GOLD, 1, exit_code=1)
    assert not document["complete"]
    assert f"The batches of {BRONZE} cannot be told: [LAKESINK_READ_ROLLED_BACK]" in document["not_known"][0]


def test_a_table_that_was_dropped_is_named(chain: Chain) -> None:
    chain.lake.catalog.drop_table(BRONZE)
    document = told(GOLD, 1, exit_code=1)
    assert f"The batches of {BRONZE} cannot be told: [LAKESINK_TABLE_MISSING]" in document["not_known"][0]


def test_a_table_that_was_created_again_is_not_taken_for_the_one_that_was_read(chain: Chain) -> None:
    chain.lake.catalog.drop_table(BRONZE)
    chain.hand(chain.lake, BRONZE).run(offsets(1, 1))
    document = told(GOLD, 1, exit_code=1)
    assert f"The batches of {BRONZE} cannot be told: [LAKESINK_TABLE_REPLACED]" in document["not_known"][0]


def test_a_new_query_of_the_same_sink_begins_a_run_of_its_own(chain: Chain) -> None:
    new = Hand(Stream(chain.bronze.stream.lake, "bronze", query="second-query"), [offsets(0, 0)])
    new.stream.overrule(new.batch(0, [offsets(50, 5)]))
    chain.silver.run(chain.position(chain.bronze))
    document = told(SILVER, 3)
    [source] = document["batch"]["sources"]
    assert [(one["query_id"], one["first_batch"]) for one in source["batches"]] == [("second-query", 0)]
    assert kafka(document) == [("orders", 0, 0, 49), ("orders", 1, 0, 4)]


def test_a_batch_that_an_operator_skipped_has_no_source(chain: Chain) -> None:
    new = Hand(Stream(chain.bronze.stream.lake, "bronze", query="second-query"), [offsets(0, 0)])
    new.stream.overrule(new.batch(0, [offsets(50, 5)]), "skip")
    document = told(BRONZE, 0, "--sink", "bronze")
    assert document["batch"]["query_id"] in {"second-query", "query-of-bronze"}


# Tables beside a table


def dead_letters(chain: Chain) -> Stream:
    """The application that writes the dead letters of bronze."""
    bronze = chain.bronze.stream
    key = letters_key(bronze.key, bronze.query, str(bronze.lake.table().metadata.table_uuid))
    lake = replace(bronze.lake, name="demo.letters")
    lake.create()
    return Stream(lake, key.name, kind=SinkKind.TXN)


def test_dead_letters_have_the_offsets_of_the_batch_that_put_them_aside(chain: Chain) -> None:
    dead_letters(chain).run(4)
    document = told("demo.letters", 4)
    assert behind(document) == [("demo.letters", 4, 4), (BRONZE, 4, 4)]
    assert kafka(document) == [("orders", 0, 400, 499), ("orders", 1, 40, 49)]
    assert document["batch"]["known_by"] == "same_batch"


def test_dead_letters_of_a_batch_that_was_rolled_back_are_not_complete(chain: Chain) -> None:
    dead_letters(chain).run(4)
    roll_back(chain.bronze.stream.lake, chain.bronze.stream.snapshot_of(3))
    document = told("demo.letters", 4, exit_code=1)
    assert (
        f"The batches of {BRONZE} cannot be told: [LAKESINK_BATCH_EXPIRED] Batch 4 of bronze"
        in document["not_known"][0]
    )


# What a summary does not tell


def test_an_application_says_nothing_of_its_input(chain: Chain) -> None:
    nightly = Stream(chain.bronze.stream.lake, "nightly", kind=SinkKind.TXN)
    nightly.run(7)
    document = told(BRONZE, 7, "--sink", "nightly", exit_code=1)
    assert "nightly in demo.bronze is no stream of this catalog" in document["not_known"][0]
    assert document["batch"]["known_by"] == "unknown"


def test_offsets_of_a_changed_summary_are_not_believed(chain: Chain) -> None:
    def lie(document: dict[str, Any]) -> None:
        for snapshot in document["snapshots"]:
            if snapshot["summary"].get("lakesink.batch-id") == "5":
                snapshot["summary"]["lakesink.offsets"] = '[{"orders":{"0":9999,"1":60}}]'

    edit_metadata(chain.bronze.stream.lake, lie)
    document = told(BRONZE, 5, exit_code=1)
    assert kafka(document) == []
    assert "says nothing of its offsets" in document["not_known"][0]


def test_a_batch_that_began_elsewhere_than_its_fingerprint_says_is_not_believed(chain: Chain) -> None:
    batch = stream_batch(6, "query-of-bronze", start=[offsets(650, 60)], end=[offsets(700, 70)])
    chain.bronze.stream.overrule(batch)
    document = told(BRONZE, 6, exit_code=1)
    assert kafka(document) == [("orders", 0, None, 699), ("orders", 1, None, 69)]
    assert "did not begin where the batch before it ended" in document["not_known"][0]


@pytest.mark.usefixtures("chain")
def test_a_missing_batch_is_refused_as_by_as_of() -> None:
    result = run(GOLD, 9, "--output", "json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] == "LAKESINK_BATCH_NOT_YET"


@pytest.mark.usefixtures("chain")
def test_the_text_shows_the_tables_and_says_what_to_do_next() -> None:
    shown = run(GOLD, 1).output.splitlines()
    assert shown[0] == (
        "demo.gold in test, batch 1 of gold: 3 rows, from 440 offsets of Kafka in 2 partitions, through 2 tables"
    )
    first = [line.split("  ")[0].strip() or line.strip().split("  ")[0] for line in shown[2:7]]
    assert first == [
        "demo.gold, gold",
        "demo.silver, silver",
        "demo.bronze, bronze",
        "Kafka orders, partition 0",
        "Kafka orders, partition 1",
    ]
    assert shown[-1].startswith("Next: lakesink as-of demo.gold --catalog test --batch 1 --sink gold --read")


def test_ranges_that_meet_are_one_and_others_stay_apart() -> None:
    found = merged(
        [
            KafkaRange("a", 0, 5, 9),
            KafkaRange("a", 0, None, 3),
            KafkaRange("a", 0, 9, 12),
            KafkaRange("a", 1, 1, 2),
            KafkaRange("b", 0, 1, 2),
            KafkaRange("a", 0, 10, 11),
        ]
    )
    assert found == [
        KafkaRange("a", 0, None, 3),
        KafkaRange("a", 0, 5, 12),
        KafkaRange("a", 1, 1, 2),
        KafkaRange("b", 0, 1, 2),
    ]
