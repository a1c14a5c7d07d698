"""What is known of a target before a stream starts or a table is made. Reads the table; makes and changes nothing."""

from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakesink.settings import Settings
from lakesink.sinks.planning import SessionFacts, write_plan
from lakesink.writer.columns import check_columns
from lakesink_catalog.arrow_schema import iceberg_schema
from lakesink_catalog.connect import FoundCatalog
from lakesink_catalog.errors import BatchRefused, CatalogError, LakesinkError, Reason, SettingsError
from lakesink_catalog.identity import MAIN_BRANCH, Batch, SinkKey
from lakesink_catalog.nearest import did_you_mean
from lakesink_catalog.partition_by import parse_partition_by
from lakesink_catalog.tables import FORMAT_VERSION, TABLE_MISSING, load_table, parse_identifier

CATALOG_MISSING = "LAKESINK_CATALOG_MISSING"
NOTHING_MADE = "Nothing was started, written or made."
_PROBE = Batch(0, "", "", None, "")


@dataclass(frozen=True, slots=True)
class CatalogThatIsThere:
    """A catalog for who writes only to a table that is there: opened, never made.

    Attributes:
        found: The catalog.
        table: Identifier of the table.
    """

    found: FoundCatalog
    table: str

    def open(self) -> Catalog:
        """Connect.

        Raises:
            CatalogError: See `FoundCatalog.open`.
        """
        try:
            return self.found.open(create=False)
        except CatalogError as error:
            raise told_likely_cause_first(error, self.table) from None


def check_start(
    found: FoundCatalog, table: str, key: SinkKey, settings: Settings, schema: pa.Schema, session: SessionFacts
) -> None:
    """Check all that the first batch would find wrong with options, columns and table.

    Args:
        found: Where the table is or will be.
        table: Its identifier.
        key: Who will write.
        settings: Parsed options.
        schema: Of the rows.
        session: What tasks must know of the Spark session.

    Raises:
        LakesinkError: As the first batch would raise it.
    """
    parse_identifier(table)
    there = _table_if_there(found, table, settings)
    if there is None:
        check_creation(schema, settings)
        if key.branch != MAIN_BRANCH:
            raise _no_branch(key.branch, f"the table {table} is yet to be made, and has {MAIN_BRANCH} alone", [])
        return
    _check_version_and_branch(there, table, key)
    check_partitions(there, settings.partition_by)
    check_columns(schema, write_plan(there, _PROBE, key, settings, session))


def check_creation(schema: pa.Schema, settings: Settings) -> None:
    """Check that a table can be made of these columns and written with these options.

    Args:
        schema: Of the rows.
        settings: Parsed options.

    Raises:
        LakesinkError: It cannot.
    """
    parse_partition_by(settings.partition_by, iceberg_schema(schema))
    settings.effective({})


def check_partitions(table: Table, partition_by: str | None) -> None:
    """Check that a table is divided as its writer says, or once was: somebody may have divided it anew since.

    Args:
        table: The table.
        partition_by: As the user wrote it; None for whatever the table has.

    Raises:
        SettingsError: It never was, or the text does not fit its columns.
    """
    if not partition_by or not partition_by.strip():
        return
    schema = table.schema()
    asked = parse_partition_by(partition_by, schema)
    if _terms(asked) not in map(_terms, table.metadata.partition_specs):
        has, wanted = _spelled(table.spec(), schema), _spelled(asked, schema)
        raise SettingsError(
            "PARTITION_BY_DIFFERS",
            f"The table is divided by {has}, partition_by asks for {wanted}.",
            data="Nothing was written: a table keeps its partitions, whatever the option says.",
            action="Leave partition_by out, or write what the table has. To divide it anew, change the table: Spark SQL"
            " ALTER TABLE ... ADD PARTITION FIELD.",
        )


def told_likely_cause_first(error: CatalogError, table: str) -> LakesinkError:
    """At a first start a catalog or table that is not there was never made: that is said before anything else."""
    if error.code not in (CATALOG_MISSING, TABLE_MISSING):
        return error
    where = f" {error.what}" if error.code == CATALOG_MISSING else ""
    return CatalogError(
        error.code.removeprefix("LAKESINK_"),
        f"There is no table {table} yet.{where}" if where else error.what,
        data=error.data,
        action=f"At a first start give create_table=True (with decode, make the table first). Else: {error.action}",
    )


def _table_if_there(found: FoundCatalog, table: str, settings: Settings) -> Table | None:
    try:
        return load_table(found.open(create=False), table)
    except CatalogError as error:
        if settings.create_table and error.code in (CATALOG_MISSING, TABLE_MISSING):
            return None
        raise told_likely_cause_first(error, table) from None


def _check_version_and_branch(table: Table, name: str, key: SinkKey) -> None:
    if str(table.format_version) != FORMAT_VERSION:
        raise BatchRefused(
            Reason.UNSUPPORTED,
            f"The table {name} has format version {table.format_version}; lakesink writes version {FORMAT_VERSION}.",
            data=NOTHING_MADE,
            action="Stream into a version 2 table.",
        )
    if key.branch != MAIN_BRANCH and key.branch not in table.metadata.refs:
        raise _no_branch(key.branch, f"the table {name} does not have it", list(table.metadata.refs))


def _no_branch(branch: str, why: str, known: list[str]) -> BatchRefused:
    return BatchRefused(
        Reason.BRANCH_MISSING,
        f"There is no branch {branch[:60]!r}: {why}.",
        data=NOTHING_MADE,
        action=f"{did_you_mean(branch, known)} Create it (Spark SQL: ALTER TABLE ... CREATE BRANCH), or correct the"
        " option branch.".lstrip(),
    )


def _terms(spec: PartitionSpec) -> frozenset[tuple[int, str]]:
    """What divides, whatever it is called; a field that was removed of an old table divides no more."""
    return frozenset((field.source_id, str(field.transform)) for field in spec.fields if str(field.transform) != "void")


def _spelled(spec: PartitionSpec, schema: Schema) -> str:
    """A spec as `partition_by` spells it."""
    return ", ".join(_term(str(field.transform), schema, field.source_id) for field in spec.fields) or "nothing"


def _term(transform: str, schema: Schema, source_id: int) -> str:
    column = schema.find_column_name(source_id) or f"column {source_id}"
    word, _, number = transform.rstrip("]").partition("[")
    if word == "identity":
        return column
    return f"{word}({number}, {column})" if number else f"{word}({column})"
