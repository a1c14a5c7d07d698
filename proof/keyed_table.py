"""The table for changes of rows by key, and what a reader finds in it."""

from collections import Counter
from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from proof.content import CHANGES, COLUMNS, ID, ZONE
from proof.oracle import Rows

SCHEMA = Schema(
    *(NestedField(number, name, LongType(), required=name == ID) for number, name in enumerate(CHANGES.names, 1)),
    identifier_field_ids=[CHANGES.names.index(ID) + 1],
)
BY_ZONE = PartitionSpec(PartitionField(CHANGES.names.index(ZONE) + 1, 1000, IdentityTransform(), ZONE))


def make_keyed_table(catalog: Catalog, name: str, properties: Mapping[str, str]) -> None:
    """Create the table, partitioned by zone."""
    catalog.create_namespace_if_not_exists(name.partition(".")[0])
    catalog.create_table(name, SCHEMA, partition_spec=BY_ZONE, properties={"format-version": "2", **properties})


def live_rows(table: Table, snapshot_id: int | None = None) -> Rows:
    """The rows that PyIceberg finds, by where they come from; at the head, if no snapshot is given."""
    if table.current_snapshot() is None:
        return Counter()
    found = table.scan(snapshot_id=snapshot_id, selected_fields=COLUMNS).to_arrow()
    return Counter(zip(*(found[name].to_pylist() for name in COLUMNS), strict=True))
