"""What Iceberg's Java library shows of tables that a stream changes by key: files, deletes, manifests and totals."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from testkit.builders import TABLE
from testkit.change_table import Change
from tests.interop.maintenance.changing import NAME, Changing, changing
from tests.interop.maintenance.foreign import MERGE_ON_READ
from tests.interop.maintenance.lake import Lake, local

pytestmark = pytest.mark.interop
FILE_PATH, POSITION = 2147483546, 2147483545
BRANCH = "twin"
FILES_OF = {0: ("data-files", "records"), 1: ("delete-files", "position-deletes")}
OF_BOTH = (
    *("total-records", "total-delete-files", "total-position-deletes", "total-equality-deletes"),
    *("added-records", "added-delete-files", "added-position-delete-files", "added-position-deletes"),
    *("removed-delete-files", "removed-position-delete-files", "removed-position-deletes"),
    *("deleted-data-files", "deleted-records"),
)
"""What does not depend on how many data files a batch is written to."""


@pytest.fixture
def stream(lake: Lake) -> Iterator[Changing]:
    """Of a table that gets another partition in its course; deletes apply to files of both specs then."""
    with changing(lake, partitioned=True, maintenance=False) as stream:  # which would rewrite the files of older specs
        stream.run(10)
        lake.spark.sql(f"ALTER TABLE {NAME} ADD PARTITION FIELD bucket(4, id)")
        stream.run(6)
        lake.spark.sql(f"ALTER TABLE {NAME} DROP PARTITION FIELD part")
        stream.run(6)
        stream.assert_read()
        yield stream


def shown(stream: Changing, table: str, columns: str = "*", where: str = "") -> list[dict[str, Any]]:
    """Rows of a metadata table in Spark."""
    rows: list[dict[str, Any]] = stream.lake.spark.sql(f"SELECT {columns} FROM {NAME}.{table} {where}").to_pylist()
    return rows


def test_each_snapshot_states_the_totals_that_java_counts(stream: Changing) -> None:
    for snapshot in shown(stream, "snapshots", "snapshot_id, summary"):
        summary, sizes = dict(snapshot["summary"]), 0
        counted = Counter[str]()
        at = f"VERSION AS OF {snapshot['snapshot_id']}"
        for file in shown(stream, "files", "content, record_count, file_size_in_bytes", at):
            of_files, of_rows = FILES_OF[file["content"]]
            counted += Counter({of_files: 1, of_rows: file["record_count"]})
            sizes += file["file_size_in_bytes"]
        stated = {name: int(summary[f"total-{name}"]) for names in FILES_OF.values() for name in names}
        assert stated == {name: counted[name] for name in stated}
        assert int(summary["total-files-size"]) == sizes
        assert summary["total-equality-deletes"] == "0"


def test_a_delete_file_names_one_data_file_and_has_its_partition(stream: Changing) -> None:
    of_file = "spec_id, partition"
    data = {file["file_path"]: file for file in shown(stream, "data_files", f"file_path, record_count, {of_file}")}
    bounds = "lower_bounds, upper_bounds, referenced_data_file, equality_ids"
    deletes = shown(
        stream, "delete_files", f"content, file_path, record_count, file_size_in_bytes, {of_file}, {bounds}"
    )
    positions = shown(stream, "position_deletes", "file_path, pos, delete_file_path")
    assert len({file["spec_id"] for file in deletes}) == 3
    assert len({file["referenced_data_file"] for file in deletes}) == len(deletes)
    for file in deletes:
        named = data[file["referenced_data_file"]]
        own = sorted(row["pos"] for row in positions if row["delete_file_path"] == file["file_path"])
        lower, upper = dict(file["lower_bounds"]), dict(file["upper_bounds"])
        assert (file["content"], file["equality_ids"]) == (1, None)
        assert (file["spec_id"], file["partition"]) == (named["spec_id"], named["partition"])
        assert lower[FILE_PATH] == upper[FILE_PATH] == named["file_path"].encode()
        assert (lower[POSITION], upper[POSITION]) == tuple(pos.to_bytes(8, "little") for pos in (own[0], own[-1]))
        assert len(set(own)) == file["record_count"]
        assert own[-1] < named["record_count"]
        assert local(file["file_path"]).stat().st_size == file["file_size_in_bytes"]
    assert {row["file_path"] for row in positions} == {file["referenced_data_file"] for file in deletes}


def test_manifests_count_their_entries(stream: Changing) -> None:
    entries = Counter(
        (row["spec_id"], row["content"], row["status"])
        for row in shown(stream, "entries", "status, data_file.content AS content, data_file.spec_id AS spec_id")
    )
    counted = Counter[tuple[int, int, int]]()
    for manifest in shown(stream, "manifests"):
        kind = "delete" if manifest["content"] else "data"
        other = "data" if manifest["content"] else "delete"
        for status, word in enumerate(("existing", "added", "deleted")):
            count = manifest[f"{word}_{kind}_files_count"]
            counted[manifest["partition_spec_id"], manifest["content"], status] += count
            assert manifest[f"{word}_{other}_files_count"] == 0
    assert +counted == entries


def test_spark_would_state_the_same_of_the_same_changes(lake: Lake) -> None:
    """On a branch from the same snapshot, in Spark's form of merge on read."""
    with changing(lake, properties=MERGE_ON_READ) as stream:
        stream.run(8)
        for number in range(3):
            lake.spark.sql(f"ALTER TABLE {NAME} CREATE OR REPLACE BRANCH {BRANCH}")
            changes = some_changes(stream, number)
            stream.change(changes)
            lake.spark.sql(merge(changes))
            ours, sparks = (summary_of(stream, branch) for branch in ("main", BRANCH))
            assert {name: ours.get(name, "0") for name in OF_BOTH} == {name: sparks.get(name, "0") for name in OF_BOTH}
            assert ours["operation"] == sparks["operation"] == "overwrite"


def some_changes(stream: Changing, number: int) -> list[Change]:
    rows = [row for key, row in sorted(stream.reference.rows.items()) if key % 4 == number]
    return [
        Change(row.key, row.version + 10**6, row.part, f"changed {number}", row.amount, deletes=row.key % 8 == number)
        for row in rows
    ]


def merge(changes: Sequence[Change]) -> str:
    values = ", ".join(
        f"({one.key}, {one.version}, '{one.part}', '{one.value}', {one.deletes})".lower() for one in changes
    )
    return (
        f"MERGE INTO {NAME}.branch_{BRANCH} t"
        f" USING (SELECT * FROM VALUES {values} AS v(id, version, part, value, deletes)) s"
        " ON t.id = s.id WHEN MATCHED AND s.deletes THEN DELETE"
        " WHEN MATCHED THEN UPDATE SET version = s.version, value = s.value"
    )


def summary_of(stream: Changing, branch: str) -> Mapping[str, str]:
    where = f"WHERE snapshot_id = (SELECT snapshot_id FROM {NAME}.refs WHERE name = '{branch}')"
    [row] = shown(stream, "snapshots", "operation, summary", where)
    return {"operation": row["operation"], **dict(row["summary"])}


def test_the_command_that_doctor_prints_leaves_no_deletes_to_readers(lake: Lake) -> None:
    with changing(lake, partitioned=True, maintenance=False) as stream:
        stream.run(12)
        printed, _, saved = health(lake)["fix"].partition(" would save ")
        assert saved
        program, command, table, *arguments = shlex.split(printed)
        assert program == "lakesink"
        assert lake.asked(command, table, *arguments)["exit_code"] == 0
        stream.assert_read()
        assert (health(lake)["fix"], shown(stream, "delete_files")) == ("", [])
        stream.run(2)
        stream.assert_read()


def health(lake: Lake) -> Mapping[str, Any]:
    found: list[Mapping[str, Any]] = lake.asked("doctor", TABLE, "--no-spark")["checks"]
    [health] = [one for one in found if one["check"] == "health"]
    return health
