"""A recipe for an engine: files to write, requirements, first queries, and notes. Pure."""

from dataclasses import dataclass

ICEBERG_OF_SPARK, ICEBERG_OF_FLINK = "1.12.0", "1.11.0"
"""The newest release of each runtime: Iceberg 1.12.0 has none for Flink."""
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
    """A file to write."""

    name: str
    what: str  # its destination, in words
    text: str


@dataclass(frozen=True, slots=True)
class Query:
    """A first query."""

    what: str  # the question that it answers
    text: str  # in the engine's language, without a semicolon


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything for one engine."""

    engine: str  # with the tested version
    needs: tuple[str, ...]  # jars, packages, variables
    files: tuple[File, ...]
    queries: tuple[Query, ...]
    notes: tuple[str, ...] = ()


def properties_file(properties: dict[str, str], separator: str = "=") -> str:
    """A Java properties file; a backslash escapes in it."""
    escaped = {name: value.replace("\\", "\\\\") for name, value in properties.items()}
    return "".join(f"{name}{separator}{value}\n" for name, value in escaped.items())
