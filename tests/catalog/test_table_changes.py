"""What the summary of a snapshot says of the files that a change adds and ends, and of the new totals."""

from typing import Any

import pytest
from pyiceberg.schema import Schema

from lakesink_catalog.commit.premises import Premises
from lakesink_catalog.commit.prepared import PreparedBatch
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.manifests.live import LiveFile
from lakesink_protocol.change import Content, ContentFile

LARGEST = 2**63 - 1
TOTALS = ("data-files", "records", "files-size", "delete-files", "position-deletes", "equality-deletes")


def added(rows: int, size: int, *partition: bytes, spec_id: int = 0) -> ContentFile:
    return ContentFile("a", spec_id, partition, rows, size, {}, {}, {}, {}, {}, {}, ())


def live(rows: int, size: int, *partition: bytes, spec_id: int = 0) -> LiveFile:
    return LiveFile("b", Content.DATA, spec_id, partition, rows, size, 1, {}, {}, "", manifest_path="")


def prepared(partitions: int = 2) -> PreparedBatch:
    """Two files of 100 and 20 bytes, with seven rows."""
    files = (("x", 100), ("y", 20))
    return PreparedBatch("uuid", "main", 1, 0, Premises(Schema(), ()), None, "", (), files, 7, partitions, 0, 0)


def counts(parent: dict[str, Any] | None, **files: Any) -> dict[str, str]:
    return Change("main", None, 1, {}, **files).counts(parent)


def totals(*numbers: int) -> dict[str, str]:
    return {f"total-{name}": str(number) for name, number in zip(TOTALS, numbers, strict=True)}


PARENT = totals(10, 100, 1_000, 5, 50, 3)


def test_a_change_of_no_files_keeps_the_totals() -> None:
    assert counts(None) == totals(0, 0, 0, 0, 0, 0)
    assert counts(PARENT) == PARENT


def test_the_files_of_a_batch_are_counted() -> None:
    assert counts(PARENT, prepared=prepared()) == totals(12, 107, 1_120, 5, 50, 3) | {
        "added-data-files": "2",
        "added-records": "7",
        "added-files-size": "120",
        "changed-partition-count": "2",
    }


def test_all_that_a_batch_of_changes_adds_and_ends_is_counted() -> None:
    found = counts(
        PARENT,
        prepared=prepared(),
        added=(added(4, 30),),
        ended=(live(9, 200), live(1, 8)),
        deletes=(added(3, 5), added(2, 6), added(1, 7)),
        replaced=(live(2, 1), live(4, 2)),
    )
    assert found == totals(10 + 3 - 2, 100 + 11 - 10, 1_000 + 168 - 211, 5 + 3 - 2, 50 + 6 - 6, 3) | {
        "added-data-files": "3",
        "added-records": "11",
        "added-files-size": "168",
        "added-delete-files": "3",
        "added-position-delete-files": "3",
        "added-position-deletes": "6",
        "deleted-data-files": "2",
        "deleted-records": "10",
        "removed-files-size": "211",
        "removed-delete-files": "2",
        "removed-position-delete-files": "2",
        "removed-position-deletes": "6",
    }


@pytest.mark.parametrize(
    ("files", "changed"),
    [
        ({"added": (added(1, 1, b"a"), added(1, 1, b"a"))}, "1"),
        ({"added": (added(1, 1, b"a"), added(1, 1, b"b"))}, "2"),
        ({"added": (added(1, 1, b"a"), added(1, 1, b"a", spec_id=1))}, "2"),
        ({"added": (added(1, 1, b"a"),), "ended": (live(1, 1, b"a"), live(1, 1, b"b"))}, "2"),
        ({"deletes": (added(1, 1, b"a"),), "replaced": (live(1, 1, b"b"),)}, "2"),
        ({"prepared": prepared(partitions=3)}, "3"),
        ({"prepared": prepared(), "deletes": (added(1, 1, b"a"),)}, None),
        ({"prepared": prepared(partitions=0), "deletes": (added(1, 1, b"a"),)}, "1"),
    ],
)
def test_changed_partitions_are_counted_once_and_not_where_some_are_unknown(
    files: dict[str, Any], changed: str | None
) -> None:
    assert counts(None, **files).get("changed-partition-count") == changed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, None),
        ("9", "0"),
        ("8", None),
        (str(LARGEST), str(LARGEST - 9)),
        ("many", None),
        ("-1", None),
    ],
)
def test_a_total_is_stated_if_it_is_known_and_possible(before: str | None, after: str | None) -> None:
    parent = {"total-records": before} if before else {}
    assert counts(parent, ended=(live(9, 1),)).get("total-records") == after


@pytest.mark.parametrize(("rows", "after"), [(7, str(LARGEST)), (8, None)])
def test_a_total_that_readers_cannot_hold_is_not_stated(rows: int, after: str | None) -> None:
    assert counts({"total-records": str(LARGEST - 7)}, added=(added(rows, 1),)).get("total-records") == after
