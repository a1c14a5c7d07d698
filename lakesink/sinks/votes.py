"""The votes of a batch's tasks, counted: one of every task, cast for this batch, under premises that the table knows.

Receipts come from less trusted processes, which may have been planned in another one than this.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakesink import __version__
from lakesink_catalog.errors import WriteError
from lakesink_catalog.locations import data_location, is_under
from lakesink_catalog.receipt import DataFileReceipt, Receipt, ReceiptInvalid, decode


@dataclass(frozen=True, slots=True)
class Counted:
    """All that the tasks of a batch wrote.

    Attributes:
        files: Data files, each once.
        schema: The one schema that they were written under.
    """

    files: tuple[DataFileReceipt, ...]
    schema: Schema


def count_votes(receipts: Sequence[bytes], table: Table, file_stem: str) -> Counted:
    """What the tasks wrote, if every vote can be believed.

    Args:
        receipts: One of every task, encoded, in any order.
        table: As loaded by the process that counts.
        file_stem: What the names of this batch's data files begin with.

    Raises:
        WriteError: A vote is missing, doubled, malformed, or was cast on other premises.
    """
    votes = [_vote(data) for data in receipts]
    for vote in votes:
        _check_vote(table, vote, file_stem)
    if sorted(vote.task for vote in votes) != list(range(len(votes))):
        raise rejected("there is not exactly one of every task")
    files = tuple(file for vote in votes for file in vote.files)
    if len({file.path for file in files}) != len(files):
        raise rejected("a data file is in the votes twice")
    return Counted(files, _written_under(table, votes))


def all_under(folder: str, paths: Iterable[str]) -> bool:
    """True if every path lies below the folder."""
    return all(is_under(path, folder) for path in paths)


def rejected(why: str) -> WriteError:
    """The error for a vote that cannot be believed."""
    return WriteError(
        "RECEIPT_REJECTED",
        f"A task's receipt was rejected: {why}.",
        data="Nothing of this batch was committed; its files stay unreferenced.",
        action="Start the query again; if it happens again, compare the lakesink versions of driver and executors.",
    )


def _vote(data: bytes) -> Receipt:
    try:
        return decode(data)
    except ReceiptInvalid as error:
        raise rejected(str(error)) from None


def _check_vote(table: Table, vote: Receipt, file_stem: str) -> None:
    if vote.skipped:
        raise rejected("a task skipped a batch that the ledger does not have")
    if vote.lakesink_version != __version__:
        raise rejected(f"a task ran lakesink {vote.lakesink_version}, the driver runs {__version__}")
    if vote.rows != sum(file.record_count for file in vote.files):
        raise rejected("a task received other rows than its files hold")
    if not all_under(data_location(table), (file.path for file in vote.files)):
        raise rejected("a data file lies outside the table's data location")
    if any(f"{file_stem}-" not in file.path.rpartition("/")[2] for file in vote.files):
        raise rejected("a data file bears the name of another batch or sink")
    if any(not _plausible(file, table) for file in vote.files):
        raise rejected("a data file was written under a partition spec that the table does not have, or is empty")


def _written_under(table: Table, votes: Sequence[Receipt]) -> Schema:
    """The one schema of all files. Tasks may have been planned by an earlier look than the one that counts their votes.

    Whether the table still takes files of this schema is decided when they are committed.
    """
    schema_ids = {vote.schema_id for vote in votes} or {table.schema().schema_id}
    known = [schema for schema in table.metadata.schemas if schema_ids == {schema.schema_id}]
    if not known:
        raise rejected("tasks wrote under different schemas, or under one that the table does not have")
    return known[0]


def _plausible(file: DataFileReceipt, table: Table) -> bool:
    spec = table.specs().get(file.spec_id)
    fits = spec is not None and len(file.partition) == len(spec.fields)
    return fits and file.record_count > 0 and file.file_size_bytes > 0
