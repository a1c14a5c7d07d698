"""The options of the file sink, parsed and checked before anything is opened."""

import os
import posixpath
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lakesink.parquet.filesystem import local_path, scheme_of
from lakesink.settings.options import read_option
from lakesink.settings.settings import PREPARED_MAX_AGE
from lakesink.sinks.directory.layout import Layout
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import contains_secret
from lakesink_protocol.refusals.accept import Accept
from lakesink_protocol.suggest import did_you_mean, sentence

CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")
"""The default first."""
PATTERN_CHARACTERS = frozenset("*?[]{}\\")
TARGET_FILE_SIZE_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Parsed options of a file sink."""

    layout: Layout
    codec: str
    target_file_size_bytes: int = TARGET_FILE_SIZE_BYTES
    accept: Accept | None = None
    prepared_max_age: timedelta = PREPARED_MAX_AGE

    @classmethod
    def parse(cls, directory: Any, sink_id: Any, codec: Any, **options: Any) -> "FileSettings":
        """Settings from the user's values; None counts as not given. `options` are the other fields."""
        layout = Layout(directory_location(directory), read_option("sink_id", sink_id))
        given = {name: read_option(name, value) for name, value in options.items() if value is not None}
        return cls(layout, _codec(codec), **given)


def directory_location(directory: Any) -> str:
    """A directory as absolute path or URI without trailing slash; refuses secrets and pattern characters."""
    text = os.fspath(directory) if isinstance(directory, os.PathLike) else directory
    if not isinstance(text, str) or not text.strip() or not text.isprintable():
        raise _wrong("directory", "expected a path or a URI, without control characters")
    if PATTERN_CHARACTERS & set(text):
        raise _wrong("directory", "Spark and DuckDB read * ? [ ] { } and \\ in a path as a pattern")
    if contains_secret("directory", text):
        raise _wrong("directory", "it contains credentials, and logs show paths; configure the storage's client")
    if scheme_of(text) == "file":
        return posixpath.abspath(local_path(text))
    return text.rstrip("/")


def _codec(codec: Any) -> str:
    word = CODECS[0] if codec is None else str(codec).strip().lower()
    word = "uncompressed" if word == "none" else word
    if word not in CODECS:
        near = did_you_mean(word[:60], CODECS)
        raise _wrong("compression_codec", f"Parquet files do not support this codec. {near}")
    return word


def _wrong(name: str, why: str) -> SettingsError:
    return SettingsError.of("OPTION_INVALID.listed", name=name, why=sentence(why), place="stream_files")
