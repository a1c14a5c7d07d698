"""Runs spin: a model with switches in, what it explored and the way to an error out."""

import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("lakesink.pml")
INSTALLER = Path(__file__).parents[2] / "scripts" / "spin.sh"
DEEPEST = 100_000
Defines = Mapping[str, int]
"""What the preprocessor is told: names with their numbers."""


class CannotCheck(RuntimeError):
    """This machine cannot run spin; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use.

    Attributes:
        memory_mib: More ends the run, which is then not complete.
        seconds: The same.
    """

    memory_mib: int = 4000
    seconds: float = 900.0


@dataclass(frozen=True, slots=True)
class Exploration:
    """What spin has explored.

    Attributes:
        complete: All there is.
        states: Different states.
        depth: Steps of the longest way, those of atomic sequences included.
        seconds: Time it took, without building.
        memory_mib: Memory that it used.
        error: What was violated, as the model spells it; empty if nothing was.
        said: What the model printed on the way to the error.
        taken: Steps that drivers took, by number, if they were counted.
    """

    complete: bool
    states: int
    depth: int
    seconds: float
    memory_mib: float
    error: str = ""
    said: tuple[str, ...] = ()
    taken: frozenset[tuple[int, int, int]] = frozenset()


def find_spin() -> str:
    """Path of spin, installed if need be.

    Raises:
        CannotCheck: It cannot be had.
    """
    found = subprocess.run(["sh", str(INSTALLER)], capture_output=True, text=True, check=False)
    if found.returncode:
        raise CannotCheck(found.stderr.strip().removeprefix("lakesink: "))
    return found.stdout.strip()


def explore(
    spin: str, defines: Defines, *, shortest: bool = False, long: bool = False, limits: Limits | None = None
) -> Exploration:
    """Explore all that the model can do, or all up to the first error.

    Args:
        spin: Path of spin.
        defines: Configuration and switches.
        shortest: Breadth first, so that an error is reached by a shortest way.
        long: Worth a compiler that takes its time: 15 s instead of 1.5 s, for three times the speed.
        limits: What it may use.
    """
    given = Limits() if limits is None else limits
    kind = ["-O2" if long else "-O0", *_kind(defines, shortest=shortest)]
    # Scratch variables are no part of a state; spin cannot explore breadth first with such.
    options = _options({**defines, "hidden": ""} if shortest else defines)
    with tempfile.TemporaryDirectory(prefix="lakesink-model-") as folder:
        _build(spin, Path(folder), options, kind, given)
        started = time.monotonic()
        output = _run([f"{folder}/pan", f"-m{DEEPEST}", *_acceptance(defines)], folder, given.seconds)
        found = _parsed(output, time.monotonic() - started)
        if not found.error:
            return found
        told = _run([spin, "-T", "-t", *options, MODEL.name], folder, given.seconds)
        return _with_story(found, told)


def simulate(spin: str, defines: Defines, seed: int, steps: int = 20_000) -> tuple[str, ...]:
    """What the model prints on one way through it, taken by chance."""
    with tempfile.TemporaryDirectory(prefix="lakesink-model-") as folder:
        command = [spin, "-T", f"-n{seed}", f"-u{steps}", *_options(defines), str(MODEL)]
        return _lines(_run(command, folder, 60.0))


def _options(defines: Mapping[str, object]) -> list[str]:
    return [f"-D{name}={value}" for name, value in defines.items()]


def _kind(defines: Defines, *, shortest: bool) -> list[str]:
    if "LIVENESS" in defines:
        return ["-DNFAIR=3"]
    return ["-DSAFETY", "-DBFS"] if shortest else ["-DSAFETY"]


def _acceptance(defines: Defines) -> list[str]:
    """Cycles in which nothing good happens, of those in which each process that can act does (weak fairness)."""
    return ["-a", "-f"] if "LIVENESS" in defines else []


def _build(spin: str, folder: Path, options: Sequence[str], kind: Sequence[str], limits: Limits) -> None:
    (folder / MODEL.name).write_text(MODEL.read_text())
    _checked([spin, *options, "-a", MODEL.name], folder)
    bounds = ["-DCOLLAPSE", "-DVECTORSZ=2048", f"-DMEMLIM={limits.memory_mib}"]
    _checked(["gcc", "-w", *kind, *bounds, "-o", "pan", "pan.c"], folder)


def _checked(command: Sequence[str], folder: Path) -> None:
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if made.returncode:
        raise CannotCheck(f"{command[0]} failed: {(made.stdout + made.stderr).strip()[:500]}")


def _run(command: Sequence[str], folder: str, seconds: float) -> str:
    try:
        ran = subprocess.run(
            ["nice", "-n", "5", *command], cwd=folder, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired as expired:
        said = expired.stdout or b""
        return (said if isinstance(said, str) else said.decode()) + "\nSearch not completed"
    return ran.stdout + ran.stderr


def _parsed(output: str, seconds: float) -> Exploration:
    error = re.search(r"pan:\d+: (.*?) \(at depth", output)
    return Exploration(
        complete="Search not completed" not in output and "errors: 0" in output,
        states=int(_figure(r"(\S+) states, stored", output)),
        depth=int(_figure(r"depth reached (\d+)", output)),
        seconds=seconds,
        memory_mib=_figure(r"([\d.]+)\s+total actual memory usage", output),
        error="" if error is None else error.group(1),
        taken=frozenset(
            (int(before), int(event), int(after))
            for before, event, after in re.findall(r"^TAKEN (\d+) (\d+) (\d+)$", output, re.MULTILINE)
        ),
    )


def _figure(pattern: str, output: str) -> float:
    found = re.search(pattern, output)
    return float(found.group(1)) if found else 0.0


def _with_story(found: Exploration, told: str) -> Exploration:
    return Exploration(
        complete=False,
        states=found.states,
        depth=found.depth,
        seconds=found.seconds,
        memory_mib=found.memory_mib,
        error=found.error,
        said=_lines(told),
        taken=found.taken,
    )


def _lines(told: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in told.splitlines() if line.strip().startswith("@ "))
