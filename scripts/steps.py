"""Runs the steps of `steps.toml`, each within its budget: `python3 scripts/steps.py landing`, or `nightly`.

Names of steps after it run these alone. Standard library only, for the first step installs what the others need.
"""

import ctypes
import fcntl
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORD = HERE / "steps.json"
"""When each step passed last, and on which files. It is committed, so that a run goes on where another one ended."""
OVERDUE, OLDEST = timedelta(days=5), timedelta(days=7)
"""Slices of the first age take turns before all others; one of the second ends a landing before it starts."""
OF_MAKE = {
    *("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES"),
    *("ARGS", "SHORT", "SLICE", "PAGES", "VERSIONS", "HOURS", "PYTEST_ADDOPTS"),
}
"""Variables that would make a step do less than it is recorded for."""
SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of Linux: processes whose parent has died become ours, and so does their processor time."""
HUNG = 124
"""Exit code of `timeout`."""

Record = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Step:
    """One command and its budget: CPU seconds of all its processes, and minutes after which it hangs."""

    name: str
    command: str
    cpu: int
    minutes: int
    beside: bool = False


def main() -> None:
    os.chdir(HERE.parent)
    run, only = sys.argv[1], sys.argv[2:]
    record: Record = json.loads(RECORD.read_text())
    tables = tomllib.loads((HERE / "steps.toml").read_text())[run]
    whole = run == "nightly"
    steps = [step for table in tables for step in steps_of(table, record, whole=whole) if not only or step.name in only]
    if not steps:
        sys.exit(f"No step of {run} is called {only[0]!r}: {', '.join(table['name'] for table in tables)}.")
    if not whole:
        check_ages(tables, record)
    started = time.monotonic()
    well = in_lanes(steps, lambda step: passes(run, step))
    ended = "All passed in" if well else "Failed, see FAILED, HUNG or OVER ITS BUDGET above; after"
    print(f"\n{ended} {(time.monotonic() - started) / 60:.0f} minutes.")
    sys.exit(not well)


def in_lanes(steps: list[Step], passes: Callable[[Step], bool]) -> bool:
    """Run the first step, then those that go beside others in a lane of their own, whose output comes at the end.

    Most steps leave a core idle for a part of their time. A lane is a process: its children's CPU seconds are its own.
    """
    if not one_lane(steps[:1], passes):
        return False
    beside, others = ([step for step in steps[1:] if step.beside == is_beside] for is_beside in (True, False))
    with tempfile.TemporaryFile() as told:
        lanes = [start_lane(others, passes), start_lane(beside, passes, told.fileno())]
        ended = [os.waitpid(lane, 0)[1] for lane in lanes]
        if told.seek(0, os.SEEK_END):
            print("\n==== Steps that went beside those above ====", flush=True)
            told.seek(0)
            shutil.copyfileobj(told, sys.stdout.buffer)
            sys.stdout.flush()
    return not any(ended)


def start_lane(steps: list[Step], passes: Callable[[Step], bool], output: int | None = None) -> int:
    """The process that runs them."""
    if pid := os.fork():
        return pid
    if output is not None:
        os.dup2(output, sys.stdout.fileno())
        os.dup2(output, sys.stderr.fileno())
    os._exit(not one_lane(steps, passes))


def one_lane(steps: list[Step], passes: Callable[[Step], bool]) -> bool:
    """A step that fails does not hide what the others would say."""
    passed = [passes(step) for step in steps]
    return all(passed)


def passes(run: str, step: Step) -> bool:
    """Run a step and record that it has passed; one of a night is not run again on the same files."""
    key, files = f"{run}: {step.name}", committed_files()
    known = json.loads(RECORD.read_text()).get(key, {})
    if run == "nightly" and files and known.get("files") == files:
        print(f"== {step.name}: passed on these files on {known['at']} ==", flush=True)
    elif (cpu := run_within(step)) is None:
        return False
    elif files and files == committed_files():
        at = datetime.now(UTC).isoformat(timespec="minutes")
        keep(key, {"at": at, "cpu": round(cpu), "files": files})
    else:
        print("   not recorded: files are not committed, or have changed meanwhile", flush=True)
    return True


def keep(key: str, passed: dict[str, Any]) -> None:
    with RECORD.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        told = json.dumps({**json.load(file), key: passed}, indent=2, sort_keys=True) + "\n"
        file.seek(0)
        file.write(told)
        file.truncate()


def steps_of(table: dict[str, Any], record: Record, *, whole: bool) -> Iterator[Step]:
    """The step of a table; of one with slices all of them, or the one whose turn it is by the commit."""
    slices, turn = table.get("slices", 1), int(git("rev-parse", "HEAD")[:8], 16)
    numbers = range(1, slices + 1)
    overdue = [number for number in numbers if age(slice_name(table, number), record) > OVERDUE]
    waiting = overdue or numbers
    for number in numbers if whole else [waiting[turn % len(waiting)]]:
        command = table["command"].format(slice=f"{number}/{slices}", turn=turn)
        yield Step(slice_name(table, number), command, table["cpu"], table["minutes"], table.get("beside", False))


def slice_name(table: dict[str, Any], number: int) -> str:
    return f"{table['name']} {number}/{table['slices']}" if "slices" in table else str(table["name"])


def check_ages(tables: list[dict[str, Any]], record: Record) -> None:
    """A slice that no run has seen for long must not stay unseen."""
    sliced = [table for table in tables if "slices" in table]
    names = [slice_name(table, number) for table in sliced for number in range(1, table["slices"] + 1)]
    oldest = max(names, key=lambda name: age(name, record))
    told = f"The oldest slice, {oldest}, passed {age(oldest, record).days} days before this commit."
    print(told, flush=True)
    if age(oldest, record) > OLDEST:
        run = f"python3 {Path(__file__).relative_to(Path.cwd())} nightly '{oldest}'"
        sys.exit(f"Run `{run}`, and commit {RECORD.relative_to(Path.cwd())}.")


def age(name: str, record: Record) -> timedelta:
    """Of the last time that a slice passed, whole or short, seen from the commit."""
    at = [datetime.fromisoformat(one["at"]) for key, one in record.items() if key.partition(": ")[2] == name]
    committed = datetime.fromisoformat(git("log", "-1", "--format=%cI"))
    return committed - max(at, default=datetime.min.replace(tzinfo=UTC))


def run_within(step: Step) -> float | None:
    """CPU seconds of the step, or None if it failed or took more than it may."""
    print(f"\n== {step.name}: {step.command} ==", flush=True)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    before, started = _children_cpu(), time.monotonic()
    limited = ["timeout", "--kill-after=60", f"{step.minutes}m", *shlex.split(step.command)]
    environment = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    process = subprocess.Popen(limited, env=environment, stdin=subprocess.DEVNULL)
    try:
        code = process.returncode = _code_of(process.pid)
    finally:
        process.terminate()  # does nothing once it has ended; `timeout` passes it on
        left = _end_orphans()
    cpu, minutes = _children_cpu() - before, (time.monotonic() - started) / 60
    spent = f"{cpu:,.0f} of {step.cpu:,} CPU seconds, {minutes:.1f} of {step.minutes} minutes"
    if left:
        print(f"   ended {left} processes that the step had left behind", flush=True)
    if code:
        how = "HUNG" if code == HUNG else f"FAILED with exit code {code}"
        print(f"== {step.name} {how}: {spent} ==", flush=True)
    elif cpu > step.cpu:
        print(f"== {step.name} is OVER ITS BUDGET: {spent}. Make it cheaper, or see scripts/steps.toml ==", flush=True)
    else:
        print(f"== {step.name}: {spent} ==", flush=True)
        return cpu
    return None


def _code_of(pid: int) -> int:
    """Wait for the command, and for every orphan of it that ends meanwhile."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def _end_orphans() -> int:
    """End what the step has left: its processor time is the step's, and nothing runs beside the next one."""
    ended = 0
    with suppress(ChildProcessError):  # no child is left
        while True:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
            for child in children:
                os.kill(int(child), signal.SIGKILL)
                os.waitpid(int(child), 0)
            ended += len(children)
    return ended


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def committed_files() -> str:
    """All files but the record, in a few letters; nothing if some are not committed."""
    record = str(RECORD.relative_to(HERE.parent))
    if git("status", "--porcelain", "--", ".", f":!{record}"):
        return ""
    listed = git("ls-tree", "-r", "HEAD").splitlines()
    others = "\n".join(line for line in listed if not line.endswith(f"\t{record}"))
    return sha256(others.encode()).hexdigest()[:16]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
