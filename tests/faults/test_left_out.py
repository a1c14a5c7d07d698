"""Catalogs that accept a commit and leave out its tags, a branch, or the parents of snapshots."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table

from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.preflight import check_start
from lakesink.spark.source.source_readers import load
from lakesink_catalog.connect import catalog as connecting
from lakesink_catalog.connect.catalog import CatalogConfig, connect
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from lakesink_protocol.tags import EveryBatches
from testkit import letters
from testkit.answers import lands_then
from testkit.answers import says_yes_and_shows_another_parent as without_parent
from testkit.builders import ROWS, TABLE, Apply, Lake, Stream, counted, expected, is_prepared_record
from testkit.maintenance import branch_off, expire
from tests.certify.liars import KeepsOneSnapshot, NessieLike, served
from tests.doctor.liars import LosesRefs, LosesTags

WITHOUT_TAGS = "LAKESINK_CATALOG_WITHOUT_TAGS"
NOT_SHOWN = "lakesink.commit.not-shown"


def opened(lake: Lake, kind: Callable[..., SqlCatalog]) -> SqlCatalog:
    return kind("test", uri=f"sqlite:///{lake.folder}/catalog.db", warehouse=f"file://{lake.folder}/warehouse")


def counting_loads(catalog: SqlCatalog) -> list[Any]:
    """The loads of tables from now on."""
    loads: list[Any] = []
    load_table = catalog.load_table

    def counting(identifier: Any) -> Table:
        loads.append(identifier)
        return load_table(identifier)

    catalog.load_table = counting  # type: ignore[method-assign] # of this connection only
    return loads


@pytest.mark.parametrize("kind", [LosesTags, LosesRefs, KeepsOneSnapshot])
def test_a_run_whose_ledger_tag_is_left_out_says_so_once_and_commits(
    lake: Lake, caplog: pytest.LogCaptureFixture, kind: type[SqlCatalog]
) -> None:
    stream = Stream(lake, catalog=opened(lake, kind))
    sink = stream.sink()
    for batch in range(4):
        assert isinstance(stream.run_with(sink, batch), Committed)
    [line] = [line for line in caplog.messages if WITHOUT_TAGS in line]
    assert line.startswith("lakesink.catalog.without-tags")
    assert "ledger_tag=False" in line
    assert counted(lake) == expected(*range(4))


@pytest.mark.parametrize("options", [{}, {"ledger_tag": False}], ids=["honest", "without the tag"])
def test_nothing_is_said_where_every_tag_is_there_or_none_was_sent(
    lake: Lake, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    stream = Stream(lake, catalog=opened(lake, LosesTags if options else SqlCatalog), options=options)
    sink = stream.sink()
    for batch in range(2):
        stream.run_with(sink, batch)
    assert WITHOUT_TAGS not in caplog.text


def test_a_tag_that_a_later_batch_has_moved_is_not_left_out(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    """The answer to batch 0 shows the table after batch 1 of a rival driver."""

    def answered_late(apply: Apply) -> CommitTableResponse:
        apply()
        assert isinstance(Stream(lake).run(1), Committed)
        table = lake.table()
        return CommitTableResponse(metadata=table.metadata, metadata_location=table.metadata_location)

    lake.catalog.faults = [answered_late]
    outcome = Stream(lake).run(0)
    assert isinstance(outcome, Committed)
    assert outcome.attempts == 1
    assert WITHOUT_TAGS not in caplog.text
    assert counted(lake) == expected(0, 1)


def test_missing_parents_are_looked_at_once_in_a_run_and_then_known(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """The first answer without the asserted parent is not believed; the table then shows that the batch is in it."""
    catalog = opened(lake, KeepsOneSnapshot)
    stream = Stream(lake, catalog=catalog)
    sink, found, loads = stream.sink(), [], counting_loads(catalog)
    for batch in range(4):
        before = len(loads)
        outcome = stream.run_with(sink, batch)
        assert isinstance(outcome, Committed)
        found.append((outcome.attempts, len(loads) - before))
    assert [attempts for attempts, _ in found] == [1, 2, 1, 1]
    assert found[2] == found[3] == found[0]
    assert [line for line in caplog.messages if line.startswith(NOT_SHOWN)] == [f"{NOT_SHOWN} batch=1 attempt=1"]
    assert isinstance(stream.run(3), AlreadyCommitted)
    assert counted(lake) == expected(*range(4))


@pytest.mark.parametrize("expires", [False, True])
def test_an_answer_or_an_expiry_alone_teaches_nothing(lake: Lake, *, expires: bool) -> None:
    """The parent is missing in one answer, or in the table after an expiry. The next answer is not believed either."""
    stream = Stream(lake)
    sink = stream.sink()
    first = stream.run_with(sink, 0)
    assert isinstance(first, Committed)
    expired = lands_then(lambda: expire(lake, [first.snapshot_id]))
    for batch, fault in enumerate((expired if expires else without_parent, without_parent), 1):
        lake.catalog.faults = [fault]
        outcome = stream.run_with(sink, batch)
        assert isinstance(outcome, Committed)
        assert outcome.attempts == 2


@pytest.mark.parametrize("kind", [LosesTags, KeepsOneSnapshot])
def test_a_stream_that_asks_for_tags_stops_and_its_batch_is_in(lake: Lake, kind: type[SqlCatalog]) -> None:
    stream = Stream(lake, catalog=opened(lake, kind), options={"tag_every": 100})
    for batch in range(2):
        with pytest.raises(CatalogError, match=rf"{WITHOUT_TAGS}\].* accepted batch {batch} of") as stopped:
            stream.run(batch)
        assert stopped.value.data == "The batch is in the table."
        assert "Leave out tag_every" in stopped.value.action
        assert counted(lake) == expected(*range(batch + 1))
        assert isinstance(stream.run(batch), AlreadyCommitted)


def test_a_stream_whose_catalog_keeps_tags_goes_on_and_keeps_one_record(lake: Lake) -> None:
    for batch in range(2):
        assert isinstance(Stream(lake, options={"tag_every": 1}).run(batch), Committed)
    assert sum(map(is_prepared_record, lake.files())) == 1


def test_a_batch_with_dead_letters_is_in_both_tables_when_its_stream_stops(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not home.exists()
    monkeypatch.setattr(connecting, "open_catalog", lambda name, properties: LosesTags(name, **properties))
    with pytest.raises(CatalogError, match=WITHOUT_TAGS):
        letters.load(0, (1, 20), (2, 200), tag_every="1 day")
    assert letters.ids() == [1]
    assert len(letters.rows(letters.LETTERS)) == 1


def test_a_branch_that_does_not_move_stops_the_stream_and_the_batch_is_not_in_it(lake: Lake) -> None:
    Stream(lake).run(0)
    branch_off(lake, "audit")
    before = counted(lake, "audit")
    lies = Stream(lake, "audited", "audit", catalog=opened(lake, LosesRefs))
    for _ in range(2):
        with pytest.raises(CatalogError, match=rf"{WITHOUT_TAGS}\].* left the branch 'audit' where it was") as stopped:
            lies.run(0)
        assert "is not in the branch" in stopped.value.data
        assert counted(lake, "audit") == before
    assert isinstance(Stream(lake, "audited", "audit").run(0), Committed)
    assert counted(lake, "audit") == before + expected(0)


@pytest.mark.parametrize(
    ("option", "key", "settings"),
    [
        ("tag_every", SinkKey("events"), Settings(tag_every=EveryBatches(1))),
        ("branch", SinkKey("events", "audit"), Settings()),
    ],
)
def test_what_a_known_catalog_leaves_out_is_refused_before_the_start(
    lake: Lake, option: str, key: SinkKey, settings: Settings
) -> None:
    Stream(lake).run(0)
    with served(NessieLike(connect("test", {"uri": f"sqlite:///{lake.folder}/catalog.db"}))) as uri:
        found = CatalogConfig("lake", {"type": "rest", "uri": uri}).find()
        check_start(found, TABLE, SinkKey("events"), Settings(), ROWS, case_sensitive=False)
        with pytest.raises(CatalogError, match=rf"{WITHOUT_TAGS}\] Nessie") as refused:
            check_start(found, TABLE, key, settings, ROWS, case_sensitive=False)
    assert refused.value.data == "Nothing was written."
    assert f"Leave out {option}" in refused.value.action


def test_a_reader_that_asks_for_its_branch_is_refused_before_the_start_too(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    Stream(lake).run(0)
    with served(NessieLike(connect("test", {"uri": f"sqlite:///{lake.folder}/catalog.db"}))) as uri:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
        options = {"table": TABLE, "catalog": "lake"}
        load(options)
        with pytest.raises(Exception, match=rf"{WITHOUT_TAGS}\] Nessie[\s\S]*Leave out reader-id"):
            load(options | {"reader-id": "silver"})
