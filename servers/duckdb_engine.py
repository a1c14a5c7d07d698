"""DuckDB with its Iceberg extension, in a Python environment of its own: lakesink's own one has a DuckDB without.

Extensions come from pip and lie as DuckDB's ``INSTALL`` would have left them, so that ``INSTALL`` finds them there and
asks nobody.
"""

import hashlib
import json
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from servers.jars import ROOT
from servers.missing import Missing
from servers.once import made_once

FOLDER = ROOT / ".tools" / "duckdb"
REQUIREMENTS = ROOT / "requirements" / "duckdb.txt"
EXTENSIONS = ("httpfs", "avro", "iceberg")
LONGEST_SECONDS = 600

_PLACE_EXTENSIONS = """
import importlib.util, pathlib, shutil, sys, duckdb
find = "SELECT library_version, platform FROM pragma_version(), pragma_platform()"
version, platform = duckdb.execute(find).fetchone()
place = pathlib.Path(sys.argv[1], version, platform)
place.mkdir(parents=True)
for name in sys.argv[2:]:
    package = pathlib.Path(importlib.util.find_spec(f"duckdb_extension_{name}").origin).parent
    [file] = package.rglob("*.duckdb_extension")
    shutil.copy(file, place)
"""
_RUN = """
import json, sys, duckdb
asked = json.load(sys.stdin)
connection = duckdb.connect(config={"extension_directory": asked["extensions"]})
connection.execute("SET TimeZone = 'UTC'")
*before, query = asked["statements"]
try:
    for statement in before:
        connection.execute(statement)
    connection.execute(f"COPY ({query}) TO '{asked['to']}' (FORMAT parquet, DICTIONARY_SIZE_LIMIT 1)")
except duckdb.Error as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


class DuckDBMissing(Missing):
    """DuckDB cannot be had on this machine, in one sentence with what to do."""


class DuckDBFailed(Exception):
    """DuckDB refused or failed; its own words."""


@dataclass(frozen=True, slots=True)
class DuckDB:
    """DuckDB in an environment of its own. Use `installed`.

    Attributes:
        home: The environment.
    """

    home: Path

    def sql(self, *statements: str) -> pa.Table:
        """Run statements one after another in a new database, times in UTC.

        Args:
            statements: The last one is a query; without semicolons.

        Raises:
            DuckDBFailed: DuckDB's error.
        """
        call = [str(self.home / "bin" / "python"), "-c", _RUN]
        with TemporaryDirectory(prefix="lakesink-duckdb-") as folder:
            place = f"{folder}/answer.parquet"
            asked = {"extensions": str(self.home / "extensions"), "statements": statements, "to": place}
            done = subprocess.run(
                call, input=json.dumps(asked), capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
            )
            if done.returncode:
                raise DuckDBFailed(done.stderr[-2000:].strip())
            found: pa.Table = pq.read_table(place)
            return found


def installed() -> DuckDB:
    """DuckDB, installed if this version is not here yet. Several processes may ask at once.

    Raises:
        DuckDBMissing: pip cannot install it.
    """
    home = FOLDER / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    return DuckDB(made_once(home, _install))


def _install(home: Path) -> None:
    venv.create(home, with_pip=True)
    # Only its Python is called: programs such as pip bear the name of the folder, which changes.
    python = str(home / "bin" / "python")
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--require-hashes"]
    for call in ([*pip, "-r", str(REQUIREMENTS)], ["-c", _PLACE_EXTENSIONS, str(home / "extensions"), *EXTENSIONS]):
        done = subprocess.run([python, *call], capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
        if done.returncode:
            raise DuckDBMissing(
                f"DuckDB with its Iceberg extension cannot be installed for {sys.version.split()[0]};"
                f" run it again when the registry answers. {done.stderr[-2000:]}"
            )
