"""Searches all texts of an array as one text, which is much faster than one by one. Pure.

The search finds at least what is in one of the texts: a match may also span two of them.
"""

from array import array

import pyarrow as pa
import pyarrow.compute as pc


def any_character(texts: pa.StringArray, characters: bytes) -> bool:
    """False if no text contains one of these ASCII characters."""
    start, end, data = _span(texts)
    found = b"" if data is None else data[start:end].to_pybytes()
    return any(bytes((character,)) in found for character in characters)


def any_match(texts: pa.StringArray, pattern: str) -> bool:
    """False if no text matches a pattern without anchors."""
    start, end, data = _span(texts)
    if data is None:
        return False
    joined = pa.StringArray.from_buffers(1, pa.py_buffer(array("i", [start, end])), data)
    return bool(pc.match_substring_regex(joined, pattern)[0].as_py())


def _span(texts: pa.StringArray) -> tuple[int, int, pa.Buffer | None]:
    """Start and end of the texts in their buffer; None if there are no texts."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return 0, 0, None
    ends = memoryview(offsets).cast("i")
    return ends[texts.offset], ends[texts.offset + len(texts)], data
