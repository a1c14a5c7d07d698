"""Checkpoints as Spark Declarative Pipelines lay them out: a full refresh, and flows that share a sink id.

The sink sees of a pipeline only its checkpoint, so these streams run without one. `test_pipelines.py` runs pipelines.
"""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import load_table
from tests.spark.adapters import by_format
from tests.spark.streams import failure, file_stream, run, write_files

pytestmark = pytest.mark.usefixtures("home")
TABLE = "shop.orders"
FLOW = Path("storage/_checkpoints/orders/new_orders")
OPTIONS: dict[str, Any] = {"sink_id": "orders", "create_table": True}
ONCE = list(range(30))


@pytest.fixture
def inbox(spark: Any, tmp_path: Path) -> Path:
    """A flow has written the rows of three files."""
    write_files(tmp_path / "inbox", 3)
    run(flow(spark, tmp_path / "inbox", FLOW / "0"))
    assert ids() == ONCE
    return tmp_path / "inbox"


def flow(spark: Any, inbox: Path, checkpoint: Path, **changed: Any) -> Any:
    return by_format(file_stream(spark, inbox), TABLE, **(OPTIONS | {"checkpoint": checkpoint} | changed))


def ids() -> list[int]:
    return sorted(load_table(connect(create=False), TABLE).scan().to_arrow()["id"].to_pylist())


def refused_refresh(spark: Any, inbox: Path) -> str:
    """The message of a full refresh, which wrote nothing."""
    text = failure(flow(spark, inbox, FLOW / "1"))
    assert ids() == ONCE
    return text


def accepted(text: str) -> str:
    """The word that the message offers for a commit."""
    [word] = set(re.findall(r'accept="(NewCheckpoint:\S+:commit)"', text))
    return str(word)


@pytest.mark.dear
def test_a_full_refresh_is_refused_in_a_line_that_says_so(spark: Any, inbox: Path) -> None:
    text = refused_refresh(spark, inbox)
    [told] = {line[line.index("[LAKESINK") :] for line in text.splitlines() if "[LAKESINK_NEW_CHECKPOINT]" in line}
    assert told == (
        "[LAKESINK_NEW_CHECKPOINT] The full refresh of flow new_orders would add rows a second time:"
        " sink 'orders' has them up to batch 2."
    )
    assert f"To undo the refresh, delete the folder {(FLOW / '1').resolve()}: " in text


@pytest.mark.dear
def test_a_refresh_is_undone_by_deleting_its_checkpoint(spark: Any, inbox: Path) -> None:
    refused_refresh(spark, inbox)
    shutil.rmtree(FLOW / "1")
    write_files(inbox, 1, first=3)
    run(flow(spark, inbox, FLOW / "0"))  # the highest number that is left, which Spark takes
    assert ids() == list(range(40))


@pytest.mark.dear
def test_after_a_refresh_a_dropped_table_is_built_again(spark: Any, inbox: Path) -> None:
    refused_refresh(spark, inbox)
    connect(create=False).drop_table(TABLE)
    for _ in range(2):
        run(flow(spark, inbox, FLOW / "1"))
        assert ids() == ONCE


@pytest.mark.dear
def test_after_a_refresh_an_emptied_table_is_filled_again_by_accepting(spark: Any, inbox: Path) -> None:
    word = accepted(refused_refresh(spark, inbox))
    load_table(connect(create=False), TABLE).delete(AlwaysTrue())
    assert ids() == []
    write_files(inbox, 1, first=3)
    for _ in range(2):
        run(flow(spark, inbox, FLOW / "1", accept=word))
        assert ids() == list(range(40))


def test_what_is_accepted_without_emptying_comes_twice_and_only_once_more(spark: Any, inbox: Path) -> None:
    word = accepted(refused_refresh(spark, inbox))
    for _ in range(2):
        run(flow(spark, inbox, FLOW / "1", accept=word))
        assert ids() == sorted(ONCE * 2)
    assert "LAKESINK_NEW_CHECKPOINT" in failure(flow(spark, inbox, FLOW / "2", accept=word))
    assert ids() == sorted(ONCE * 2)


def test_a_second_flow_with_the_sink_id_of_another_is_refused_until_it_has_its_own(
    spark: Any, inbox: Path, tmp_path: Path
) -> None:
    write_files(tmp_path / "second", 1, first=5)
    second = FLOW.with_name("second") / "0"
    text = failure(flow(spark, tmp_path / "second", second))
    assert "[LAKESINK_NEW_CHECKPOINT] Flow second begins anew, but sink 'orders' has batches up to 2 of another" in text
    assert "with a sink-id of its own" in text
    assert ids() == ONCE
    run(flow(spark, tmp_path / "second", second, sink_id="second"))
    write_files(inbox, 1, first=3)
    run(flow(spark, inbox, FLOW / "0"))
    assert ids() == [*range(40), *range(50, 60)]


def test_a_renamed_flow_goes_on_with_its_checkpoint(spark: Any, inbox: Path) -> None:
    renamed = FLOW.with_name("all_orders")
    text = failure(flow(spark, inbox, renamed / "0"))
    assert f"put the old checkpoint into {(renamed / '0').resolve()}" in text
    shutil.rmtree(renamed)
    FLOW.rename(renamed)
    write_files(inbox, 1, first=3)
    run(flow(spark, inbox, renamed / "0"))
    assert ids() == list(range(40))
