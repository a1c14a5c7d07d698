"""The live files of a snapshot, as its manifests state them."""

from collections.abc import Mapping
from dataclasses import dataclass

from lakesink_protocol.change import Content
from lakesink_protocol.errors import CatalogError

PARQUET = "PARQUET"
FILE_PATH_COLUMN = 2147483546
"""Iceberg's reserved field id of ``file_path`` in files of position deletes."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One live data file, or one live file of deletes, as its manifest states it.

    Attributes:
        partition: One value per partition field in single-value form of the field's present type; None is NULL.
        sequence_number: The data sequence number.
        lower_bounds: By field id, of the fields that the caller asked for; of a delete file those of ``file_path``.
        referenced_data_file: The one data file that a delete file deletes from; empty if there may be several.
        manifest_path: The manifest with the live entry.
        file_format: In capital letters.
        added_by: The snapshot that added the file, even if it has expired; None if the manifest does not tell.
    """

    path: str
    content: Content
    spec_id: int
    partition: tuple[bytes | None, ...]
    record_count: int
    file_size_bytes: int
    sequence_number: int
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]
    referenced_data_file: str
    manifest_path: str
    file_format: str = PARQUET
    added_by: int | None = None

    def check_parquet(self) -> None:
        """Refuse a file whose rows lakesink cannot locate, because it is not Parquet."""
        if self.file_format != PARQUET:
            raise CatalogError.of("FILES_NOT_PARQUET", file_format=self.file_format[:20], path=self.path)


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """All live files of one snapshot.

    Attributes:
        deletes: Files of position deletes.
        equality: Files of equality deletes.
        manifests: The bytes of each manifest.
    """

    data: tuple[LiveFile, ...]
    deletes: tuple[LiveFile, ...]
    equality: tuple[LiveFile, ...] = ()
    manifests: tuple[int, ...] = ()
