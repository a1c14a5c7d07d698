"""How much of a Parquet file is read at once."""

from itertools import islice

import pyarrow.parquet as pq

_FIRST_ROWS, _MOST_ROWS, _NUMBER_BYTES = 16, 65_536, 8
_EACH_VALUE = frozenset({"PLAIN", "RLE", "BIT_PACKED", "DELTA_LENGTH_BYTE_ARRAY"})  # without a dictionary


def rows_at_once(parquet: pq.ParquetFile, most_bytes: int) -> int:
    """How many rows of a file to read into one batch of about so many bytes.

    Rows are as wide as the footer says, or the first texts if they are wider: a dictionary has each text once.
    """
    footer = parquet.metadata
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    size, shared = 0.0, list[str]()
    for number, leaf in enumerate(parquet.schema):
        columns, each = [group.column(number) for group in groups], max(leaf.length, _NUMBER_BYTES)  # also a NULL
        size += sum(max(one.total_uncompressed_size, one.num_values * each) for one in columns)
        if leaf.physical_type.endswith("ARRAY") and not all(_EACH_VALUE.issuperset(one.encodings) for one in columns):
            shared.append(leaf.path)
    if shared:
        # Of one row group and few columns: a reader decodes whole pages, and would fetch all groups into its buffer.
        fullest = max(range(len(groups)), key=lambda number: groups[number].num_rows)
        for first in islice(parquet.iter_batches(_FIRST_ROWS, row_groups=[fullest], columns=shared), 1):
            size = max(size, first.nbytes / first.num_rows * footer.num_rows)
    return int(min(max(most_bytes * footer.num_rows / max(size, 1), 1), _MOST_ROWS))
