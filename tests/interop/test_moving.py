"""A stream moves from Iceberg's own Spark sink to lakesink and back, on one checkpoint, with a crash on the way."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lakesink_tools.cli.main import main
from lakesink_tools.past.records import history
from proof.contest.case import Case
from proof.contest.driver import Orders, driver
from proof.contest.place import Place
from proof.contest.result import Ending, judge
from proof.contest.sinks import SINKS
from proof.contest.tables import STREAM
from proof.drivers import PATIENCE_SECONDS, wait_until
from servers.fault_proxy import FaultProxy, HttpFault, Kind, fault_proxy
from servers.jars import ICEBERG_SPARK, REST_REFERENCE, fetched
from servers.rest_reference import rest_reference
from tests.interop.stream_session import StreamSession, stream_session

pytestmark = pytest.mark.interop
NAMES = (f"lake{number}" for number in count())
"""A session knows a catalog by its name for good."""
EXACT = "each row once"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamSession]:
    with stream_session(tmp_path_factory.mktemp("session")) as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return made(tmp_path, monkeypatch, {"type": "sql", **sql(tmp_path)})


def sql(root: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"}


def made(
    root: Path, monkeypatch: pytest.MonkeyPatch, direct: dict[str, str], through: dict[str, str] | None = None
) -> Place:
    monkeypatch.setenv("PYICEBERG_HOME", str(root))
    catalog = next(NAMES)
    for name, value in direct.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{catalog.upper()}__{name.upper()}", value)
    case = Case("moving", "", "", ())
    made_place = Place(root / "stream", case, through or direct, direct, catalog, "demo.numbers")
    made_place.create()
    return made_place


def orders(place: Place, sink: str) -> Orders:
    return Orders(sink, place.target)


def asked(place: Place, command: str, *arguments: str) -> dict[str, Any]:
    """What a command of lakesink says of the table."""
    call = [command, place.table, "--catalog", place.catalog, "--output", "json", *arguments]
    done = CliRunner().invoke(main, call)
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"exit_code": done.exit_code}


def adopted(place: Place) -> dict[str, Any]:
    return asked(place, "adopt", "--sink", STREAM, "--checkpoint", str(place.checkpoint), "--yes")


def next_batch(place: Place) -> str:
    """What doctor says of the checkpoint and of what comes next."""
    told = asked(place, "doctor", "--checkpoint", str(place.checkpoint), "--no-spark")
    checks = {check["check"]: check["found"] for check in told["checks"] if check["part"] == "checkpoint"}
    return f"{checks['readable']}; {checks['next batch']}"


def words(place: Place) -> str:
    return judge(place, SINKS["lakesink"], Ending()).words


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("logged", [True, False])
def test_lakesink_goes_on_where_icebergs_own_sink_ended(
    session: StreamSession,
    place: Place,
    batches: int,
    logged: bool,  # noqa: FBT001 - a case
) -> None:
    place.arrive(range(batches))
    assert session.run(orders(place, "iceberg")) == ""
    beside = replace(place, root=place.root.parent / "beside", sent=Counter())
    beside.source.mkdir(parents=True)
    beside.arrive(range(50, 51))
    assert session.run(orders(beside, "iceberg")) == ""
    place.sent += beside.sent
    place.others_append()
    if not logged:
        place.unlog()
    place.arrive(range(batches, batches + 2))

    assert session.run(orders(place, "lakesink")) == "LAKESINK_UNKNOWN_HISTORY"
    assert f"Iceberg's own sink has written this checkpoint's batches up to {batches - 1}" in next_batch(place)
    done = adopted(place)
    assert (done["exit_code"], done["batch_id"], done["already"]) == (0, batches - 1, False)
    assert done["comes_again"] is not logged
    assert session.run(orders(place, "lakesink")) == ""
    assert words(place) == EXACT
    audit = asked(place, "audit", "--checkpoint", str(place.checkpoint))
    assert audit["exit_code"] == 0, audit
    own = [(record.batch_id, record.rows) for record in history(place.load(), sink=STREAM)]
    assert own == [(batches - 1, 0), (batches, 100), (batches + 1, 100)]


def test_a_driver_killed_between_icebergs_commit_and_sparks_log_is_taken_over(
    session: StreamSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = fetched(ICEBERG_SPARK)
    fetched(REST_REFERENCE)
    (tmp_path / "rest").mkdir()
    with rest_reference(tmp_path / "rest") as server, fault_proxy(server.uri) as proxy:
        direct, through = ({"type": "rest", "uri": uri} for uri in (server.uri, proxy.uri))
        place = made(tmp_path, monkeypatch, direct, through)
        place.arrive(range(2))
        assert session.run(orders(place, "iceberg")) == ""
        place.arrive(range(2, 4))
        kill_at_the_answer(place, jars, proxy)

        assert session.run(orders(place, "lakesink")) == "LAKESINK_UNKNOWN_HISTORY"
        done = adopted(place)
        assert (done["batch_id"], done["comes_again"]) == (2, True)
        assert session.run(orders(place, "lakesink")) == ""
        assert words(place) == EXACT


def kill_at_the_answer(place: Place, jars: tuple[Path, ...], proxy: FaultProxy) -> None:
    """SIGKILL to a driver whose next commit has landed, while it waits for the answer."""
    proxy.arm(proxy.commits + 1, HttpFault(Kind.SILENCE), lambda: None)
    log = place.root / "driver.log"
    with driver([orders(place, "iceberg")], jars, log) as process:
        assert wait_until(proxy.met.is_set, process), log.read_text()[-2000:]


def test_adopting_while_icebergs_own_sink_still_writes_loses_and_doubles_no_row(
    session: StreamSession, place: Place
) -> None:
    """An operator does not stop that query first: lakesink notices the batches that it wrote after the adoption."""
    place.arrive(range(6))
    told = replace(orders(place, "iceberg"), slowly=True)
    log = place.root / "driver.log"
    with driver([told], fetched(ICEBERG_SPARK), log) as process:
        assert wait_until(lambda: bool(place.load().metadata.snapshots), process), log.read_text()[-2000:]
        while (answer := adopted(place))["exit_code"] != 0:
            assert answer["error"]["code"] == "LAKESINK_ADOPT_REFUSED"
        assert process.wait(PATIENCE_SECONDS) == 0, log.read_text()[-2000:]
    assert answer["batch_id"] < 5, "it was adopted too late to be a case"

    place.arrive(range(6, 8))
    assert session.run(orders(place, "lakesink")) == "LAKESINK_UNKNOWN_HISTORY"
    assert adopted(place)["batch_id"] == 5
    assert session.run(orders(place, "lakesink")) == ""
    assert words(place) == EXACT


@pytest.mark.parametrize("logged", [True, False])
def test_icebergs_own_sink_goes_on_once_sparks_log_is_complete(
    session: StreamSession,
    place: Place,
    logged: bool,  # noqa: FBT001 - a case
) -> None:
    place.arrive(range(1))
    assert session.run(orders(place, "iceberg")) == ""
    adopted(place)
    place.arrive(range(1, 3))
    assert session.run(orders(place, "lakesink")) == ""
    if not logged:
        place.unlog()
        assert "batch 2 comes again; batch 2 of sink numbers would be skipped" in next_batch(place)
        assert session.run(orders(place, "lakesink")) == ""
    assert "batch 2 done, batch 3 comes next; batch 3 of sink numbers would be committed" in next_batch(place)

    place.arrive(range(3, 5))
    assert session.run(orders(place, "iceberg")) == ""
    assert words(place) == EXACT

    place.arrive(range(5, 6))
    assert session.run(orders(place, "lakesink")) == "LAKESINK_UNKNOWN_HISTORY"
    assert adopted(place)["batch_id"] == 4
    assert session.run(orders(place, "lakesink")) == ""
    assert words(place) == EXACT


def test_going_back_without_that_doubles_a_batch_and_lakesink_tells(session: StreamSession, place: Place) -> None:
    place.arrive(range(2))
    assert session.run(orders(place, "lakesink")) == ""
    good = place.load().metadata.refs["main"].snapshot_id
    place.unlog()
    place.arrive(range(2, 3))
    assert session.run(orders(place, "iceberg")) == ""
    assert words(place) == "100 rows doubled"

    place.arrive(range(3, 4))
    assert session.run(orders(place, "lakesink")) == "LAKESINK_UNKNOWN_HISTORY"
    error = adopted(place)["error"]
    assert "Iceberg's own sink has written batch 1, which the table already had" in error["what"]
    assert f"snapshot {good}" in error["action"]
    assert "--to-batch 1" in error["action"]
    place.load().manage_snapshots().set_current_snapshot(good).commit()
    rewound = CliRunner().invoke(main, ["rewind", str(place.checkpoint), "--to-batch", "1", "--yes"])
    assert rewound.exit_code == 0, rewound.output
    assert session.run(orders(place, "lakesink")) == ""
    assert words(place) == EXACT
