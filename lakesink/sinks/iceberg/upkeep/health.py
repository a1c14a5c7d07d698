"""The health of a table in figures. Pure."""

from dataclasses import dataclass

from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_catalog.words import counted, size

SMALL = 0.75
"""A file below this fraction of the target size is small."""
MOST_SMALL_FILES, MOST_DELETED, MOST_MANIFESTS, MOST_METADATA_BYTES = 1_000, 0.3, 1_000, 2**30
"""Bounds of the four figures."""
FEW_DELETED = 10_000
"""Up to so many deleted rows, no share of them is a warning."""
_REQUEST_SECONDS, _BYTES_PER_SECOND = 0.02, 100 * 2**20


@dataclass(frozen=True, slots=True)
class Health:
    """Four figures (small files, share of deleted rows, manifests, bytes of metadata), and what they are made of.

    Attributes:
        files: Data files.
        small_files: Those below 75 % of the target size.
        bytes: Of data files.
        rows: Of data files, deleted ones included.
        deleted_rows: Positions in delete files, and all rows of equality deletes.
        delete_files: Files of deletes.
        manifests: Of the head's snapshot.
        metadata_bytes: Manifests, and the metadata file.
    """

    files: int = 0
    small_files: int = 0
    bytes: int = 0
    rows: int = 0
    deleted_rows: int = 0
    delete_files: int = 0
    manifests: int = 0
    metadata_bytes: int = 0

    @property
    def deleted_share(self) -> float:
        """Deleted rows among all rows, from 0 to 1."""
        return min(1.0, self.deleted_rows / self.rows) if self.rows else 0.0

    @property
    def past(self) -> tuple[str, ...]:
        """The figures that are past their bounds, in words."""
        is_deleted = self.deleted_share > MOST_DELETED and self.deleted_rows > FEW_DELETED
        figures = (
            (self.small_files > MOST_SMALL_FILES, counted(self.small_files, "small file")),
            (is_deleted, f"{self.deleted_share:.0%} deleted rows"),
            (self.manifests > MOST_MANIFESTS, counted(self.manifests, "manifest")),
            (self.metadata_bytes > MOST_METADATA_BYTES, f"{size(self.metadata_bytes)} of metadata"),
        )
        return tuple(words for is_past, words in figures if is_past)

    @property
    def scan_seconds(self) -> float:
        """Estimate of a full scan by one reader: 20 ms for each file and manifest, and 100 MiB in a second."""
        requests = self.files + self.delete_files + self.manifests
        return requests * _REQUEST_SECONDS + (self.bytes + self.metadata_bytes) / _BYTES_PER_SECOND


def health_of(live: LiveFiles, target_bytes: int, metadata_bytes: int) -> Health:
    """The health of a head.

    Args:
        live: Its files.
        target_bytes: The target size of data files.
        metadata_bytes: The size of the table's metadata file.
    """
    deletes = (*live.deletes, *live.equality)
    return Health(
        files=len(live.data),
        small_files=sum(is_small(file, target_bytes) for file in live.data),
        bytes=sum(file.file_size_bytes for file in live.data),
        rows=sum(file.record_count for file in live.data),
        deleted_rows=sum(file.record_count for file in deletes),
        delete_files=len(deletes),
        manifests=len(live.manifests),
        metadata_bytes=sum(live.manifests) + metadata_bytes,
    )


def is_small(file: LiveFile, target_bytes: int) -> bool:
    """True if a file is below 75 % of the target size."""
    return file.file_size_bytes < SMALL * target_bytes
