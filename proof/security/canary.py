"""One secret in every place that a user may put one into, looked for in everything that can be seen afterwards."""

import json
import os
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from proof.security.places import PLACES, canary, configuration, environment, given
from servers.ports import free_port

LONGEST_RUN_SECONDS = 300
WITHOUT_SPARK = ("commands", "errors", "log", "pickles", "receipts", "reprs", "trace")
WITH_SPARK = (*WITHOUT_SPARK, "events", "plans", "query errors")


@dataclass(frozen=True, slots=True)
class CanaryFigures:
    """What was planted, where it was looked for, and where it was found.

    Attributes:
        places: Places that a secret was put into.
        outputs: Bytes that were looked through, by kind of output.
        leaks: Place and output of each secret that was seen.
        unnamed: Errors that were none of lakesink's own.
    """

    places: int
    outputs: Mapping[str, int]
    leaks: tuple[str, ...]
    unnamed: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def plant_and_look(seed: int, *, spark: bool) -> CanaryFigures:
    """Run the driver with secrets in every place, and look through all that it left and said.

    Args:
        seed: The secrets are made of it.
        spark: True to run real queries too: plans, event logs and Spark's own errors.
    """
    secrets = {place: canary(place, seed) for place in PLACES}
    with tempfile.TemporaryDirectory(prefix="lakesink-canary-") as name:
        folder = Path(name)
        (folder / "warehouse").mkdir()
        said, arguments = _drive(folder, secrets, spark=spark)
        unnamed = tuple(json.loads((folder / "unnamed.json").read_text()))
        outputs = {"said": said, "arguments": arguments, **dict(_outputs(folder, spark=spark))}
    sizes = {kind: len(data) for kind, data in outputs.items()}
    return CanaryFigures(len(secrets), sizes, tuple(leaks_in(outputs, secrets)), unnamed)


def leaks_in(outputs: Mapping[str, bytes], secrets: Mapping[str, str]) -> Iterator[str]:
    """Each place whose secret can be seen in an output, in whatever form."""
    for kind, data in outputs.items():
        for place, secret in secrets.items():
            if any(form in data for form in _forms(secret)):
                yield f"{place} in {kind}"


def _drive(folder: Path, secrets: Mapping[str, str], *, spark: bool) -> tuple[bytes, bytes]:
    """What the driver said on its streams, and the arguments that every user of the machine could see meanwhile."""
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
    (folder / ".pyiceberg.yaml").write_text(configuration(secrets, uri, warehouse))
    (folder / "given.json").write_text(json.dumps(given(secrets, free_port())))
    variables = {**os.environ, **environment(secrets), "PYICEBERG_HOME": str(folder), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "proof.security.canary_driver", str(folder), *(["spark"] if spark else [])]
    with (folder / "said").open("w+b") as said:
        driver = subprocess.Popen(command, env=variables, stdout=said, stderr=subprocess.STDOUT)
        arguments = b""
        try:
            for _ in range(LONGEST_RUN_SECONDS * 2):
                arguments += b"".join(_arguments_of(driver.pid))
                try:
                    driver.wait(timeout=0.5)
                    break
                except subprocess.TimeoutExpired:
                    continue
        finally:
            driver.kill()
        said.seek(0)
        text = said.read()
    assert driver.returncode == 0, text.decode(errors="replace")[-2_000:]
    return text, arguments


def _arguments_of(pid: int) -> Iterator[bytes]:
    """Arguments of a process and of all that descend from it."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with _gone():
            parents.setdefault(int(status.read_text().rpartition(")")[2].split()[1]), []).append(
                int(status.parent.name)
            )
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        waiting += parents.get(process, [])
        with _gone():
            yield Path(f"/proc/{process}/cmdline").read_bytes()


@contextmanager
def _gone() -> Iterator[None]:
    """Processes end while one looks at them."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        return


def _outputs(folder: Path, *, spark: bool) -> Iterator[tuple[str, bytes]]:
    for kind in WITH_SPARK if spark else WITHOUT_SPARK:
        path = folder / "seen" / kind
        data = path.read_bytes() if path.is_file() else b"".join(_files(path))
        assert data, f"nothing was kept of {kind}"
        yield kind, data
    yield "table", b"".join(_files(folder / "warehouse"))
    yield "catalog database", (folder / "catalog.db").read_bytes()
    yield "checkpoints", b"".join(_files(folder / "checkpoints"))


def _files(folder: Path) -> Iterator[bytes]:
    return (path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def _forms(secret: str) -> Iterator[bytes]:
    """As it is, backwards, in hexadecimal, and in Base64 wherever it begins."""
    plain = secret.encode()
    yield from (plain, plain[::-1], plain.hex().encode(), plain.decode().encode("utf-16-le"))
    for shift in range(3):
        yield b64encode(b"\0" * shift + plain)[4:-4]
