"""Options of the file sink that no other sink has, parsed and checked before anything is opened."""

import os
import posixpath
from typing import Any

from lakesink.parquet.filesystem import local_path, scheme_of
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import contains_secret
from lakesink_protocol.suggest import did_you_mean, sentence

CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")
"""The default first."""
PATTERN_CHARACTERS = frozenset("*?[]{}\\")


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


def codec_of(codec: Any) -> str:
    """The codec that an option names; None counts as not given."""
    word = CODECS[0] if codec is None else str(codec).strip().lower()
    word = "uncompressed" if word == "none" else word
    if word not in CODECS:
        near = did_you_mean(word[:60], CODECS)
        raise _wrong("compression_codec", f"Parquet files do not support this codec. {near}")
    return word


def _wrong(name: str, why: str) -> SettingsError:
    return SettingsError.of("OPTION_INVALID.listed", name=name, why=sentence(why), place="stream_files")
