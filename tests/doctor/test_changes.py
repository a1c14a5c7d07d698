"""What doctor says of a sink that changes rows by key: its order and its deletes."""

import json
from pathlib import Path
from typing import Any

import pytest

from lakesink.settings.settings import POLICY
from lakesink_tools.checks.doctor.finding import Finding, Standing
from lakesink_tools.checks.doctor.table import _is_kafka, check_table
from testkit.builders import TABLE, Stream
from testkit.upserts import Upserts


@pytest.fixture
def keyed(tmp_path: Path) -> Upserts:
    return Upserts.make(tmp_path)


def looked(keyed: Upserts) -> dict[str, Finding]:
    return {finding.check: finding for finding in check_table(TABLE, keyed.lake.table())}


def policy(**options: Any) -> dict[str, str]:
    return {POLICY: json.dumps({"mode": "changes", **options})}


def test_a_sink_that_appends_is_told_nothing_of_changes(keyed: Upserts) -> None:
    assert not {"order", "deletes"} & looked(keyed).keys()
    keyed.lake.catalog.drop_table(TABLE)
    keyed.lake.create()
    Stream(keyed.lake).run(0)
    assert not {"order", "deletes"} & looked(keyed).keys()


def test_a_sequence_makes_the_order_safe(keyed: Upserts) -> None:
    keyed.run(0, {1: "a"}, said=policy(keys=["id"], sequence_by=["lsn", "at"]))
    found = looked(keyed)["order"]
    assert found.standing is Standing.OK
    assert found.found == "keyed: changes by id; the greatest lsn, at wins, so changes may arrive in any order"


def test_without_a_sequence_a_source_without_order_is_a_warning(keyed: Upserts) -> None:
    keyed.run(0, {1: "a"}, said=policy())
    found = looked(keyed)["order"]
    assert found.standing is Standing.WARNING
    assert found.found.startswith("keyed: changes by the table's identifier fields; no sequence_by: the later batch")
    assert "Give sequence_by" in found.fix


def test_results_of_an_aggregation_need_no_sequence(keyed: Upserts) -> None:
    keyed.run(0, {1: "a"}, said=policy(output_mode="update"))
    found = looked(keyed)["order"]
    assert (found.standing, found.fix) == (Standing.OK, "")
    assert "output mode update: the later batch has the newer result of a key" in found.found


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ('[{"orders":{"0":5,"1":7}}]', True),
        ('{"source":{"orders":{"0":5}}}', True),
        ('[{"orders":{"0":5}},{"logOffset":3}]', False),
        ('[{"logOffset":3}]', False),
        ("[3]", False),
        ('["x"]', False),
        ("[]", False),
        ("", False),
        ("{", False),
        ("7", False),
    ],
)
def test_kafka_is_known_by_its_offsets(offsets: str, expected: bool) -> None:  # noqa: FBT001 - a value of the table
    assert _is_kafka(offsets) is expected


def test_late_changes_beside_hard_deletes_need_soft_ones(keyed: Upserts) -> None:
    keyed.run(0, {1: "a", 2: "b"}, said=policy())
    keyed.run(1, {}, deletes=[1], said=policy())
    assert looked(keyed)["deletes"].standing is Standing.OK
    keyed.run(2, {2: "old"}, late=[2], said=policy())
    found = looked(keyed)["deletes"]
    assert found.standing is Standing.WARNING
    assert "1 change came late, and a late upsert restores a row" in found.found
    assert found.fix.startswith("Give deletes='soft'")
    keyed.run(3, {3: "c"}, said=policy(deletes="soft"))
    found = looked(keyed)["deletes"]
    assert (found.standing, found.fix) == (Standing.OK, "")
    assert found.found.endswith("; deleted rows are kept and marked")


def test_a_policy_that_another_program_wrote_is_no_policy(keyed: Upserts) -> None:
    keyed.run(0, {1: "a"}, said={POLICY: '{"mode":["x"],"keys":7}'})
    assert not {"order", "deletes"} & looked(keyed).keys()
    keyed.run(1, {1: "b"}, said={POLICY: '{"mode":"upsert","keys":[7,"\\u001b[2J"]}'})
    assert "\x1b" not in looked(keyed)["order"].found
