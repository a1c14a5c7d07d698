"""Locations of data files: unique names, partition values as safe and bounded path segments, and hashed folders.

No reader parses a path, so values may be shortened. A value cannot leave its folder: it is escaped and follows its
field's name.
"""

import hashlib
import re
import struct
import uuid
from collections.abc import Sequence
from urllib.parse import quote_plus

import pyarrow as pa
from pyiceberg_core import transform as core

from lakesink.parquet.partitions import Partition, PartitionSource
from lakesink.parquet.single_value import decode_value
from lakesink.rows.plan import WritePlan

MAX_NAME = 64
MAX_VALUE = 128
MAX_PARTITION_PATH = 512
MAX_RELATIVE = 1024
"""Most characters below the data location: object stores limit the length of keys."""
_DIGEST_DIGITS = 16
_LONGEST_ESCAPE = 12
_HASH_BITS = 20
_FOLDER_BITS = 4
_FOLDERS = 3
_FOLDER = r"(?:[01]{4,8}|[A-Za-z0-9._~+%-]*=[A-Za-z0-9._~+%-]*)/"
_REST = r"-(?P<task>\d{5,10})-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet"


def new_location(plan: WritePlan, sources: Sequence[PartitionSource], task: int, partition: Partition) -> str:
    """A unique location for a new data file."""
    name = f"{plan.file_stem}-{task:05d}-{uuid.uuid4()}.parquet"
    if sources and plan.partitioned_paths:
        name = f"{partition_path(sources, partition)}/{name}"
    if not plan.object_storage:
        return f"{plan.data_location}/{name}"
    return f"{plan.data_location}/{_hashed(name)}{'/' if plan.partitioned_paths else '-'}{name}"


def is_location(location: str, folder: str, stem: str, task: int | None = None) -> bool:
    """True if `new_location` can return this location; a `task` of None stands for any task."""
    relative = location.removeprefix(f"{folder}/")
    if relative == location or len(relative) > MAX_RELATIVE:
        return False
    found = re.fullmatch(rf"(?:{_FOLDER})*(?:[01]{{8}}-)?{re.escape(stem)}{_REST}", relative, re.ASCII)
    return found is not None and task in (None, int(found["task"]))


def task_of(location: str) -> int:
    """The task in the name of a data file, which `is_location` accepts."""
    found = re.search(_REST + "$", location, re.ASCII)
    assert found is not None, "a data file of the batch"
    return int(found["task"])


def partition_path(sources: Sequence[PartitionSource], partition: Partition) -> str:
    """Folders ``name=value`` for a partition, escaped as in Iceberg; long names are cut and end with a digest."""
    segments = []
    for source, value in zip(sources, partition, strict=True):
        raw = None if value is None else decode_value(source.transform.result, value)
        segments.append(f"{_bounded(source.name, MAX_NAME)}={_bounded(source.transform.path_text(raw), MAX_VALUE)}")
    path = "/".join(segments)
    return path if len(path) <= MAX_PARTITION_PATH else f"partition={_digest(path)}"


def _bounded(text: str, limit: int) -> str:
    escaped = _escape(text)
    if len(escaped) <= limit:
        return escaped
    kept = text[:limit]
    while (excess := len(_escape(kept)) + _DIGEST_DIGITS + 1 - limit) > 0:
        kept = kept[: -(excess // _LONGEST_ESCAPE + 1)]
    return f"{_escape(kept)}-{_digest(escaped)}"


def _escape(text: str) -> str:
    return quote_plus(text, safe="", errors="replace")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]


def _hashed(name: str) -> str:
    """Iceberg's entropy folders: the low bits of the name's Murmur3 hash, computed as a bucket of 2^20."""
    data = name.encode()
    buffers = [None, pa.py_buffer(struct.pack("<ii", 0, len(data))), pa.py_buffer(data)]
    text = pa.Array.from_buffers(pa.string(), 1, buffers)  # pa.array would import pandas
    number = core.bucket(text, 1 << _HASH_BITS)[0].as_py()
    bits = f"{number:0{_HASH_BITS}b}"
    ends = range(_FOLDER_BITS, _FOLDER_BITS * _FOLDERS + 1, _FOLDER_BITS)
    return "/".join([*(bits[end - _FOLDER_BITS : end] for end in ends), bits[_FOLDER_BITS * _FOLDERS :]])
