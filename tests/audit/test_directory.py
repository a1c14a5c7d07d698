"""The commands that look at the directory of a sink of files: what they prove, and what they find."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lakesink.sinks.directory.marker import parse_marker
from lakesink_catalog.failpoints import VARIABLE, FailpointReached
from lakesink_protocol.identity import digest
from lakesink_tools.cli.main import main
from lakesink_tools.cli.output import ACCEPTED, NOT_CHECKED, NOT_WELL, OK
from testkit.directory import Stream


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    stream = Stream(tmp_path / "out")
    for number in range(4):
        stream.run(number, tasks=2, rows=0 if number == 2 else 3)
    return stream


def look(command: str, stream: Stream, *arguments: Any) -> tuple[int, dict[str, Any]]:
    result = invoke(command, stream.directory, *arguments, "--output", "json")
    document: dict[str, Any] = json.loads(result.stdout)
    return result.exit_code, document


def invoke(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


def codes(document: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in document["findings"]]


def rewrite(stream: Stream, number: int, **changed: Any) -> None:
    """Another marker in the place of one, and every later one made to follow it: a forger knows the digests."""
    previous: str | None = None
    for at in range(number, len(stream.markers())):
        path = stream.marker_path(at)
        document = json.loads(path.read_bytes()) | (changed if at == number else {})
        document["previous"] = document["previous"] if previous is None else previous
        del document["digest"]
        document["digest"] = previous = digest(document)
        path.write_bytes(json.dumps(document).encode())
        parse_marker(path.read_bytes(), at, stream.sink_id)


def test_a_sound_directory_is_clean_and_each_of_its_batches_is_shown(stream: Stream) -> None:
    code, audited = look("audit", stream)
    assert (code, audited["well"], audited["findings"]) == (OK, True, [])
    [sink] = audited["sinks"]
    assert (sink["sink"], sink["batch_id"], sink["batches"], sink["rows"], sink["files"]) == ("clicks", 3, 4, 18, 6)
    assert "4 batches, each there once" in invoke("audit", stream.directory).stdout
    code, status = look("status", stream)
    assert (code, status["sinks"][0]["standing"]) == (OK, "ok")
    code, log = look("log", stream, "--limit", 2)
    assert code == OK
    assert [(batch["batch_id"], batch["rows"], batch["offsets"]) for batch in log["batches"]] == [
        (2, 0, [3]),
        (3, 6, [4]),
    ]
    for command in ("status", "log"):
        assert "clicks" in invoke(command, stream.directory).stdout


def swap_out(stream: Stream) -> None:
    part = stream.part_files()[0]
    part.write_bytes(part.read_bytes() + b"x")


DAMAGES: dict[str, tuple[Callable[[Stream], object], str, str]] = {
    "a part is gone": (lambda stream: stream.part_files()[0].unlink(), "FILE_MISSING", "1 file not there"),
    "a part has another size": (swap_out, "FILE_SIZE", "instead of"),
    "an old marker is torn": (
        lambda stream: stream.marker_path(1).write_bytes(b"{"),
        "LEDGER_DAMAGED",
        "commit 1 is incomplete or not from lakesink. Sound commits before it: 1.",
    ),
    "the newest marker is lost": (
        lambda stream: stream.marker_path(3).unlink(),
        "LEDGER_DAMAGED",
        "commit 3 is missing. Sound commits before it: 3.",
    ),
    "all markers are lost": (
        lambda stream: shutil.rmtree(stream.root / "commits"),
        "LEDGER_DAMAGED",
        "commit 0 is missing. Sound commits before it: 0.",
    ),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_what_is_damaged_is_found_by_name(stream: Stream, how: str) -> None:
    damage, found, told = DAMAGES[how]
    damage(stream)
    code, document = look("audit", stream)
    assert (code, found in codes(document), document["well"]) == (NOT_WELL, True, False)
    assert told in document["findings"][codes(document).index(found)]["found"]
    text = invoke("audit", stream.directory).stdout
    assert f"[{found}]" in text
    assert "table" not in text
    if found == "LEDGER_DAMAGED":
        code, status = look("status", stream)
        assert (code, status["sinks"][0]["standing"]) == (NOT_WELL, "LedgerDamaged")


def test_a_batch_that_is_there_twice_is_found_whoever_accepted_it(stream: Stream) -> None:
    """As a word of an older lakesink could do it: the same query, batch and data in two commits."""
    stream.run(4)
    first = stream.markers()[1]
    same = {name: first[name] for name in ("batch_id", "fingerprint", "start", "end", "offsets")}
    parts = [part | {"path": part["path"].replace("clicks-4-", "clicks-1-")} for part in stream.markers()[4]["parts"]]
    for part in stream.part_files():
        if part.name.startswith("clicks-4-"):
            part.rename(part.with_name(part.name.replace("clicks-4-", "clicks-1-")))
    rewrite(stream, 4, **same, ledger_batch_id=3, outcome="accepted", accepted="Rewound:1:commit", parts=parts)
    code, document = look("audit", stream)
    assert (code, codes(document), document["well"]) == (ACCEPTED, ["BATCH_TWICE", "BATCH_ACCEPTED"], False)
    assert "1 (Rewound:1:commit)" in document["findings"][1]["found"]
    rewrite(stream, 4, outcome="committed", accepted="")
    code, document = look("audit", stream)
    assert (code, codes(document)) == (NOT_WELL, ["BATCH_TWICE"])


def test_a_file_that_two_commits_list_is_found(stream: Stream) -> None:
    stream.overrule(stream.batch(3, end=9))
    rewrite(stream, 4, **{name: stream.markers()[3][name] for name in ("parts", "rows", "bytes")})
    assert "FILE_ADDED_TWICE" in codes(look("audit", stream)[1])


def test_batches_that_are_missing_are_named_though_an_operator_accepted_that(stream: Stream) -> None:
    stream.overrule(7)
    code, document = look("audit", stream)
    assert (code, codes(document)) == (ACCEPTED, ["BATCH_ACCEPTED", "BATCH_GAP"])
    assert document["findings"][1]["items"] == ["4-6"]


def test_a_batch_that_an_operator_skipped_is_missing(stream: Stream) -> None:
    stream.overrule(stream.batch(3, end=9), "skip")
    stream.overrule(5, "skip")
    _, document = look("audit", stream)
    gaps = [finding["items"] for finding in document["findings"] if finding["code"] == "BATCH_GAP"]
    assert gaps == [["3", "5"], ["4"]]


def test_what_an_operator_accepted_is_in_the_headline_and_has_an_exit_code_of_its_own(stream: Stream) -> None:
    stream.overrule(stream.batch(3, end=9))
    result = invoke("audit", stream.directory)
    assert result.exit_code == ACCEPTED
    assert "not clean: an operator accepted 1 batch" in result.stdout.splitlines()[0]
    assert "BatchChanged:3" in result.stdout


def test_a_new_checkpoint_that_took_over_is_no_finding(stream: Stream) -> None:
    later = Stream(stream.directory, query="query-2")
    for number in range(2):
        later.run(later.batch(number, start=number + 4))
    assert look("audit", stream)[0] == OK


def test_what_is_on_its_way_is_a_note_and_no_finding(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "after-prepared@4=raise")
    with pytest.raises(FailpointReached):
        stream.run(4)
    monkeypatch.delenv(VARIABLE)
    code, document = look("audit", stream)
    assert (code, [note["name"] for note in document["notes"]]) == (OK, ["pending", "prepared"])


@pytest.mark.parametrize(("done", "code", "found"), [(4, OK, []), (6, NOT_WELL, ["CHECKPOINT_AHEAD"])])
def test_every_batch_that_spark_calls_done_has_to_be_there(
    stream: Stream, tmp_path: Path, done: int, code: int, found: list[str]
) -> None:
    for log in ("offsets", "commits"):
        (tmp_path / "ck" / log).mkdir(parents=True)
        for number in range(done):
            (tmp_path / "ck" / log / str(number)).write_text(f"v1\n{{}}\n{number + 1}")
    (tmp_path / "ck" / "metadata").write_text('{"id":"query-1"}')
    result, document = look("audit", stream, "--checkpoint", tmp_path / "ck")
    assert (result, codes(document)) == (code, found)


def test_a_last_batch_that_is_too_old_is_stale(stream: Stream) -> None:
    rewrite(stream, 3, committed_at=datetime.now(UTC).isoformat())
    assert look("status", stream, "--max-age", "1 h")[1]["sinks"][0]["standing"] == "ok"
    rewrite(stream, 3, committed_at="2020-01-01T00:00:00+00:00")
    code, document = look("status", stream, "--max-age", "1 h")
    assert (code, document["sinks"][0]["standing"]) == (NOT_WELL, "stale")
    for odd in ("yesterday", "2020-01-01T00:00:00"):
        rewrite(stream, 3, committed_at=odd)
        assert look("status", stream, "--max-age", "1 h")[0] == NOT_WELL
        assert look("log", stream)[0] == OK


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["audit", "./nowhere"], "LAKESINK_DIRECTORY_MISSING"),
        (["status", "./nowhere"], "LAKESINK_DIRECTORY_MISSING"),
        (["log", "OUT", "--sink", "click"], "LAKESINK_OPTION_INVALID"),
        (["log", "OUT", "--branch", "main"], "LAKESINK_OPTION_INVALID"),
        (["audit", "OUT", "--catalog", "lake"], "LAKESINK_OPTION_INVALID"),
    ],
)
def test_what_cannot_be_looked_at_is_told_by_name(stream: Stream, arguments: list[str], code: str) -> None:
    given = [str(stream.directory) if argument == "OUT" else argument for argument in arguments]
    result = invoke(*given, "--output", "json")
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (NOT_CHECKED, code)


def test_a_directory_without_a_slash_in_its_name_is_known_by_what_is_in_it(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stream.directory.parent)
    assert invoke("audit", "out").exit_code == OK


def test_status_names_a_batch_that_a_restart_will_publish(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "after-prepared@4=raise")
    with pytest.raises(FailpointReached):
        stream.run(4)
    monkeypatch.delenv(VARIABLE)
    assert look("status", stream)[1]["sinks"][0]["prepared"] == [4]
    assert "is prepared and not committed" in invoke("status", stream.directory).stdout
    stream.run(4)
    assert look("status", stream)[1]["sinks"][0]["prepared"] == []
