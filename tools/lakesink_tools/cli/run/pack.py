"""The command ``pack``: an archive of lakesink and of what its tasks import, from the files that are installed here.

So driver and executors cannot have different versions. PySpark is left out, for a cluster brings its own, and so is
what only a driver needs: drivers of databases, tests.
"""

import importlib.util
import re
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from itertools import chain
from pathlib import Path, PurePosixPath

from lakesink_catalog.words import counted, size
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import describe
from lakesink_tools.cli.output import Report, progress

FOLDER = "lakesink-packed"
"""The name under which the recipes have Spark unpack it."""

ENDING = ".tar.gz"
_OWN = ("lakesink", "lakesink_catalog", "lakesink_protocol", "lakesink_tools")
_ROOT = "lakesink"
_OF_EXTRAS = ("s3fs", "gcsfs", "adlfs", "duckdb", "numpy")
_LEFT_OUT = frozenset({"pyspark", "py4j"})
_NEEDLESS = frozenset({"__pycache__", "tests", "include"})
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_LEVEL = 1  # libraries that are compiled hardly get smaller, only later


def pack(*, file: Path) -> Report:
    """Exit code 2: FILE is there already, cannot be written, or something is not installed."""
    with progress() as say:
        say("packing")
        packages = make(file)
    size_bytes, shown = file.stat().st_size, str(file)
    python, platform = f"{sys.version_info.major}.{sys.version_info.minor}", sysconfig.get_platform()
    options = f"--archives {shown}#{FOLDER} --conf spark.executorEnv.PYTHONPATH={FOLDER}"
    return Report(
        document={"file": str(file), "bytes": size_bytes, "python": python, "platform": platform, "packages": packages},
        title=f"{shown}: {counted(len(packages), 'package')}, {size(size_bytes)}",
        hints=[
            f"For executors with Python {python} on {platform}; the Python itself is not in it.",
            f"Next: spark-submit {options} ...",
        ],
    )


def make(archive: Path) -> dict[str, str]:
    """Make the archive, which is whole when it is there; returns the versions of its packages by name."""
    if not archive.name.endswith(ENDING):
        raise _cannot(f"{archive.name!r} does not end in {ENDING}, by which Spark knows how to unpack it")
    if archive.exists():
        raise _cannot(f"{archive.name!r} is there already")
    found = closure()
    staged = archive.with_name(f".{archive.name}.part")
    try:
        with staged.open("xb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=_LEVEL) as tar:
            for name, path in files(found):
                tar.add(path, arcname=name, recursive=False)
        archive.hardlink_to(staged)
    except OSError as error:
        raise _cannot(describe(error)) from error
    finally:
        staged.unlink(missing_ok=True)
    return {name: one.version for name, one in sorted(found.items())}


def closure() -> dict[str, Distribution]:
    """Lakesink and all that is installed because of it, by name; of its extras, those for storage and to decode."""
    found: dict[str, Distribution] = {}
    missing = [_ROOT, *_OF_EXTRAS]
    while missing:
        name = re.sub(r"[-_.]+", "-", missing.pop()).lower()
        if name in found or name in _LEFT_OUT:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform, or an extra that nobody asked for
        for requirement in found[name].requires or []:
            text, _, marker = requirement.partition(";")
            named = _NAME.match(text)
            if named and "extra" not in marker:
                missing.append(named[0])
    if _ROOT not in found:
        raise _cannot("lakesink itself is not installed as a package in this Python")
    return found


def files(found: Mapping[str, Distribution]) -> Iterator[tuple[str, Path]]:
    """Every file of these packages: its name in the archive, and where it is."""
    for package in _OWN:  # looked for where Python finds it: an installation for development lists none of its files
        place = importlib.util.find_spec(package)
        assert place is not None
        assert place.origin is not None
        folder = Path(place.origin).parent
        for path in sorted(folder.rglob("*")):
            below = path.relative_to(folder)
            if path.is_file() and not _NEEDLESS & set(below.parts):
                yield f"{package}/{below.as_posix()}", path
    others = (one.files or [] for name, one in found.items() if name != _ROOT)
    for file in chain.from_iterable(others):
        inside = PurePosixPath(file)
        if ".." in inside.parts or _NEEDLESS & set(inside.parts):
            continue
        if (path := Path(str(file.locate()))).is_file():
            yield str(inside), path


def _cannot(why: str) -> SettingsError:
    return SettingsError.of("CANNOT_PACK", why=why)
