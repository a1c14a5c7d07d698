"""The table for changes of rows by key, and what a reader finds in it."""

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField

from proof.content import CHANGES, COLUMNS, ID, SIZE, ZONE
from proof.oracle import Rows

FILE_PATH = 2147483546
"""Iceberg's field id of the path in a file of position deletes."""
SCHEMA = Schema(
    *(NestedField(number, name, LongType(), required=name == ID) for number, name in enumerate(CHANGES.names, 1)),
    identifier_field_ids=[CHANGES.names.index(ID) + 1],
)
SIZED = Schema(
    *SCHEMA.fields,
    NestedField(len(SCHEMA.fields) + 1, SIZE, IntegerType()),
    identifier_field_ids=SCHEMA.identifier_field_ids,
)
"""For documents with changes."""
BY_ZONE = PartitionSpec(PartitionField(CHANGES.names.index(ZONE) + 1, 1000, IdentityTransform(), ZONE))


def make_keyed_table(catalog: Catalog, name: str, properties: Mapping[str, str], schema: Schema = SCHEMA) -> None:
    """Create the table, partitioned by zone."""
    catalog.create_namespace_if_not_exists(name.partition(".")[0])
    catalog.create_table(name, schema, partition_spec=BY_ZONE, properties={"format-version": "2", **properties})


def rewrite(table: Table, rows: pa.Table) -> None:
    """Another writer puts these rows in the place of all."""
    table.overwrite(rows.select(CHANGES.names).cast(table.schema().as_arrow()))


def several_deletes(table: Table) -> list[str]:
    """Data files of the head that are the only one in more than one file of position deletes."""
    snapshot = table.current_snapshot()
    named: Counter[str] = Counter()
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            lower, upper = ((bounds or {}).get(FILE_PATH) for bounds in (file.lower_bounds, file.upper_bounds))
            if file.content != DataFileContent.DATA and lower == upper and lower is not None:
                named[lower.decode()] += 1
    return [path for path, count in named.items() if count > 1]


def live_rows(table: Table, snapshot_id: int | None = None) -> Rows:
    """The rows that PyIceberg finds, by where they come from; at the head, if no snapshot is given."""
    if table.current_snapshot() is None:
        return Counter()
    found = table.scan(snapshot_id=snapshot_id, selected_fields=COLUMNS).to_arrow()
    return Counter(zip(*(found[name].to_pylist() for name in COLUMNS), strict=True))
