"""Catalogs that break their promise, each in one way, and one that only refuses tags."""

import threading
from typing import Any

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import SetSnapshotRefUpdate, TableRequirement, TableUpdate, update_table_metadata
from sqlalchemy import update
from sqlalchemy.orm import Session

Requirements = tuple[TableRequirement, ...]
Updates = tuple[TableUpdate, ...]


class IgnoresAssertions(SqlCatalog):
    """Applies whatever is asked."""

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        assert requirements
        return super().commit_table(table, (), updates)


class SaysYes(SqlCatalog):
    """Accepts, and does nothing."""

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        assert requirements
        metadata = update_table_metadata(table.metadata, updates)
        return CommitTableResponse(metadata=metadata, metadata_location=table.metadata_location)


class LastOneWins(SqlCatalog):
    """Writes what it is told over whatever is there, as a catalog of files without an atomic swap does."""

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        assert requirements
        return self.overwrite(table, updates)

    def overwrite(self, base: Table, updates: Updates) -> CommitTableResponse:
        staged = self._update_and_stage_table(base, base.name(), (), updates)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        name = base.name()[-1]
        statement = update(IcebergTables).where(IcebergTables.table_name == name)
        with Session(self.engine) as session:
            session.execute(statement.values(metadata_location=staged.metadata_location))
            session.commit()
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)


class ChecksThenWrites(LastOneWins):
    """Checks what is asserted, and lets others in between that and its write."""

    both_checked = threading.Barrier(2)

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        current = self.load_table(table.name())
        for requirement in requirements:
            requirement.validate(current.metadata)
        if current.metadata.snapshots:  # a first commit has no rival at its side
            self.both_checked.wait(60)
        return self.overwrite(current, updates)


class LosesTags(SqlCatalog):
    """Takes a commit and forgets the tags in it."""

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        return super().commit_table(table, requirements, tuple(u for u in updates if not _is_tag(u)))


class LosesRefs(SqlCatalog):
    """Takes a commit and forgets the tags in it, and what it says of branches other than main."""

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        kept = tuple(u for u in updates if not isinstance(u, SetSnapshotRefUpdate) or u.ref_name == "main")
        return super().commit_table(table, requirements, kept)


class RefusesTags(SqlCatalog):
    """Takes no commit that sets a tag."""

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        if any(map(_is_tag, updates)):
            raise CommitFailedException("no tags here")
        return super().commit_table(table, requirements, updates)


def _is_tag(change: Any) -> bool:
    return isinstance(change, SetSnapshotRefUpdate) and change.type == "tag"
