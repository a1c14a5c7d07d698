"""What an engine is told: files to write, queries to begin with, what it needs, what to know. Pure."""

from dataclasses import dataclass

ICEBERG_OF_SPARK, ICEBERG_OF_FLINK = "1.12.0", "1.11.0"
"""The newest release of each runtime: Iceberg 1.12.0 was published without one for Flink."""
SPARK_RUNTIME = f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG_OF_SPARK}"
FLINK_RUNTIME = f"org.apache.iceberg:iceberg-flink-runtime-2.1:{ICEBERG_OF_FLINK}"
AWS_BUNDLE = "org.apache.iceberg:iceberg-aws-bundle"
SQLITE_DRIVER = "org.xerial:sqlite-jdbc:3.50.3.0"
POSTGRES_DRIVER = "org.postgresql:postgresql:42.7.7"
SAME_NAME = (
    "SQL catalogs keep the catalog's name in every row: under another name than {!r} the same database shows no tables."
)


@dataclass(frozen=True, slots=True)
class File:
    """A file to write.

    Attributes:
        name: Its name.
        what: Where it goes, in words.
        text: All of it.
    """

    name: str
    what: str
    text: str


@dataclass(frozen=True, slots=True)
class Query:
    """A query to begin with.

    Attributes:
        what: What it answers.
        text: In the engine's language, without a semicolon.
    """

    what: str
    text: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """All of it, for one engine.

    Attributes:
        engine: Its name and the version that it was tried with.
        needs: What has to be there: jars, packages, variables.
        files: Files to write.
        queries: Queries to begin with.
        notes: What to know.
    """

    engine: str
    needs: tuple[str, ...]
    files: tuple[File, ...]
    queries: tuple[Query, ...]
    notes: tuple[str, ...] = ()


def properties_file(properties: dict[str, str], separator: str = "=") -> str:
    """A Java properties file, in which a backslash escapes."""
    escaped = {name: value.replace("\\", "\\\\") for name, value in properties.items()}
    return "".join(f"{name}{separator}{value}\n" for name, value in escaped.items())
