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
    groups = map(footer.row_group, range(footer.num_row_groups))
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    size = sum(max(one.total_uncompressed_size, one.num_values * _NUMBER_BYTES) for one in columns)
    texts = (one for one in columns if one.physical_type.endswith("BYTE_ARRAY"))
    if shared := list({one.path_in_schema for one in texts if not _EACH_VALUE.issuperset(one.encodings)}):
        # Of one row group and few columns: a reader decodes whole pages, and would fetch all groups into its buffer.
        for first in islice(parquet.iter_batches(_FIRST_ROWS, row_groups=[0], columns=shared), 1):
            size = max(size, first.nbytes / first.num_rows * footer.num_rows)
    return int(min(max(most_bytes * footer.num_rows / max(size, 1), 1), _MOST_ROWS))
