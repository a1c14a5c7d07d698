"""Finds a Chromium: one that is installed, else the one of an npm package, which needs no root."""

import platform
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from website.npm import node, packages

INSTALLED = ("chromium", "chromium-browser", "google-chrome", "chrome")
_INFLATE = (
    "const {readFileSync, writeFileSync} = require('fs'), {brotliDecompressSync} = require('zlib');"
    "for (const [from, to] of Object.entries(JSON.parse(process.argv[1])))"
    " writeFileSync(to, brotliDecompressSync(readFileSync(from)));"
)
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{folder}/fonts</dir>
  <cachedir>{folder}/cache</cachedir>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""


class NoBrowser(Exception):
    """This machine has no Chromium, and no package has one for it."""


@dataclass(frozen=True, slots=True)
class Browser:
    """A Chromium and the variables that it needs."""

    program: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def browser(folder: Path) -> Browser:
    """The browser of this machine, or one that is unpacked into the folder."""
    for name in INSTALLED:
        if found := shutil.which(name):
            return Browser(Path(found))
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise NoBrowser("Chromium is not on the path. Debian, Ubuntu: apt-get install chromium")
    program, modules = folder / "chromium", packages(folder / "npm", browser=True)
    if not program.exists() or program.stat().st_mtime < modules.stat().st_mtime:
        _unpack(modules, folder)
    fonts = {"FONTCONFIG_FILE": str(folder / "fonts.conf")}
    return Browser(program, {**fonts, "LD_LIBRARY_PATH": str(folder / "lib")})


def _unpack(modules: Path, folder: Path) -> None:
    """The program comes last: if it is there, all of it is."""
    compressed = modules / "@sparticuz/chromium/bin"
    for name in ("al2023", "fonts", "swiftshader"):
        archive = folder / f"{name}.tar"
        _inflate(compressed / f"{name}.tar.br", archive)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        archive.unlink()
    shutil.copytree(modules / "dejavu-fonts-ttf/ttf", folder / "fonts/dejavu", dirs_exist_ok=True)
    (folder / "fonts.conf").write_text(_FONTS.format(folder=folder))
    unpacked = folder / "chromium.part"
    _inflate(compressed / "chromium.br", unpacked)
    unpacked.chmod(0o755)
    unpacked.rename(folder / "chromium")


def _inflate(source: Path, target: Path) -> None:
    node("-e", _INFLATE, f'{{"{source}": "{target}"}}')
