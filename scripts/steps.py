"""Runs the steps of `steps.toml`, each within its budget: `python3 scripts/steps.py landing`, or `nightly`.

Standard library only, for the first step installs what the others need.
"""

import ctypes
import json
import os
import resource
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORD = HERE / "steps.json"
"""When each step passed last, and on which files. It is committed, so that a run goes on where another one ended."""
OVERDUE, OLDEST = timedelta(days=5), timedelta(days=7)
"""A slice of a landing is the next one from the first age on; the second one ends a landing before it starts."""
SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of Linux: processes whose parent was killed become ours, and so does their processor time."""

Record = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Step:
    """One command and its budget: CPU seconds of all its processes, and minutes after which it hangs."""

    name: str
    command: str
    cpu: int
    minutes: int


def main() -> None:
    run = sys.argv[1]
    os.chdir(HERE.parent)
    record: Record = json.loads(RECORD.read_text())
    tables = tomllib.loads((HERE / "steps.toml").read_text())[run]
    everything = run == "nightly"
    if not everything:
        check_ages(tables, record)
    started, failed = time.monotonic(), []
    for step in [step for table in tables for step in steps_of(table, record, everything=everything)]:
        passed_before = record.get(f"{run}: {step.name}", {})
        if everything and passed_before.get("files") == committed_files():
            print(f"== {step.name}: passed on these files on {passed_before['at']} ==", flush=True)
        elif (cpu := run_within(step)) is not None:
            keep(record, f"{run}: {step.name}", cpu)
        else:
            failed.append(step.name)
            if not everything:
                break
    minutes = round((time.monotonic() - started) / 60)
    print(
        f"\nFailed after {minutes} minutes: {', '.join(failed)}." if failed else f"\nAll passed in {minutes} minutes."
    )
    sys.exit(bool(failed))


def steps_of(table: dict[str, Any], record: Record, *, everything: bool) -> Iterator[Step]:
    """The step of a table; of one with slices the slice whose turn it is, or all of them."""
    slices = table.get("slices", 1)
    turn = int(git("rev-parse", "HEAD")[:8], 16)
    ages = {number: age(f"{table['name']} {number}/{slices}", record) for number in range(1, slices + 1)}
    oldest = max(ages, key=lambda number: ages[number])
    chosen = ages if everything else [oldest if ages[oldest] > OVERDUE else turn % slices + 1]
    for number in chosen:
        part = f"{number}/{slices}"
        command = table["command"].format(slice=part, turn=turn)
        name = table["name"] + (f" {part}" if slices > 1 else "")
        yield Step(name, command, table["cpu"], table["minutes"])


def check_ages(tables: list[dict[str, Any]], record: Record) -> None:
    """A slice that no run has seen for long must not stay unseen."""
    slices = [
        f"{table['name']} {number}/{table['slices']}"
        for table in tables
        if "slices" in table
        for number in range(1, table["slices"] + 1)
    ]
    oldest = max(slices, key=lambda name: age(name, record))
    told = f"The oldest slice is {oldest}: it passed {age(oldest, record).days} days before this commit."
    print(told, flush=True)
    if age(oldest, record) > OLDEST:
        sys.exit(f"Run `make nightly`, or its command for this slice, and commit {RECORD.relative_to(HERE.parent)}.")


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
    process = subprocess.Popen(limited)
    code = process.returncode = _code_of(process.pid)
    cpu, minutes = _children_cpu() - before, (time.monotonic() - started) / 60
    spent = f"{cpu:,.0f} of {step.cpu:,} CPU seconds, {minutes:.1f} of {step.minutes} minutes"
    if code:
        print(f"== {step.name} FAILED with exit code {code}: {spent} ==", flush=True)
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


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def keep(record: Record, key: str, cpu: float) -> None:
    """Only what was committed can be told apart from other files."""
    if git("status", "--porcelain", "--", ".", f":!{RECORD.relative_to(HERE.parent)}"):
        return
    at = datetime.now(UTC).isoformat(timespec="minutes")
    record[key] = {"at": at, "cpu": round(cpu), "files": committed_files()}
    RECORD.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")


def committed_files() -> str:
    """All files of the commit in a few letters, but for the record itself."""
    listed = git("ls-tree", "-r", "HEAD").splitlines()
    others = "\n".join(line for line in listed if not line.endswith(f"\t{RECORD.relative_to(HERE.parent)}"))
    return sha256(others.encode()).hexdigest()[:16]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
