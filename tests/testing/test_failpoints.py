"""What `LAKESINK_FAILPOINTS` says is done, at that place and batch; what it cannot mean is named, and nothing done."""

import ast
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lakesink.testing import FAILPOINTS, FailpointReached, reached
from lakesink_catalog.failpoints import ACTIONS, NAMES, VARIABLE
from lakesink_protocol.errors import SettingsError
from website.tables import actions_table, failpoints_table

ROOT = Path(__file__).parents[2]


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> "Arm":
    return Arm(monkeypatch)


class Arm:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def __call__(self, text: str) -> None:
        self.monkeypatch.setenv(VARIABLE, text)


@pytest.mark.parametrize(
    "text", ["", "  ", ",", "after-call@4=raise", "after-call@33=raise", "before-call=raise", "my.own=raise"]
)
def test_a_place_that_is_not_meant_is_passed_by(arm: Arm, text: str) -> None:
    arm(text)
    reached("after-call", 3)


@pytest.mark.parametrize("text", ["after-call=raise", "after-call@3=raise", "before-call@3=raise, after-call@3=raise"])
def test_a_place_that_is_meant_is_not(arm: Arm, text: str, caplog: pytest.LogCaptureFixture) -> None:
    arm(text)
    with pytest.raises(FailpointReached):
        reached("after-call", 3)
    assert "lakesink.failpoint.reached name=after-call batch=3 action=raise" in caplog.text


def test_a_sink_of_ones_own_has_places_of_its_own(arm: Arm) -> None:
    arm("mysink.after-insert@7=raise")
    with pytest.raises(FailpointReached):
        reached("mysink.after-insert", 7)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("after-comit=kill", "Did you mean 'after-commit'?"),
        ("nonsense=kill", "batch-start"),
        ("after-commit", "name[@batch]=action"),
        ("after-commit=kil", "Did you mean 'kill'?"),
        ("after-commit=", "no action"),
        ("after-commit=pause", "pause:PATH"),
        ("after-commit=pause:", "pause:PATH"),
        ("after-commit=kill:now", "Only pause"),
        ("after-commit@=kill", "id of a batch"),
        ("after-commit@last=kill", "id of a batch"),
        ("after-commit@-1=kill", "id of a batch"),
        ("after-commit@\u0663=kill", "id of a batch"),
        ("batch-start=raise,after-comit=kill", "Did you mean 'after-commit'?"),
        ("after-commit=kill\x1b[2J", "no action"),
        ("x" * 10_000, "name[@batch]=action"),
    ],
)
def test_what_it_cannot_mean_is_named_at_the_first_place(arm: Arm, text: str, says: str) -> None:
    arm(text)
    with pytest.raises(SettingsError) as refused:
        reached("batch-start", 0)
    assert refused.value.code == "LAKESINK_FAILPOINT_INVALID"
    assert says in refused.value.action
    assert len(str(refused.value).splitlines()[0]) < 200
    assert "\x1b" not in str(refused.value)


def test_a_pause_lasts_until_its_file_is_removed(arm: Arm, tmp_path: Path) -> None:
    flag = tmp_path / "here"
    arm(f"before-call@1=pause:{flag}")
    waiting = threading.Thread(target=reached, args=("before-call", 1))
    waiting.start()
    while not flag.exists():
        time.sleep(0.01)
    assert waiting.is_alive()
    flag.unlink()
    waiting.join(10)
    assert not waiting.is_alive()


PROGRAM = "from lakesink.testing import reached; reached('after-call', 2); print('on')"


def test_kill_is_sigkill(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | {VARIABLE: "after-call@2=kill"}, cwd=tmp_path, check=False
    )
    assert done.returncode == -signal.SIGKILL


def test_stop_is_sigstop_and_the_process_goes_on_when_it_is_told_to() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=os.environ | {VARIABLE: "after-call@2=stop"}, stdout=subprocess.PIPE
    ) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=60)[0] == b"on\n"


def test_every_place_in_the_code_is_in_the_table_and_every_name_in_the_table_is_a_place() -> None:
    sources = [
        path for folder in ("lakesink", "catalog", "protocol", "tools") for path in (ROOT / folder).rglob("*.py")
    ]
    calls = (node for path in sources for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    emitted = {ast.unparse(call.func).removeprefix("events.") for call in calls}
    assert {name for event, name in NAMES.items() if event.__name__ in emitted} == set(FAILPOINTS)


@pytest.mark.parametrize("table", [failpoints_table(), actions_table()], ids=["places", "actions"])
def test_the_documents_show_the_tables_of_the_code(table: str) -> None:
    assert table in (ROOT / "docs/reference/failpoints.md").read_text()


def test_every_action_is_one_that_can_be_done(arm: Arm) -> None:
    for action in ACTIONS:
        arm(f"before-call@1={action}")
        reached("after-call", 1)
