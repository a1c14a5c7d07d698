"""The command that sets a lost ledger entry again."""

import json
from pathlib import Path

import pyarrow as pa
from click.testing import CliRunner
from pyiceberg.table.update import RemovePropertiesUpdate

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table, load_table
from lakesink_tools.cli.main import main
from testkit.batches import Writer

PROPERTY = "lakesink.ledger.stream.events"


def test_a_lost_entry_is_restored_and_a_retired_sink_is_refused(home: Path) -> None:

    catalog = connect()
    assert home.exists()
    create_table(catalog, "demo.events", pa.schema([("id", pa.int64())]))
    Writer(catalog).commit(0, rows=10)
    table = load_table(catalog, "demo.events")
    before = table.properties[PROPERTY]
    catalog.commit_table(table, (), (RemovePropertiesUpdate(removals=[PROPERTY]),))
    arguments = ["restore", "demo.events", "--sink", "events", "--output", "json"]
    refused = CliRunner().invoke(main, arguments)
    assert (refused.exit_code, json.loads(refused.stdout)["error"]["code"]) == (2, "LAKESINK_NOT_CONFIRMED")
    done = CliRunner().invoke(main, [*arguments, "--yes"])
    assert (done.exit_code, json.loads(done.stdout)["batch_id"]) == (0, 0), done.output
    assert load_table(catalog, "demo.events").properties[PROPERTY] == before
    CliRunner().invoke(main, ["forget", "demo.events", "--sink", "events", "--yes"])
    retired = CliRunner().invoke(main, [*arguments, "--yes"])
    assert (retired.exit_code, json.loads(retired.stdout)["error"]["code"]) == (2, "LAKESINK_RESTORE_REFUSED")
