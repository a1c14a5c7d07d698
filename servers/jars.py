"""Java programs that run beside lakesink: fetched by name through Maven, and only as the list has them.

The jars of a set stand in ``.tools/jars/<set>``. `CHECKSUMS` has one line for each, in the form of ``sha256sum``: a jar
that is not in it, or is another one, is not run. ``python -m servers.jars fetch [SET...]`` brings them,
``... lock`` writes the list anew after a set was changed here.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

from servers.missing import Missing
from servers.once import one_at_a_time

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".tools" / "jars"
CHECKSUMS = ROOT / "requirements" / "jars.sha256"
LONGEST_SECONDS = 900
_PROJECT = "pom.xml"
_COORDINATES = ("groupId", "artifactId", "version", "classifier")


class JarsMissing(Missing):
    """The jars cannot be had on this machine, in one sentence with what to do."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that run together.

    Attributes:
        name: Its folder.
        artifacts: ``group:artifact:version`` or ``group:artifact:version:classifier``; an archive that is no jar ends
            in its type, ``@zip``.
        transitive: False to leave out what the artifacts ask for themselves.
        without: ``group:artifact`` that they ask for and do not need.
    """

    name: str
    artifacts: tuple[str, ...]
    transitive: bool = True
    without: tuple[str, ...] = ()


ICEBERG, JETTY, HADOOP = "1.12.0", "12.1.2", "3.4.2"
ICEBERG_BEFORE = "1.11.0"
"""For Flink and for the REST reference server, of which Iceberg 1.12.0 has published nothing."""
_SQLITE, _POSTGRES = "org.xerial:sqlite-jdbc:3.50.3.0", "org.postgresql:postgresql:42.7.7"

REST_REFERENCE = JarSet(
    "rest-reference",
    (
        f"org.apache.iceberg:iceberg-open-api:{ICEBERG_BEFORE}:test-fixtures",
        f"org.apache.iceberg:iceberg-core:{ICEBERG_BEFORE}",
        f"org.apache.iceberg:iceberg-core:{ICEBERG_BEFORE}:tests",
        _SQLITE,
        f"org.apache.hadoop:hadoop-client-api:{HADOOP}",
        f"org.apache.hadoop:hadoop-client-runtime:{HADOOP}",
        f"org.eclipse.jetty:jetty-server:{JETTY}",
        f"org.eclipse.jetty:jetty-xml:{JETTY}",
        f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{JETTY}",
        "org.slf4j:slf4j-simple:2.0.17",
    ),
)
"""Iceberg's REST reference server. Jetty 12.0 is too old for its servlet."""

ICEBERG_SPARK = JarSet(
    "iceberg-spark",
    (f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG}", _SQLITE, _POSTGRES),
    transitive=False,
)
"""Iceberg for Spark 4.1, its sink too, and what it needs to open SQL catalogs: for ``spark.jars``."""

KAFKA = JarSet("kafka", ("org.apache.kafka:kafka_2.13:4.0.0", "org.slf4j:slf4j-simple:1.7.36"))
"""A Kafka broker, and the program that makes its data folder."""

KAFKA_SPARK = JarSet(
    "kafka-spark",
    (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
        "org.apache.spark:spark-avro_2.13:4.1.1",
    ),
    transitive=False,
)
"""Spark's source for Kafka, and Avro for its records: for ``spark.jars``. What else their poms ask for is Spark."""

TRINO_VERSION = "476"
TRINO = JarSet(
    "trino",
    (
        f"io.trino:trino-server-core:{TRINO_VERSION}@tar.gz",
        f"io.trino:trino-iceberg:{TRINO_VERSION}@zip",
        _SQLITE,
    ),
    transitive=False,
)
"""Trino without its plugins, that for Iceberg, and what this needs to open the SQLite catalog; see `servers.trino`."""

FLINK_VERSION = "2.1.0"
FLINK = JarSet(
    "flink",
    tuple(
        f"org.apache.flink:{name}:{FLINK_VERSION}"
        for name in (
            "flink-clients",
            "flink-connector-files",
            "flink-json",
            "flink-sql-gateway",
            "flink-table-api-java-bridge",
            "flink-table-planner-loader",
            "flink-table-runtime",
        )
    ),
)
"""Flink with its SQL gateway, to run in one process."""

ICEBERG_FLINK = JarSet(
    "iceberg-flink",
    (
        f"org.apache.iceberg:iceberg-flink-runtime-2.1:{ICEBERG_BEFORE}",
        f"org.apache.hadoop:hadoop-client-api:{HADOOP}",
        f"org.apache.hadoop:hadoop-client-runtime:{HADOOP}",
        "commons-logging:commons-logging:1.3.0",
        _SQLITE,
        _POSTGRES,
    ),
    transitive=False,
)
"""Iceberg for Flink 2.1, and what it needs to open SQL catalogs: for Flink's ``lib``."""

FLINK_KAFKA = JarSet(
    "flink-kafka", ("org.apache.flink:flink-connector-kafka:4.0.1-2.0",), without=("org.slf4j:slf4j-api",)
)
"""Flink's source for Kafka."""

KAFKA_CONNECT_VERSION = "3.9.1"
KAFKA_CONNECT = JarSet(
    "kafka-connect",
    (
        f"org.apache.iceberg:iceberg-kafka-connect:{ICEBERG}",
        f"org.apache.iceberg:iceberg-parquet:{ICEBERG}",
        f"org.apache.iceberg:iceberg-orc:{ICEBERG}",  # of no use, but Iceberg looks for it before it writes Parquet
        f"org.apache.kafka:connect-runtime:{KAFKA_CONNECT_VERSION}",
        f"org.apache.kafka:connect-json:{KAFKA_CONNECT_VERSION}",
        "com.fasterxml.jackson.core:jackson-annotations:2.21",
        f"org.apache.hadoop:hadoop-client-api:{HADOOP}",
        f"org.apache.hadoop:hadoop-client-runtime:{HADOOP}",
        "org.slf4j:slf4j-simple:2.0.17",
        _SQLITE,
    ),
)
"""Iceberg's sink for Kafka Connect, with a worker to run it in; Iceberg builds it for this version of Kafka."""

AWS_SDK = "2.29.52"
HADOOP_AWS = JarSet(
    "hadoop-aws",
    (
        f"org.apache.hadoop:hadoop-aws:{HADOOP}",
        f"software.amazon.awssdk:s3:{AWS_SDK}",
        f"software.amazon.awssdk:s3-transfer-manager:{AWS_SDK}",
        f"software.amazon.awssdk:sts:{AWS_SDK}",
    ),
    without=("software.amazon.awssdk:bundle", "org.slf4j:slf4j-api"),
)
"""Hadoop's ``s3a://``, for ``spark.jars``, with the 18 MB of Amazon's client that it calls instead of all 600 MB."""

ICEBERG_AWS = JarSet("iceberg-aws", (f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG}",), transitive=False)
"""Iceberg's own way to S3, for Spark."""

ICEBERG_AWS_FLINK = JarSet(
    "iceberg-aws-flink", (f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG_BEFORE}",), transitive=False
)
"""The same for Flink."""

HDFS = JarSet("hdfs", (f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}",))
"""HDFS in one process, see `servers.hdfs`."""

PRAVEGA = JarSet(
    "pravega",
    ("io.pravega:pravega-standalone:0.13.0", "com.google.protobuf:protobuf-java:3.21.7"),
    without=(
        "org.apache.hadoop:*",  # its protobuf 2.5 is too old for the controller, which then dies
        "software.amazon.awssdk:*",
        "com.amazonaws:*",
        "com.emc.ecs:*",
        "org.bouncycastle:bc-fips",  # a second bcprov: before the first one on the class path, no request is answered
        "org.slf4j:slf4j-reload4j",
    ),
)
"""Pravega in one process, see `servers.pravega`, without its ways to long-term storage."""

NESSIE_VERSION = "0.99.0"
NESSIE = JarSet("nessie", (f"org.projectnessie.nessie:nessie-quarkus:{NESSIE_VERSION}:runner",), transitive=False)
"""Nessie with its Iceberg REST service, in one jar, see `servers.nessie`."""

HIVE_VERSION = "3.1.3"
HIVE = JarSet("hive", (f"org.apache.hive:hive-standalone-metastore:{HIVE_VERSION}",), without=("jdk.tools:jdk.tools",))
"""Hive's metastore with Derby, see `servers.hive`."""

SETS = {
    jars.name: jars
    for jars in (
        REST_REFERENCE,
        ICEBERG_SPARK,
        KAFKA,
        KAFKA_SPARK,
        FLINK,
        ICEBERG_FLINK,
        HADOOP_AWS,
        ICEBERG_AWS,
        ICEBERG_AWS_FLINK,
        HDFS,
        PRAVEGA,
        NESSIE,
        HIVE,
    )
}
PEERS = {jars.name: jars for jars in (FLINK_KAFKA, KAFKA_CONNECT)}
"""Only benchmarks run these, which fetch them."""
ARCHIVES = {TRINO.name: TRINO}
"""These are unpacked elsewhere by who runs them, see `verified`."""


def fetched(jars: JarSet) -> tuple[Path, ...]:
    """The jars of a set, fetched if they are not here yet. Several processes may ask at once.

    Raises:
        JarsMissing: No mvn, no registry, or a jar is not the one in the list.
    """
    expected = _listed(jars)
    folder = FOLDER / jars.name
    with one_at_a_time(FOLDER):
        if not all(_is(folder / name, digest) for name, digest in expected.items()):
            _bring(jars, folder, expected)
    return tuple(folder / name for name in sorted(expected))


def classpath(jars: JarSet) -> str:
    """The jars of a set as Java's ``-cp`` takes them, see `fetched`."""
    return os.pathsep.join(map(str, fetched(jars)))


def lock() -> None:
    """Write the list of checksums anew, from what Maven brings now."""
    lines: list[str] = []
    for jars in (*SETS.values(), *PEERS.values(), *ARCHIVES.values()):
        with _downloaded(jars) as came:
            lines += [f"{_digest(path)}  {jars.name}/{path.name}" for path in _brought(came)]
    CHECKSUMS.write_text("\n".join(lines) + "\n")


def _listed(jars: JarSet) -> dict[str, str]:
    lines = [line.split() for line in CHECKSUMS.read_text().splitlines()]
    names = {name: digest for digest, name in lines}
    found = {Path(name).name: digest for name, digest in names.items() if Path(name).parent.name == jars.name}
    if not found:
        raise JarsMissing(f"{CHECKSUMS.name} has no jars {jars.name}: python -m servers.jars lock.")
    return found


def _bring(jars: JarSet, folder: Path, expected: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with verified(jars) as came:
        for name in expected:
            (came / name).replace(folder / name)


@contextmanager
def verified(jars: JarSet) -> Iterator[Path]:
    """The files of a set as the list has them, in a folder that ends with the block: for archives to be unpacked.

    Raises:
        JarsMissing: No mvn, no registry, or a file is not the one in the list.
    """
    expected = _listed(jars)
    with _downloaded(jars) as came:
        found = {path.name: _digest(path) for path in _brought(came)}
        wrong = sorted({name for name, _ in found.items() ^ expected.items()})
        if wrong:
            raise JarsMissing(f"Maven brought other {jars.name} jars than {CHECKSUMS.name} has: {', '.join(wrong)}.")
        yield Path(came)


def _brought(folder: str) -> list[Path]:
    return sorted(path for path in Path(folder).iterdir() if path.name != _PROJECT)


def _downloaded(jars: JarSet) -> "TemporaryDirectory[str]":
    """The jars as Maven brings them, in a folder beside their place; Maven itself resumes what was interrupted."""
    program = shutil.which("mvn")
    if program is None:
        raise JarsMissing("Maven, which fetches Java servers, is not here (Debian, Ubuntu: apt-get install maven).")
    FOLDER.mkdir(parents=True, exist_ok=True)
    came = TemporaryDirectory(prefix=f".{jars.name}-", dir=FOLDER)
    project = Path(came.name, _PROJECT)
    project.write_bytes(_project(jars))
    call = [program, "-B", "-q", "-f", str(project), "dependency:copy-dependencies"]
    failure = _run([*call, f"-DoutputDirectory={came.name}", "-DincludeScope=runtime"])
    if failure:
        came.cleanup()
        raise JarsMissing(f"Maven cannot fetch the jars {jars.name}; run it again when the registry answers. {failure}")
    return came


def _run(command: Sequence[str]) -> str:
    """What went wrong; empty if nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"It took longer than {LONGEST_SECONDS} s."
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]


def _project(jars: JarSet) -> bytes:
    project = ET.Element("project", xmlns="http://maven.apache.org/POM/4.0.0")
    own = {"modelVersion": "4.0.0", "groupId": "lakesink", "artifactId": jars.name, "version": "1", "packaging": "pom"}
    _fill(project, own)
    dependencies = ET.SubElement(project, "dependencies")
    for artifact in jars.artifacts:
        dependency = ET.SubElement(dependencies, "dependency")
        named, _, kind = artifact.partition("@")
        _fill(dependency, dict(zip(_COORDINATES, named.split(":"), strict=False)) | ({"type": kind} if kind else {}))
        exclusions = ET.SubElement(dependency, "exclusions")
        for unwanted in jars.without if jars.transitive else ("*:*",):
            _fill(ET.SubElement(exclusions, "exclusion"), dict(zip(_COORDINATES, unwanted.split(":"), strict=False)))
    return ET.tostring(project)


def _fill(element: ET.Element, children: Mapping[str, str]) -> None:
    for name, text in children.items():
        ET.SubElement(element, name).text = text


def _is(path: Path, digest: str) -> bool:
    return path.is_file() and _digest(path) == digest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: Sequence[str]) -> None:
    """``fetch [SET...]`` or ``lock``."""
    match arguments:
        case ["lock"]:
            lock()
        case ["fetch", *names] if set(names) <= SETS.keys():
            for name in names or SETS:
                print(f"{name}: {len(fetched(SETS[name]))} jars")
        case _:
            sys.exit(f"python -m servers.jars fetch [{'|'.join(SETS)}]... | lock")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except JarsMissing as error:
        sys.exit(str(error))
