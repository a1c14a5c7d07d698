"""Rewrites a group in an executor; the driver checks what comes back as it checks the receipts of tasks."""

import json

import pyarrow as pa

from lakesink.keys.work import to_bytes
from lakesink.parquet.filesystem import open_input
from lakesink.sinks.iceberg.upkeep.columns import Unsuitable
from lakesink.sinks.iceberg.upkeep.rewrite import Work, rewrite
from lakesink_protocol.receipt import Receipt, encode
from lakesink_protocol.redact import describe

RECEIPT, WHY, FILES, FIRST = b"receipt", b"why", b"files", b"first"
"""Of the schema's metadata: a receipt, or why the group stays, with reasons by path; and the group's first path."""


def rewrite_in_executor(work: Work) -> bytes:
    """Rewrite a group: its receipt and the origins of its rows, or the reason why it stays, as an Arrow IPC stream."""
    plan, numbers, about = work.plan, pa.nulls(0, pa.int64()), {FIRST: work.files[0].path.encode()}
    try:
        done = rewrite(work, lambda location: open_input(location, plan.file_io, plan.catalog_name))
    except Exception as error:  # noqa: BLE001 - else Spark would end the other groups of the job too
        of_files = error.files if isinstance(error, Unsuitable) else {}
        why = str(error) if isinstance(error, Unsuitable) else f"failed: {describe(error, plan.file_io)}"
        about |= {WHY: why.encode(), FILES: json.dumps(dict(of_files)).encode()}
    else:
        rows, numbers = sum(file.record_count for file in done.files), done.origins.numbers_in(done.files)
        receipt = Receipt(0, rows, tuple(done.files), schema_id=plan.schema_id, premises=plan.premises)
        about[RECEIPT] = encode(receipt)
    return to_bytes(pa.table({"number": numbers}).replace_schema_metadata(about))
