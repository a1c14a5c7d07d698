"""Tables of random histories keep their rows, also if others commit between the rewrite of a group and its commit."""

import random
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.update import AddSortOrderUpdate, SetDefaultSortOrderUpdate
from pyiceberg.transforms import IdentityTransform, TruncateTransform, parse_transform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from lakesink.sinks.iceberg.upkeep import maintenance, rewrite
from lakesink.sinks.iceberg.upkeep.policy import Policy, Verify
from testkit.examples import seeds
from tests.upkeep.lake import Kept
from tests.upkeep.orders import check_orders
from tests.upkeep.test_executors import Executors
from tests.writer.test_order import TRANSFORMS

NESTED = StructType(NestedField(11, "x", IntegerType()), NestedField(12, "y", StringType()))
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "part", StringType()),
    NestedField(3, "number", IntegerType()),
    NestedField(4, "amount", FloatType()),
    NestedField(5, "nested", NESTED),
    NestedField(6, "list", ListType(13, IntegerType(), element_required=False)),
    NestedField(7, "map", MapType(14, StringType(), 15, NESTED, value_required=False)),
    NestedField(8, "at", TimestampType()),
    NestedField(9, "price", DecimalType(9, 2)),
)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a timestamp without a time zone


class History:
    """Random actions of others on one table."""

    def __init__(self, kept: Kept, chance: random.Random) -> None:
        self.kept, self.chance, self.next = kept, chance, 0

    def value(self, kind: Any) -> Any:  # noqa: PLR0911 - one for each type
        if self.chance.random() < 0.2:
            return None
        match kind:
            case StructType():
                return {field.name: self.value(field.field_type) for field in kind.fields}
            case ListType():
                return [self.value(kind.element_type) for _ in range(self.chance.randrange(3))]
            case MapType():
                return [(key, self.value(kind.value_type)) for key in "ab"[: self.chance.randrange(3)]]
            case StringType():
                return self.chance.choice(["", "a", "b", "ä" * 20])
            case FloatType() | DoubleType():
                return self.chance.choice([0.0, -0.0, float("nan"), 1.5])
            case TimestampType():
                return EPOCH + timedelta(minutes=self.chance.randrange(-9_000, 9_000))
            case DecimalType():
                return Decimal(self.chance.randrange(-900, 900)).scaleb(-2)
        return self.chance.randrange(-100, 100)

    def new_rows(self) -> pa.Table:
        schema, rows = self.kept.table.schema(), []
        for _ in range(self.chance.randrange(1, 30)):
            rows.append({field.name: self.value(field.field_type) for field in schema.fields} | {"id": self.next})
            self.next += 1
        return pa.Table.from_pylist(rows, schema=schema.as_arrow())

    def append(self) -> None:
        self.kept.table.append(self.new_rows())

    def add_foreign(self) -> None:
        """A file of another program, without field ids; PyIceberg adds it with a name mapping."""
        table, path = self.kept.table, self.kept.lake.folder / f"other-{self.next}.parquet"
        rows = self.new_rows()
        for field in table.spec().fields:  # a file of one partition
            name = table.schema().find_column_name(field.source_id)
            kind = rows.schema.field(name).type
            rows = rows.set_column(rows.column_names.index(name), name, pa.repeat(rows[name][0], len(rows)).cast(kind))
        plain = pa.Table.from_pylist(rows.to_pylist(), schema=without_ids(rows.schema))
        pq.write_table(plain, path)
        table.add_files([str(path)])

    def delete(self) -> None:
        number = self.chance.randrange(2, 9)
        self.kept.delete(lambda row: row["id"] % number == 1)

    def overwrite(self) -> None:
        at = self.chance.randrange(max(1, self.next))
        self.kept.table.delete(f"id >= {at} and id < {at + 10}")

    def evolve(self) -> None:
        self.next += 1
        with self.kept.table.update_schema() as change:
            match self.chance.randrange(6):
                case 0:
                    change.add_column(f"new{self.next}", StringType())
                case 1:
                    change.add_column(("nested", f"z{self.next}"), LongType())
                case 2:
                    change.update_column("number", LongType())
                case 3:
                    change.update_column("amount", DoubleType())
                case 4:
                    change.rename_column("list", "list2") if "list" in names(self) else change.rename_column(
                        "list2", "list"
                    )
                case 5:
                    extra = [name for name in names(self) if name.startswith("new")]
                    if extra:
                        change.delete_column(extra[0])

    def repartition(self) -> None:
        names = {field.name for field in self.kept.table.spec().fields}
        with self.kept.table.update_spec() as change:
            if "part" in names:
                change.remove_field("part")
            elif "b" in names:
                change.remove_field("b")
                change.add_field("part", IdentityTransform(), "part")
            else:
                change.add_field("id", TruncateTransform(40), "b")

    def order(self) -> None:
        """Another engine sets an order, also one that lakesink cannot keep, or none."""
        table, fields = self.kept.table, []
        names = [*table.schema().column_names, "list.element"]
        for name in self.chance.sample(names, self.chance.choice([0, 1, 1, 2, 3])):
            found = table.schema().find_field(name) if name in table.schema().column_names else None
            source, kind = (found.field_id, found.field_type) if found else (13, IntegerType())
            transforms = [one for one in TRANSFORMS if parse_transform(one).can_transform(kind)]
            if transforms:
                chosen = parse_transform(self.chance.choice(transforms))
                fields.append(SortField(source, chosen, self.chance.choice(WAYS), self.chance.choice(PLACES)))
        number = max(one.order_id for one in table.metadata.sort_orders) + 1 if fields else 0
        default = SetDefaultSortOrderUpdate(sort_order_id=-1 if fields else 0)
        new = (AddSortOrderUpdate(sort_order=SortOrder(*fields, order_id=number)),) if fields else ()
        table.catalog.commit_table(table, (), (*new, default))

    def act(self, *, only_rows: bool = False) -> None:
        ways = [self.append, self.append, self.delete, self.overwrite]
        self.chance.choice(
            ways if only_rows else [*ways, *ways, self.add_foreign, self.evolve, self.repartition, self.order]
        )()


def names(history: History) -> list[str]:
    return [field.name for field in history.kept.table.schema().fields]


def without_ids(schema: pa.Schema) -> pa.Schema:
    return pa.schema([plain(field) for field in schema])


def plain(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([plain(part) for part in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, plain(kind.item_field))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(plain(kind.value_field))
    return pa.field(field.name, kind, field.nullable)


WAYS, PLACES = (SortDirection.ASC, SortDirection.DESC), (NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST)
SPECS = [UNPARTITIONED_PARTITION_SPEC, PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))]


@pytest.mark.parametrize("seed", seeds(4))
def test_a_table_of_a_random_history_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(maintenance, "EXECUTORS_FROM_BYTES", 0)
    monkeypatch.setattr(rewrite, "CHUNK_BYTES", chance.choice([600, 4_000, rewrite.CHUNK_BYTES]))
    merges = {"commit.manifest.min-count-to-merge": str(chance.randrange(2, 6))}
    kept = Kept.make(tmp_path, SCHEMA, SPECS[seed % 2], merges)
    history = History(kept, chance)
    history.append()
    done, policy = 0, Policy()

    def run(*, in_executors: bool) -> Any:
        one = kept.maintenance(policy)
        one.run_in_executors = Executors() if in_executors else None
        report = one.run()
        assert {one.reason for one in report.left if not one.reason.startswith("lost")} == set()
        return report

    for _ in range(4):
        for _ in range(chance.randrange(2, 7)):
            history.act()
        policy = Policy(
            chance.choice([3_000, 8_000, 200_000]),
            min_input_files=chance.choice([1, 2, 4]),
            verify=chance.choice(list(Verify)),
        )
        if chance.random() < 0.7:
            kept.before_commit = [partial(history.act, only_rows=chance.random() < 0.8) for _ in range(2)]
        report = run(in_executors=chance.random() < 0.5)
        done += len(report.groups)
        assert kept.checked == done
        check_orders(kept.table)
        head = kept.table.current_snapshot()
        assert head is not None, "the table has rows"
        assert head.summary is not None, "readers believe the totals"
        live = len(kept.rows())
        assert int(head.summary["total-records"] or 0) - int(head.summary["total-position-deletes"] or 0) <= live
    kept.before_commit.clear()
    before = kept.rows()
    policy = replace(policy, target_file_size=200_000)  # files below have more bytes of footers than of rows
    reports = [run(in_executors=chance.random() < 0.5) for _ in range(5)]
    last = kept.table.current_snapshot()
    assert reports[-1].groups == (), "the table comes to rest"
    run(in_executors=False)
    assert (kept.rows(), kept.table.current_snapshot()) == (before, last)
    check_orders(kept.table)
