"""Rows that change by key, on each certified catalog: each batch once, with rivals, replays and compactions."""

import random
from pathlib import Path
from typing import Any, cast

import pytest

from lakesink_catalog.connect.catalog import connect
from lakesink_protocol.outcome import AlreadyCommitted, Committed
from testkit.builders import FaultyCatalog, Lake
from testkit.change_table import SCHEMA, ChangeStream, Reference, compactions, rows_of, write_all_anew

BATCHES = 20


@pytest.mark.dear
def test_changes_land_once_whoever_else_writes(properties: dict[str, Any], tmp_path: Path) -> None:
    catalog = connect(tmp_path.name, properties)
    catalog.create_namespace_if_not_exists("changes")
    lake = Lake(tmp_path, cast("FaultyCatalog", catalog), f"changes.{tmp_path.name}")
    lake.create(SCHEMA)
    stream, reference, chance = ChangeStream(lake, seed=1), Reference(), random.Random(1)
    for number in range(BATCHES):
        outcome = stream.run(number)
        assert isinstance(outcome, Committed)
        assert outcome.changes == reference.apply(stream.changes(number))
        if chance.random() < 0.3:
            assert isinstance(stream.run(number), AlreadyCommitted)
        if chance.random() < 0.1:
            write_all_anew(lake)
        assert rows_of(lake) == reference.table
    assert compactions(lake)
