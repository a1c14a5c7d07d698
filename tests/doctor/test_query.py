"""Each note of a query becomes a finding with its cost and a remedy, and notes that cannot be trusted are told."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lakesink.checkpoint.query_facts import (
    MOST_BYTES,
    QUERY_FACTS,
    Functions,
    QueryFacts,
    Replay,
    Source,
    parse_query_facts,
)
from lakesink_tools.checks.doctor.finding import Finding, Standing
from lakesink_tools.checks.doctor.query import check_query
from lakesink_tools.cli.main import main

KAFKA = Source("kafka", Replay.YES)
WELL = QueryFacts("0.1.0", "q1", "events", "demo.events", (KAFKA,), Functions(), "append", False, "file", "")  # noqa: FBT003 - as noted
ABORTABLE = "AbortableStreamBasedCheckpointFileManager"


def noted(folder: Path, notes: bytes | None, query: str = "q1") -> str:
    (folder / "checkpoint/lakesink").mkdir(parents=True)
    (folder / "checkpoint/metadata").write_text(json.dumps({"id": query}))
    if notes is not None:
        (folder / "checkpoint" / QUERY_FACTS).write_bytes(notes)
    return str(folder / "checkpoint")


def looked(root: str) -> dict[str, Finding]:
    return {finding.check: finding for finding in check_query(root)}


def test_a_query_that_nothing_weakens_is_well_in_every_point(tmp_path: Path) -> None:
    found = looked(noted(tmp_path, WELL.to_bytes()))
    assert {finding.standing for finding in found.values()} == {Standing.OK}
    assert found["guarantee"].found == "exactly once (kafka)"
    assert found["isolation"].found.startswith("read_committed")


@pytest.mark.parametrize(
    ("change", "check", "standing", "words"),
    [
        ({"sources": (replace(KAFKA, replay=Replay.MAY_LOSE),)}, "guarantee", Standing.WARNING, "failOnDataLoss"),
        ({"sources": (KAFKA, Source("socket", Replay.NO))}, "guarantee", Standing.FAILED, "at most once"),
        ({"sources": (Source("kinesis", Replay.UNKNOWN),)}, "guarantee", Standing.WARNING, "(kinesis)"),
        ({"output_mode": "update"}, "output mode", Standing.OK, "update: a later batch emits a changed result again"),
        ({"sources": ()}, "guarantee", Standing.WARNING, "no source is known"),
        ({"sources": (replace(KAFKA, uncommitted=True),)}, "isolation", Standing.WARNING, "aborted transactions"),
        ({"sources": (Source("FileSource", Replay.YES, lenient=True),)}, "texts", Standing.WARNING, "becomes NULL"),
        (
            {"functions": Functions(unstable=("rand", "uuid"))},
            "expressions",
            Standing.WARNING,
            "Not deterministic: rand, uuid. ",
        ),
        ({"functions": Functions(trusted=("price",))}, "functions", Standing.OK, "deterministic: price"),
        ({"speculation": True}, "speculation", Standing.WARNING, "only one of the two counts"),
        ({"scheme": "s3a"}, "atomic create", Standing.WARNING, "second driver"),
        ({"scheme": "s3a", "file_manager": ABORTABLE}, "atomic create", Standing.OK, "created in one step"),
    ],
)
def test_what_weakens_a_query_is_told_with_its_cost_and_a_remedy(
    tmp_path: Path, change: dict[str, Any], check: str, standing: Standing, words: str
) -> None:
    finding = looked(noted(tmp_path, replace(WELL, **change).to_bytes()))[check]
    assert finding.standing is standing
    assert words in finding.found
    assert finding.fix or standing is Standing.OK


def versioned(told: dict[str, Any]) -> dict[str, Any]:
    return {**told, "version": 2}


def foreign(told: dict[str, Any]) -> dict[str, Any]:
    return {**told, "query_id": "another"}


def cut(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name != "sources"}


def lying(told: dict[str, Any]) -> dict[str, Any]:
    return {**told, "output_mode": ["append"]}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [(versioned, "version 2"), (foreign, "another"), (cut, "damaged"), (lying, "a wrong type"), (list, "damaged")],
)
def test_notes_that_cannot_be_trusted_are_told(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], Any], words: str
) -> None:
    spoilt = json.dumps(spoil(json.loads(WELL.to_bytes()))).encode()
    found = looked(noted(tmp_path, spoilt))
    assert found.keys() == {"notes"}
    assert found["notes"].standing is Standing.FAILED
    assert words in found["notes"].found


@pytest.mark.parametrize("torn", [b"", b"{", b"\xff", WELL.to_bytes() + b" " * MOST_BYTES])
def test_torn_notes_are_told(tmp_path: Path, torn: bytes) -> None:
    assert looked(noted(tmp_path, torn))["notes"].standing is Standing.FAILED


@pytest.mark.parametrize(
    ("offset", "standing", "kind"),
    [
        ({"logOffset": 3}, Standing.OK, "files"),
        ({"orders": {"0": 17, "1": 4}}, Standing.OK, "kafka"),
        ({"handed_out": 3}, Standing.WARNING, "of an unknown kind"),
        (7, Standing.WARNING, "of an unknown kind"),
        ({"orders": {}}, Standing.WARNING, "of an unknown kind"),
    ],
)
def test_of_a_query_without_notes_its_checkpoint_tells_the_kind_of_its_source(
    tmp_path: Path, offset: Any, standing: Standing, kind: str
) -> None:
    root = Path(noted(tmp_path, None))
    (root / "offsets").mkdir()
    (root / "offsets/4").write_text(f"v1\n{{}}\n{json.dumps(offset)}\n")
    found = looked(str(root))
    assert (found["notes"].standing, found["untold"].standing) == (Standing.SKIPPED, Standing.SKIPPED)
    assert found["guarantee"].standing is standing
    assert found["guarantee"].found.startswith(f"sources by their offsets: {kind}")


def test_a_query_without_notes_and_without_a_batch_is_told(tmp_path: Path) -> None:
    [finding] = check_query(noted(tmp_path, None))
    assert finding.standing is Standing.FAILED
    assert "it has no offsets" in finding.found


def test_what_is_no_checkpoint_is_told(tmp_path: Path) -> None:
    [finding] = check_query(str(tmp_path))
    assert "[LAKESINK_CHECKPOINT_UNREADABLE]" in finding.found


def test_notes_come_back_as_they_were() -> None:
    notes = replace(WELL, functions=Functions(("rand",), ("price",)), speculation=True)
    assert parse_query_facts(notes.to_bytes()) == notes


def test_the_command_tells_the_cell_and_its_exit_code_says_whether_it_can_be_kept(tmp_path: Path) -> None:
    lossy = replace(WELL, sources=(Source("socket", Replay.NO),))
    for name, notes, exit_code in (("well", WELL, 0), ("lossy", lossy, 1)):
        root = noted(tmp_path / name, notes.to_bytes())
        result = CliRunner().invoke(main, ["doctor", "--query", root, "--output", "json"])
        assert result.exit_code == exit_code, result.output
        document = json.loads(result.stdout)
        assert document["well"] is (exit_code == 0)
        assert {check["part"] for check in document["checks"]} == {"query"}
    shown = CliRunner().invoke(main, ["doctor", "--query", root]).stdout
    assert "at most once: the source cannot give a batch again (socket)" in shown
    assert shown.splitlines()[-1] == "Next: correct the findings, start the query, and check again"


def test_the_command_looks_at_one_query_alone(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "demo.events", "--query", noted(tmp_path, WELL.to_bytes())])
    assert result.exit_code == 2
    assert result.output.startswith("[LAKESINK_OPTION_INVALID] ")
    assert "Leave out TABLE" in result.output
