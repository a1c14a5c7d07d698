"""The rows that are written: queries of DuckDB, so that every run and every sink has the same."""

import os
from dataclasses import dataclass
from pathlib import Path

import duckdb

FILES = 4
_FIRST_FILE_TIME = 1_700_000_000

LINEITEM = """
    select i as l_orderkey, i * 7 % 200000 as l_partkey, i * 13 % 10000 as l_suppkey, (i % 7)::int as l_linenumber,
        (i % 50)::double as l_quantity, (i * 97 % 9000000 / 100)::decimal(15, 2) as l_extendedprice,
        (i % 11 / 100)::decimal(15, 2) as l_discount, (i % 9 / 100)::decimal(15, 2) as l_tax,
        case i % 3 when 0 then 'R' when 1 then 'A' else 'N' end as l_returnflag,
        date '1992-01-01' + (i % 2500)::int as l_shipdate, timestamp '1992-01-01' + interval (i % 90000000) second
        as l_receiptdate, ['AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL'][1 + i % 5] as l_shipmode,
        md5(i::varchar) || ' ' || md5((i * 31)::varchar)[1:i % 20] as l_comment
    from range({first}, {last}) t(i)
"""
"""Thirteen columns, as in TPC-H's table of that name."""


def hits() -> str:
    """A hundred columns, as in ClickBench's table of that name: mostly small numbers and short or empty text."""
    columns = ["i as watch_id", "timestamp '2024-01-01' + interval (i % 90000000) second as event_time"]
    columns += [f"(i * {7 + at} % {2 ** (at % 12 + 1)})::int as flag_{at}" for at in range(58)]
    columns += [f"i * {1_000_003 + at} % 1000000007 as id_{at}" for at in range(15)]
    texts = ((at, f"i % {at + 2} = 0", f"'value ' || (i % {50 * (at + 1)})") for at in range(20))
    columns += [f"case when {often} then {text} else '' end as text_{at}" for at, often, text in texts]
    columns += ["'https://example.com/' || md5(i::varchar) || '?' || i % 100 as url", "md5((i // 3)::varchar) as title"]
    columns += [f"(i % {1000 + at}) / 8 as share_{at}" for at in range(3)]
    return f"select {', '.join(columns)} from range({{first}}, {{last}}) t(i)"


def by_day(days: int, rows: int) -> str:
    """`LINEITEM` over so many days in their order, but for one row in ten, which comes late."""
    day = f"case when i % 10 = 0 then i // 10 % {days} else i * {days} // {rows} end"
    return LINEITEM.replace(
        "date '1992-01-01' + (i % 2500)::int as l_shipdate", f"date '2024-01-01' + ({day})::int as l_shipdate"
    )


EVENTS = """
    select i as id, i * 7919 % 100003 as user_id, ['view', 'click', 'buy', 'leave'][1 + i % 4] as kind,
        (i * 97 % 9000000 / 100)::decimal(12, 2) as amount, (i % 4001) / 8 as score, (i % 13)::int as quantity,
        i % 3 = 0 as active, timestamptz '2024-01-01 00:00:00+00' + interval (i % 90000000) second as created,
        date '2024-01-01' + (i % 365)::int as day, md5(i::varchar) || ' ' || md5((i * 31)::varchar) || ' '
        || md5((i * 37)::varchar)[1:10 + i % 20] as note
    from range({first}, {last}) t(i)
"""
EVENTS_SCHEMA = (
    "id bigint, user_id bigint, kind string, amount decimal(12, 2), score double, quantity int, active boolean,"
    " created timestamp, day date, note string"
)
"""Ten columns, which as JSON are some 260 bytes."""
OPTIONAL = ("amount", "score", "quantity", "day", "note")


def sparse_events() -> str:
    """`EVENTS` with a fifth of the optional values missing."""
    columns = ", ".join(f"case when (id + {at}) % 5 > 0 then {name} end as {name}" for at, name in enumerate(OPTIONAL))
    return f"select * replace ({columns}) from ({EVENTS})"


def documents(events: str) -> str:
    """Rows of events as JSON in a column of bytes; a value that is not there has no key."""
    texts = {name: f"'\"' || {name} || '\"'" for name in ("kind", "day", "note")}
    moment = "strftime(created at time zone 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')"
    texts["created"] = f"'\"' || {moment} || '\"'"
    names = [column.split()[0] for column in EVENTS_SCHEMA.replace("(12, 2)", "").split(", ")]
    first, *others = [f"'\"{name}\":' || {texts.get(name, name)}" for name in names]
    parts = " || ".join([first, *(f"coalesce(',' || {other}, '')" for other in others)])
    return f"select encode('{{{{' || {parts} || '}}}}') as value from ({events})"


def write(path: Path, query: str, options: str = "") -> None:
    """A Parquet file of a query's rows; times are in UTC."""
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet{options})")


@dataclass(frozen=True, slots=True)
class Source:
    """Parquet files in the order in which a stream reads them.

    Attributes:
        folder: Where they are.
        rows: In all of them.
    """

    folder: Path
    rows: int

    @classmethod
    def make(cls, folder: Path, query: str, rows: int) -> "Source":
        """Write the files of a query over numbers from `first` to `last`."""
        folder.mkdir(parents=True)
        each = rows // FILES
        for part in range(FILES):
            path = folder / f"{part}.parquet"
            write(path, query.format(first=part * each, last=(part + 1) * each))
            os.utime(path, (_FIRST_FILE_TIME + part,) * 2)
        return cls(folder, each * FILES)
