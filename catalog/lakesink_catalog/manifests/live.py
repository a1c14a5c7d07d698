"""The live files of a snapshot, read from its manifests without losing a field that locating needs."""

from collections.abc import Mapping
from dataclasses import dataclass

from lakesink_protocol.change import Content


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One live data file, or one live file of position deletes, as its manifest states it.

    Attributes:
        partition: One value per partition field in single-value form; None is NULL.
        sequence_number: The data sequence number.
        lower_bounds: By field id, of the fields that the caller asked for; of a delete file also those of ``file_path``.
        referenced_data_file: The one data file that a delete file deletes from; empty if there may be several.
        manifest_path: The manifest with the live entry.
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


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """All live files of one snapshot."""

    data: tuple[LiveFile, ...]
    deletes: tuple[LiveFile, ...]
